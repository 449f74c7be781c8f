"""Make what MaxText and tunix make of small models of Gemma 3 and gpt-oss; the tests compare with that.

    python -m tests.recipes.make_peer_outputs

Run it in an environment with MaxText 0.2.5, google-tunix 0.1.7 and what these import; the tests do not need
it. It writes tests/data/peers/FAMILY.npz, models in bfloat16: `hf/…` by Hugging Face's names, `maxtext/…`
what MaxText makes of them, by keys, `back/…` what it makes of that on the way back, and of Gemma 3 `tunix/…`.
All are stored as uint16, since NumPy's files do not have bfloat16.

Names come from MaxText's PARAM_MAPPING and values from its HOOK_FNS; layers that it scans are stacked along
its param_scan_axis, 1. tunix loads a file of safetensors.
"""

import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from tests.recipes import gpt_oss_layout
from tests.recipes.decoder_layouts import NARROW, Decoder, Layout
from tests.recipes.leaves import Arrays, Shapes, hf_arrays, jax_shapes

BF16 = np.dtype(ml_dtypes.bfloat16)
DATA = Path(__file__).parents[1] / "data" / "peers"


class MaxText:
    """MaxText's mapping and functions for a model, and our names for what it calls otherwise."""

    def __init__(self, name: str, config: dict[str, Any], shapes: Shapes, theirs: str = "", ours: str = ""):
        param_mapping = importlib.import_module("maxtext.checkpoint_conversion.utils.param_mapping")
        told = SimpleNamespace(inhomogeneous_layer_cycle_interval=2)
        self.mapping = param_mapping.PARAM_MAPPING[name](config, told, True)
        self.hooks = [param_mapping.HOOK_FNS[name](config, told, True, back) for back in (False, True)]
        self.shapes, self.theirs, self.ours = shapes, theirs, ours

    def entries(self) -> Iterator[tuple[Any, list[str], list[str], bool]]:
        """(MaxText's name of the leaf, or of two; keys; Hugging Face's names; whether layers are stacked)."""
        for leaf, names in self.mapping.items():
            if "vision" not in str(leaf):
                listed = names if isinstance(names, list) else [names]
                ours = leaf if isinstance(leaf, tuple) else (leaf,)
                keys = [f"params/{one.replace('-', '/')}" for one in ours]
                yield leaf, keys, [name.replace(self.theirs, self.ours) for name in listed], names is listed

    def hook(self, leaf: Any, back: bool) -> Callable[..., np.ndarray]:
        return self.hooks[back].get(leaf, lambda array, shape: array)

    def there(self, hf: Arrays) -> Arrays:
        made: Arrays = {}
        for leaf, keys, names, stacked in self.entries():
            layers = [self.hook(leaf, False)(hf[name], self.slice_of(keys[0], stacked)) for name in names]
            whole = np.stack(layers, axis=1) if stacked else layers[0]
            parts = [whole[..., k] for k in range(2)] if isinstance(leaf, tuple) else [whole]
            made |= {key: np.asarray(part).astype(BF16) for key, part in zip(keys, parts, strict=True)}
        return made

    def back(self, maxtext: Arrays, hf_shapes: Shapes) -> Arrays:
        made: Arrays = {}
        for leaf, keys, names, stacked in self.entries():
            whole = [maxtext[key] for key in keys]
            for at, name in enumerate(names):
                one = [array[:, at] if stacked else array for array in whole]
                value = self.hook(leaf, True)(one if isinstance(leaf, tuple) else one[0], hf_shapes[name])
                made[name] = np.asarray(value).astype(BF16)
        return made

    def slice_of(self, key: str, stacked: bool) -> tuple[int, ...]:
        """The shape of one layer's part of a leaf."""
        shape = self.shapes[key]
        return (shape[0], *shape[2:]) if stacked else shape


def tunix_gemma3(d: Decoder, hf: Arrays) -> Arrays:
    """The parameters of the model that tunix loads, by key."""
    nnx = importlib.import_module("flax.nnx")
    model = importlib.import_module("tunix.models.gemma3.model")
    loader = importlib.import_module("tunix.models.gemma3.params_safetensors")
    sizes = {
        "num_layers": d.layers,
        "num_embed": d.vocab,
        "embed_dim": d.embed,
        "hidden_dim": d.mlp,
        "num_heads": d.heads,
        "head_dim": d.head_dim,
        "num_kv_heads": d.kv_heads,
        "sliding_window_size": 4,
    }
    with tempfile.TemporaryDirectory() as place:
        save_file(hf, f"{place}/model.safetensors")
        loaded = loader.create_model_from_safe_tensors(place, model.ModelConfig(**sizes), dtype=BF16)
    leaves = nnx.state(loaded, nnx.Param).flat_state()
    return {"/".join(map(str, (*path, "value"))): np.asarray(leaf.get_value()) for path, leaf in leaves}


def write(family: str, peer: MaxText, hf: Arrays, **more: Arrays) -> None:
    there = peer.there(hf)
    back = peer.back(there, {name: array.shape for name, array in hf.items()})
    parts = {"hf": hf, "maxtext": there, "back": back, **more}
    DATA.mkdir(exist_ok=True)
    np.savez_compressed(
        DATA / f"{family}.npz",
        **{f"{part}/{key}": a.view(np.uint16) for part, arrays in parts.items() for key, a in arrays.items()},
    )


def main() -> None:
    gemma = NARROW["gemma3"]
    config = {
        "text_config": {"num_hidden_layers": gemma.layers, "hidden_size": gemma.embed},
        "vision_config": {"num_hidden_layers": 0},
    }
    shapes = jax_shapes(gemma, Layout(layout="maxtext"))
    peer = MaxText("gemma3-4b", config, shapes, "model.language_model.", "model.")
    hf = hf_arrays(gemma, BF16)
    write("gemma3", peer, hf, tunix=tunix_gemma3(gemma, hf))
    oss = gpt_oss_layout.SMALL
    shapes = jax_shapes(oss, gpt_oss_layout.Layout(layout="maxtext"))
    write(
        "gpt_oss",
        MaxText("gpt-oss-20b", {"num_hidden_layers": oss.layers}, shapes),
        gpt_oss_layout.hf_arrays(oss, BF16),
    )


if __name__ == "__main__":
    main()
