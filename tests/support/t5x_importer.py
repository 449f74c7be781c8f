"""A translator as T5X's importer has one for T5, and what T5X does with translators, both written anew.

Source of the semantics: `CheckpointTranslator` in t5x/checkpoint_importer.py of google-research/t5x.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.migration.t5x import CheckpointTranslator

SLOTS = {"": "", "_slot_v": "/v", "_slot_vr": "/v_row", "_slot_vc": "/v_col"}
SUBLAYERS = {
    "encoder": ("attention", "mlp"),
    "decoder": ("self_attention", "cross_attention", "mlp"),
}
ATTENTION = {
    ("encoder", "SelfAttention"): "attention",
    ("decoder", "SelfAttention"): "self_attention",
    ("decoder", "EncDecAttention"): "encoder_decoder_attention",
}
MATRICES = dict(zip("qkvo", ("query", "key", "value", "out"), strict=True))

Rules = Iterable[tuple[Any, Callable[..., tuple[str | None, Any]]]]


def in_t5x(rules: Rules, flat: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """What T5X makes of a flat dict with these rules; the patterns are compiled, `$` included."""
    result = {}
    for key, value in flat.items():
        pattern, function = next((p, f) for p, f in rules if p.match(key))
        new, made = function(options, key, value, *pattern.match(key).groups())
        if new is not None:
            result[new] = made
    return result


def placed(path: str, slot: str) -> str:
    return f"{'state/param_states' if slot else 'target'}/{path}{SLOTS[slot]}"


def importer(lazy: Any = LazyArray) -> CheckpointTranslator:
    """A translator with the rules of T5X's importer for T5 1.0 and 1.1. `lazy`: class of its lazy arrays."""
    translator = CheckpointTranslator()
    add = translator.add

    @add(r"global_step")
    def step(options: Any, key: str, value: Any) -> Any:
        return "state/step", value.astype(np.int32).get() if isinstance(value, lazy) else value

    @add(r"shared/embedding(\w*)")
    def embedding(options: Any, key: str, value: Any, slot: str) -> Any:
        return placed("token_embedder/embedding", slot), value

    @add(r"(encoder|decoder)/block_(\d+)/layer_000/SelfAttention/relative_attention_bias(\w*)")
    def bias(options: Any, key: str, value: Any, tower: str, block: str, slot: str) -> Any:
        return placed(f"{tower}/layers_{int(block)}/relpos_bias/rel_embedding", slot), value

    @add(r"(encoder|decoder)/block_(\d+)/layer_\d+/(SelfAttention|EncDecAttention)/([qkvo])(\w*)")
    def attention(
        options: Any, key: str, value: Any, tower: str, block: str, kind: str, one: str, slot: str
    ) -> Any:
        path = f"{tower}/layers_{int(block)}/{ATTENTION[tower, kind]}/{MATRICES[one]}/kernel"
        return placed(path, slot), value

    @add(r"(encoder|decoder)/block_(\d+)/layer_\d+/DenseReluDense/(wi|wo)(?:_(\d+))?/kernel(\w*)")
    def mlp(
        options: Any, key: str, value: Any, tower: str, block: str, name: str, gate: str | None, slot: str
    ) -> Any:
        gated = f"_{gate}" if gate else ""
        return placed(f"{tower}/layers_{int(block)}/mlp/{name}{gated}/kernel", slot), value

    @add(r"(encoder|decoder)/block_(\d+)/layer_(\d+)/(?:layer|rms)_norm/scale(\w*)")
    def norm(options: Any, key: str, value: Any, tower: str, block: str, layer: str, slot: str) -> Any:
        sublayer = SUBLAYERS[tower][int(layer)]
        return placed(f"{tower}/layers_{int(block)}/pre_{sublayer}_layer_norm/scale", slot), value

    @add(r"(encoder|decoder)/(?:final_layer|rms)_norm/scale(\w*)")
    def last_norm(options: Any, key: str, value: Any, tower: str, slot: str) -> Any:
        return placed(f"{tower}/{tower}_norm/scale", slot), value

    @add(r"decoder/logits/kernel(\w*)")
    def logits(options: Any, key: str, value: Any, slot: str) -> Any:
        return placed("decoder/logits_dense/kernel", slot), value

    return translator


def with_missing_slots(flat: dict[str, Any]) -> dict[str, Any]:
    """Post-processing of T5X: the slots that its Adafactor has and TensorFlow's has not."""
    dummy = np.zeros((1,), np.float32)
    added = {}
    for key in flat:
        slots = f"state/param_states{key.removeprefix('target')}"
        if key.startswith("target"):
            added[f"{slots}/m"] = dummy
            if f"{slots}/v" in flat:
                added |= {f"{slots}/v_row": dummy, f"{slots}/v_col": dummy}
            elif f"{slots}/v_row" in flat:
                added[f"{slots}/v"] = dummy
    return {**flat, **added}


def with_shared_biases(flat: dict[str, Any]) -> dict[str, Any]:
    """Post-processing of T5X: position biases that only layer 0 has are shared by all layers."""
    layers = [int(found[1]) for key in flat if (found := re.search(r"layers_(\d+)/relpos_bias", key))]
    if max(layers, default=0) > 0:
        return flat
    return {re.sub(r"layers_\d+/relpos_bias", "relpos_bias", key): value for key, value in flat.items()}
