"""Leaves without a checkpoint, and listings of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest, raw_codec

FLOAT32 = np.dtype(np.float32)


def key(text: str) -> Key:
    """A key path from its parts joined with `/`; a part in brackets, as in `a/[0]/b`, is a list index."""
    names = text.split("/")
    return Key(tuple(n.strip("[]") for n in names), tuple(n.startswith("[") for n in names))


def array_leaf(text: str, shape: Shape = (2, 3), dtype: np.dtype[Any] = FLOAT32, **more: Any) -> Leaf:
    """An array of which no manifest is known; `more` are further fields of the leaf."""
    return Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec(shape, np.dtype(dtype)), **more)


def leaf(text: str, described: str = "float32[2,3]") -> Leaf:
    """A leaf from `dtype[shape]`, or from the name of a kind; `scalar:int64` is a scalar."""
    if described in ("string", "empty"):
        return Leaf(key(text), LeafKind(described), string="hello" if described == "string" else None)
    if described == "prng_key":
        return Leaf(
            key(text), LeafKind.PRNG_KEY, ArraySpec((2,), np.dtype(np.uint32)), prng_impl="threefry2x32"
        )
    if described.startswith("scalar:"):
        return Leaf(key(text), LeafKind.SCALAR, ArraySpec((), dtype_named(described.removeprefix("scalar:"))))
    dtype, _, shape = described.rstrip("]").partition("[")
    spec = ArraySpec(tuple(int(n) for n in shape.split(",") if n), dtype_named(dtype))
    return Leaf(key(text), LeafKind.ARRAY, spec, Manifest(spec, spec.shape, raw_codec(spec.ndim), {}))


def by_key(*leaves: Leaf) -> dict[str, Leaf]:
    """A listing: leaves by the text of their keys."""
    return {one.key.text: one for one in leaves}


def listing(leaves: Mapping[str, str] | Sequence[str]) -> dict[str, Leaf]:
    """Leaves by key: from names alone, or with descriptions, see `leaf`."""
    described = leaves if isinstance(leaves, Mapping) else dict.fromkeys(leaves, "float32[2,3]")
    return by_key(*(leaf(text, description) for text, description in described.items()))
