"""Synthetic checkpoints: `python -m benchmarks.checkpoints KIND PATH SIZE [SEED]`.

`leaves` (SIZE leaves) and `matrices` (SIZE bytes) are written by stock Orbax; `llama`, `tensor` and `parts`
(SIZE bytes each) are safetensors, written block by block, so that the largest of them needs little memory.
"""

import sys
from math import prod
from pathlib import Path
from typing import BinaryIO

import ml_dtypes
import numpy as np

from benchmarks.llama import LLAMA_8B, Shape, files, shapes, shrunken, tensor_file, write_sparse
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.opening import open_sink
from ckpt_surgery.formats.registry import SinkOptions

NAMES = (
    "attention/query",
    "attention/key",
    "attention/value",
    "attention/out",
    "mlp/wi",
    "mlp/wo",
    "norm1",
    "norm2",
)
BLOCK = 1 << 24
"""Elements of random numbers that are in memory at a time."""

Tree = dict[str, object]


def many_leaves(count: int) -> Tree:
    """A tree of `count` small float32 leaves, named as a transformer's."""
    params: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for i in range(count):
        layer, name = divmod(i, len(NAMES))
        group, _, part = NAMES[name].partition("/")
        module = params.setdefault(f"layer_{layer}", {}).setdefault(group, {})
        module[part or "scale"] = np.full((4, 4), i, np.float32)
    return {"params": params}


def matrices(nbytes: int, seed: int) -> Tree:
    """float32 matrices of random numbers, `nbytes` in all: eight or more, of 64 MiB (4096 × 4096) at most."""
    generator = np.random.default_rng(seed)
    side = 4096
    while nbytes < 8 * 4 * side**2 and side > 8:
        side //= 2
    count = max(1, nbytes // (4 * side**2))
    return {
        "params": {
            f"layer_{i}": {"kernel": generator.standard_normal((side, side), np.float32)}
            for i in range(count)
        }
    }


def save_orbax(path: Path, tree: Tree) -> None:
    """As training does, from JAX arrays: NumPy's would be held in memory a third time."""
    import jax
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, jax.tree.map(jax.device_put, tree))


def write_random(stream: BinaryIO, count: int, dtype: np.dtype, generator: np.random.Generator) -> None:
    """`count` normally distributed numbers."""
    for start in range(0, count, BLOCK):
        block = generator.standard_normal(min(BLOCK, count - start), np.float32)
        stream.write(block.astype(dtype, copy=False).tobytes())


def write_tensors(path: Path, tensors: dict[str, Shape]) -> None:
    """One safetensors file of float32."""
    generator = np.random.default_rng(0)
    with open(path, "wb") as stream:
        stream.write(tensor_file(path.name, tensors, "F32").header)
        write_random(stream, sum(map(prod, tensors.values())), np.dtype(np.float32), generator)


def write_llama(directory: Path, nbytes: int, seed: int) -> None:
    """Llama 3.1 8B in bfloat16, at a width at which it has about `nbytes`."""
    model = shrunken(LLAMA_8B, nbytes, "BF16")
    shards = files(model, "BF16")
    write_sparse(directory, shards)
    generator, table = np.random.default_rng(seed), shapes(model)
    for shard in shards:
        with open(directory / shard.name, "r+b") as stream:
            stream.seek(len(shard.header))
            count = sum(prod(table[key]) for key in shard.offsets)
            write_random(stream, count, np.dtype(ml_dtypes.bfloat16), generator)


def write_holes(path: Path, format: str, nbytes: int) -> None:
    """One file of a format with 300 bfloat16 tensors, `nbytes` in all: real headers, and holes for data."""
    side = int((nbytes / 300 / 2) ** 0.5)
    spec = ArraySpec((side, side), np.dtype(ml_dtypes.bfloat16))
    keys = [Key.parse(f"model/layers_{i // 6}/{'qkvoud'[i % 6]}/kernel") for i in range(300)]
    outputs = [Output(Leaf(key, LeafKind.ARRAY, spec), spec.shape) for key in keys]
    open_sink(format, path.parent, SinkOptions(file_name=path.name), outputs).create()


def build(kind: str, path: Path, size: int, seed: int = 0) -> None:
    """Write one checkpoint of the kind; see the head of this module."""
    if kind == "leaves":
        save_orbax(path, many_leaves(size))
    elif kind == "matrices":
        save_orbax(path, matrices(size, seed))
    elif kind == "llama":
        write_llama(path, size, seed)
    elif kind in ("safetensors", "flax"):
        write_holes(path, kind, size)
    elif kind == "tensor":
        side = int((size // 4) ** 0.5)
        write_tensors(path, {"w": (side, side)})
    elif kind == "parts":
        side = int((size // 32) ** 0.5)
        write_tensors(path, {f"w{i}": (side, side) for i in range(8)})
    else:
        raise ValueError(f"no kind of checkpoint is called {kind}")


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]).absolute(), *map(int, sys.argv[3:]))
