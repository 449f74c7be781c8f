"""Checkpoints with the names and shapes of Llama 3.1, as sharded safetensors files with real headers.

Format: https://github.com/huggingface/safetensors (8 bytes of little-endian header length; JSON; then the
tensors' bytes).
Shapes: `config.json` of the published models. Imports no array library: see `measure.run_once`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import prod, sqrt
from pathlib import Path

Shape = tuple[int, ...]
ITEM_BYTES = {"BF16": 2, "F32": 4}


@dataclass(frozen=True)
class Llama:
    """A model by its sizes."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embed: int
    mlp: int
    vocab: int
    shards: int
    """Number of files of the published checkpoint."""

    def settings(self) -> list[str]:
        """Options that give these sizes to the packaged recipe."""
        params = {
            "num_layers": self.layers,
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }
        return [word for name, value in params.items() for word in ("--set", f"{name}={value}")]


LLAMA_8B = Llama(32, 32, 8, 128, 4096, 14336, 128256, 4)
LLAMA_405B = Llama(126, 128, 8, 128, 16384, 53248, 128256, 191)


def shapes(model: Llama) -> dict[str, Shape]:
    """Every tensor of the Hugging Face checkpoint, in its order."""
    query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj": (query, model.embed),
        "self_attn.k_proj": (kv, model.embed),
        "self_attn.v_proj": (kv, model.embed),
        "self_attn.o_proj": (model.embed, query),
        "mlp.gate_proj": (model.mlp, model.embed),
        "mlp.up_proj": (model.mlp, model.embed),
        "mlp.down_proj": (model.embed, model.mlp),
        "input_layernorm": (model.embed,),
        "post_attention_layernorm": (model.embed,),
    }
    return {
        "model.embed_tokens.weight": (model.vocab, model.embed),
        **{f"model.layers.{i}.{name}.weight": s for i in range(model.layers) for name, s in layer.items()},
        "model.norm.weight": (model.embed,),
        "lm_head.weight": (model.vocab, model.embed),
    }


def shrunken(model: Llama, nbytes: int, dtype: str) -> Llama:
    """The same layers and heads, every width in proportion, of about `nbytes` in all."""
    whole = sum(prod(shape) for shape in shapes(model).values()) * ITEM_BYTES[dtype]
    head_dim = max(2, 2 * round(model.head_dim * sqrt(nbytes / whole) / 2))
    return replace(
        model,
        head_dim=head_dim,
        embed=model.embed * head_dim // model.head_dim,
        mlp=model.mlp * head_dim // model.head_dim,
        vocab=model.vocab * head_dim // model.head_dim,
    )


@dataclass(frozen=True)
class File:
    """One safetensors file, planned."""

    name: str
    header: bytes
    """Length prefix included: the first tensor's bytes follow."""
    offsets: Mapping[str, int]
    """Where each tensor's bytes begin, from the beginning of the file."""
    nbytes: int


def tensor_file(name: str, tensors: Mapping[str, Shape], dtype: str) -> File:
    """The header and the places of the tensors, one after another."""
    ends = list(accumulate(prod(shape) * ITEM_BYTES[dtype] for shape in tensors.values()))
    starts = dict(zip(tensors, [0, *ends], strict=False))
    entries = {
        key: {"dtype": dtype, "shape": shape, "data_offsets": [starts[key], end]}
        for (key, shape), end in zip(tensors.items(), ends, strict=True)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return File(
        name, header, {key: len(header) + start for key, start in starts.items()}, len(header) + ends[-1]
    )


def files(model: Llama, dtype: str) -> list[File]:
    """The shards of a model, about equal in size, named as Hugging Face does."""
    table = shapes(model)
    ends = accumulate(prod(shape) for shape in table.values())
    whole = sum(prod(shape) for shape in table.values())
    places = [(key, (end - 1) * model.shards // whole) for key, end in zip(table, ends, strict=True)]
    parts = [[key for key, _ in group] for _, group in groupby(places, lambda place: place[1])]
    return [
        tensor_file(f"model-{i:05}-of-{len(parts):05}.safetensors", {key: table[key] for key in part}, dtype)
        for i, part in enumerate(parts, 1)
    ]


def write_sparse(directory: Path, shards: Iterable[File]) -> None:
    """Real headers and index; data of the right size that is all holes."""
    directory.mkdir()
    index: dict[str, str] = {}
    for shard in shards:
        with open(directory / shard.name, "wb") as stream:
            stream.write(shard.header)
            stream.truncate(shard.nbytes)
        index |= dict.fromkeys(shard.offsets, shard.name)
    document = {"metadata": {}, "weight_map": index}
    (directory / "model.safetensors.index.json").write_text(json.dumps(document))


@dataclass(frozen=True)
class Planted:
    """One element of a tensor, and where the scanned layout of `@hf-llama3-to-jax` has it."""

    name: str
    at: Shape
    key: str
    found_at: Shape


def plantings(model: Llama) -> Iterator[Planted]:
    """Elements in the first, a middle and the last layer, and one outside the layers."""
    d, e = model.head_dim, model.embed
    for i in (0, model.layers // 2, model.layers - 1):
        source, target = f"model.layers.{i}", "params/decoder/layers"
        h, j, x = (i + 1) % model.kv_heads, (7 * i + 3) % d, (11 * i + 5) % e
        attention = f"{target}/self_attention"
        row = h * d + j
        yield Planted(f"{source}.self_attn.k_proj.weight", (row, x), f"{attention}/key/kernel", (i, x, h, j))
        yield Planted(
            f"{source}.self_attn.v_proj.weight", (row, x), f"{attention}/value/kernel", (i, x, h, j)
        )
        norm = f"{target}/pre_self_attention_layer_norm/scale"
        yield Planted(f"{source}.input_layernorm.weight", (x,), norm, (i, x))
    i, last = model.layers - 1, (model.heads * d - 1, e - 1)
    query = f"{attention}/query/kernel"
    yield Planted(f"{source}.self_attn.q_proj.weight", last, query, (i, e - 1, model.heads - 1, d - 1))
    yield Planted(
        f"{source}.self_attn.o_proj.weight",
        (1, last[0]),
        f"{attention}/out/kernel",
        (i, model.heads - 1, d - 1, 1),
    )
    wo, wi = f"{target}/mlp/wo/kernel", f"{target}/mlp/wi_0/kernel"
    yield Planted(f"{source}.mlp.down_proj.weight", (2, model.mlp - 1), wo, (i, model.mlp - 1, 2))
    yield Planted(f"{source}.mlp.gate_proj.weight", (model.mlp - 1, 3), wi, (i, 3, model.mlp - 1))
    yield Planted("model.norm.weight", (e - 1,), "params/decoder/decoder_norm/scale", (e - 1,))


def plant(directory: Path, model: Llama, dtype: str) -> None:
    """Write 1.0 at every planting, little-endian."""
    one = {"BF16": b"\x80\x3f", "F32": b"\x00\x00\x80\x3f"}[dtype]
    table = shapes(model)
    shards = {key: shard for shard in files(model, dtype) for key in shard.offsets}
    for planted in plantings(model):
        shard, shape = shards[planted.name], table[planted.name]
        element = planted.at[0] if len(shape) == 1 else planted.at[0] * shape[1] + planted.at[1]
        with open(directory / shard.name, "r+b") as stream:
            stream.seek(shard.offsets[planted.name] + element * ITEM_BYTES[dtype])
            stream.write(one)
