"""Synthetic checkpoints, written by stock Orbax: `python -m benchmarks.checkpoints KIND PATH SIZE`."""

import sys
from pathlib import Path

import numpy as np


def many_leaves(count: int) -> dict[str, object]:
    """A tree of `count` small float32 leaves, named as a transformer's."""
    names = (
        "attention/query",
        "attention/key",
        "attention/value",
        "attention/out",
        "mlp/wi",
        "mlp/wo",
        "norm1",
        "norm2",
    )
    tree: dict[str, object] = {}
    for i in range(count):
        layer, name = divmod(i, len(names))
        group, part = [*names[name].split("/"), "kernel"][:2]
        tree[f"layer_{layer}.{group}.{part}"] = np.full((4, 4), i, np.float32)
    return tree


def large_leaves(nbytes: int) -> dict[str, object]:
    """A tree of float32 matrices of 64 MiB (4096 × 4096) of random numbers, `nbytes` in all."""
    generator = np.random.default_rng(0)
    count = max(1, nbytes // (64 << 20))
    layers = {
        f"layer_{i}": {"kernel": generator.standard_normal((4096, 4096), np.float32)} for i in range(count)
    }
    return {"params": layers}


def nested(flat: dict[str, object]) -> dict[str, object]:
    """Dots become levels."""
    tree: dict[str, object] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})  # type: ignore[assignment]
        node[last] = value
    return {"params": tree}


def build(kind: str, path: Path, size: int) -> None:
    """Save one with a stock PyTreeCheckpointer: `leaves` of that many leaves, `bytes` of that many bytes."""
    import orbax.checkpoint as ocp

    tree = nested(many_leaves(size)) if kind == "leaves" else large_leaves(size)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]).absolute(), int(sys.argv[3]))
