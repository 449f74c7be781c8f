"""T5 under its three names: Mesh TensorFlow, T5X, Hugging Face. Tables of their own, not taken from recipes.

Sources: t5x/checkpoint_importer.py and t5x/examples/t5/network.py of google-research/t5x;
models/t5/modeling_t5.py of huggingface/transformers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Slots = Literal["none", "whole", "factored"]
"""No optimizer; `_slot_v` for every parameter (small models); `_slot_vr`, `_slot_vc` for matrices."""
Listing = dict[str, str]
"""Key → `dtype[shape]`."""

DUMMY = "float32[1]"


@dataclass(frozen=True)
class Size:
    vocab: int = 11
    embed: int = 6
    heads: int = 4
    joined: int = 20
    """heads × kv."""
    mlp: int = 9
    buckets: int = 5
    layers: int = 2


@dataclass(frozen=True)
class Parameter:
    mesh: str
    t5x: str
    """Below `target`."""
    hugging_face: str
    shape: tuple[int, ...]
    """Shape in Mesh TensorFlow and T5X."""

    @property
    def transposed(self) -> bool:
        """Whether Hugging Face has the axes in the other order."""
        return len(self.shape) == 2 and "embedding" not in self.mesh.split("/")[-1]

    @property
    def hugging_face_shape(self) -> tuple[int, ...]:
        return self.shape[::-1] if self.transposed else self.shape


Row = tuple[str, str, str, str]
"""Mesh TensorFlow, T5X, Hugging Face, names of the axes; `N` and `NNN` stand for the number of the layer."""


def attention_rows(sublayer: int, mesh: str, t5x: str) -> list[Row]:
    """Queries, keys, values and what is made of them."""
    names = {"q": "query", "k": "key", "v": "value", "o": "out"}
    return [
        (
            f"layer_00{sublayer}/{mesh}/{short}",
            f"{t5x}/{name}/kernel",
            f"layer.{sublayer}.{mesh}.{short}",
            "joined embed" if short == "o" else "embed joined",
        )
        for short, name in names.items()
    ]


def norm_row(sublayer: int, t5x: str) -> Row:
    return (
        f"layer_00{sublayer}/NORM/scale",
        f"{t5x}_layer_norm/scale",
        f"layer.{sublayer}.layer_norm",
        "embed",
    )


ENCODER: Sequence[Row] = (
    *attention_rows(0, "SelfAttention", "attention"),
    *(norm_row(0, "pre_attention"), norm_row(1, "pre_mlp")),
)
DECODER: Sequence[Row] = (
    *attention_rows(0, "SelfAttention", "self_attention"),
    norm_row(0, "pre_self_attention"),
)
CROSS: Sequence[Row] = (
    *attention_rows(1, "EncDecAttention", "encoder_decoder_attention"),
    *(norm_row(1, "pre_cross_attention"), norm_row(2, "pre_mlp")),
)
ALONE: Sequence[Row] = (("layer_001/NORM/scale", "pre_mlp_layer_norm/scale", "", "embed"),)
"""What a decoder-only block has instead of CROSS."""


def t5(size: Size, version: Literal["1.0", "1.1"], biases: Literal["shared", "per layer"]) -> list[Parameter]:
    """An encoder and a decoder. 1.0: one `wi`, logits by the embedding; 1.1: `wi_0`, `wi_1`, logits."""
    gated = version == "1.1"
    norms = ("rms_norm", "rms_norm") if gated else ("layer_norm", "final_layer_norm")
    found = [
        Parameter("shared/embedding", "token_embedder/embedding", "shared.weight", axes(size, "vocab embed")),
        *tower(size, "encoder", "encoder", [*ENCODER, *mlp_rows(1, gated)], norms, biases == "shared"),
        *tower(
            size, "decoder", "decoder", [*DECODER, *CROSS, *mlp_rows(2, gated)], norms, biases == "shared"
        ),
    ]
    if gated:
        found.append(logits(size, "decoder"))
    return found


def decoder_only(size: Size, biases: Literal["shared", "per layer"]) -> list[Parameter]:
    """A Mesh TensorFlow `transformer`: one tower, with an embedding of its own. T5X calls it `decoder`."""
    rows = [*DECODER, *ALONE, *mlp_rows(1, gated=False)]
    norms = ("layer_norm", "final_layer_norm")
    return [
        Parameter("transformer/embedding", "decoder/token_embedder/embedding", "", axes(size, "vocab embed")),
        *tower(size, "transformer", "decoder", rows, norms, biases == "shared"),
        logits(size, "transformer"),
    ]


def mlp_rows(sublayer: int, gated: bool) -> list[Row]:
    mesh, hugging_face = f"layer_00{sublayer}/DenseReluDense", f"layer.{sublayer}.DenseReluDense"
    inputs = ("wi_0", "wi_1") if gated else ("wi",)
    return [
        *((f"{mesh}/{wi}/kernel", f"mlp/{wi}/kernel", f"{hugging_face}.{wi}", "embed mlp") for wi in inputs),
        (f"{mesh}/wo/kernel", "mlp/wo/kernel", f"{hugging_face}.wo", "mlp embed"),
    ]


def tower(
    size: Size, mesh: str, t5x: str, rows: Sequence[Row], norms: tuple[str, str], shared: bool
) -> Iterator[Parameter]:
    """One tower; `norms` is what it calls the norm of a layer, and the last one."""
    for n in range(size.layers):
        for name, ours, theirs, names in rows:
            yield Parameter(
                f"{mesh}/block_{n:03}/{name.replace('NORM', norms[0])}",
                f"{t5x}/layers_{n}/{ours}",
                f"{t5x}.block.{n}.{theirs}.weight",
                axes(size, names),
            )
    for n in range(1 if shared else size.layers):
        yield Parameter(
            f"{mesh}/block_{n:03}/layer_000/SelfAttention/relative_attention_bias",
            f"{t5x}/relpos_bias/rel_embedding" if shared else f"{t5x}/layers_{n}/relpos_bias/rel_embedding",
            f"{t5x}.block.{n}.layer.0.SelfAttention.relative_attention_bias.weight",
            axes(size, "heads buckets"),
        )
    yield Parameter(
        f"{mesh}/{norms[1]}/scale", f"{t5x}/{t5x}_norm/scale", f"{t5x}.final_layer_norm.weight", (size.embed,)
    )


def logits(size: Size, tower: str) -> Parameter:
    shape = axes(size, "embed vocab")
    return Parameter(f"{tower}/logits/kernel", "decoder/logits_dense/kernel", "lm_head.weight", shape)


def axes(size: Size, names: str) -> tuple[int, ...]:
    return tuple(getattr(size, name) for name in names.split())


# --- listings -------------------------------------------------------------------------------------


def spec(shape: Sequence[int], dtype: str = "float32") -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def mesh_variables(parameters: Sequence[Parameter], slots: Slots, dtype: str = "float32") -> Listing:
    """The variables of the TensorFlow checkpoint; slots are float32 whatever the parameters are."""
    listing = {"global_step": "int64[]"}
    for p in parameters:
        listing[p.mesh] = spec(p.shape, dtype)
        if slots == "factored" and len(p.shape) == 2:
            listing[f"{p.mesh}_slot_vr"] = spec(p.shape[:1])
            listing[f"{p.mesh}_slot_vc"] = spec(p.shape[1:])
        elif slots != "none":
            listing[f"{p.mesh}_slot_v"] = spec(p.shape)
    return listing


def train_state(parameters: Sequence[Parameter], slots: Slots, dtype: str = "float32") -> Listing:
    """What T5X has of the same model, unused slots included."""
    listing = {"state/step": "int32[]"}
    for p in parameters:
        listing[f"target/{p.t5x}"] = spec(p.shape, dtype)
        used = {} if slots == "none" else {"v": spec(p.shape)}
        if slots == "factored" and len(p.shape) == 2:
            used = {"v_row": spec(p.shape[:1]), "v_col": spec(p.shape[1:])}
        for name in ("m", "v", "v_row", "v_col") if used else ("m",):
            listing[f"state/param_states/{p.t5x}/{name}"] = used.get(name, DUMMY)
    return listing


def inference_state(parameters: Sequence[Parameter], dtype: str = "float32") -> Listing:
    return {"state/step": "int32[]", **{f"target/{p.t5x}": spec(p.shape, dtype) for p in parameters}}


def state_dict(parameters: Sequence[Parameter], dtype: str = "float32") -> Listing:
    """Hugging Face's names, as a file has them: tied ones are left out."""
    return {p.hugging_face: spec(p.hugging_face_shape, dtype) for p in parameters}
