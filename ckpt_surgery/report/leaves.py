"""Leaves and listings in words and as JSON: the report of `inspect`, and the descriptions in all reports."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.documents import JSON_SCHEMA, spec_json
from ckpt_surgery.core.folding import Fold, ShownKey, fold, unfolded
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.shardings import sharding_text

_SHORT_DTYPES = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}


@dataclass(frozen=True)
class LeafRow:
    """Leaves of a checkpoint whose keys differ in indices only."""

    key: str
    """Pattern, printable."""
    count: int
    spec: str
    nbytes: int
    """Size of all the leaves together."""
    sharding: str
    """Sharding in its short form; empty where there is none."""
    chunks: str
    """Chunk shape, element order and codec; empty where nothing is stored as chunks."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of the values of one leaf.

    The first four are over its finite elements, and None where it has none; `nan` and `inf` count elements.
    """

    minimum: float | None
    """Smallest element."""
    maximum: float | None
    """Largest element."""
    mean: float | None
    """Arithmetic mean."""
    std: float | None
    """Population standard deviation."""
    nan: int
    """Number of elements that are NaN."""
    inf: int
    """Number of elements that are infinite."""


@dataclass(frozen=True)
class Unread:
    """A leaf with an array that has no statistics."""

    why: str
    """`it is an array of byte strings`."""
    damaged: bool
    """Whether reading failed, because bytes are missing or damaged; otherwise it is no array of numbers."""


class Described(Protocol):
    """What a listing says about the checkpoint as a whole."""

    @property
    def path(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def step(self) -> int | None: ...
    @property
    def item(self) -> str | None: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...


@functools.lru_cache(maxsize=4096)
def short_spec(spec: ArraySpec) -> str:
    """`bf16[2048,8192]`."""
    name = spec.dtype.name
    for long, short in _SHORT_DTYPES.items():
        if name.startswith(long):
            name = short + name.removeprefix(long)
            break
    return f"{name}[{','.join(map(str, spec.shape))}]"


def describe(leaf: Leaf) -> str:
    """A short description of a leaf: kind, dtype and shape."""
    spec = "" if leaf.spec is None else short_spec(leaf.spec)
    match leaf.kind:
        case LeafKind.ARRAY:
            return spec
        case LeafKind.PRNG_KEY:
            return f"prng_key({leaf.prng_impl}) {spec}"
        case LeafKind.EMPTY:
            return f"empty {leaf.empty}"
        case LeafKind.SCALAR:
            return f"scalar {spec.removesuffix('[]')}"
        case LeafKind.STRING:
            return "string"


def folded(entries: Sequence[ShownKey], full: bool) -> list[Fold]:
    return unfolded(entries) if full else fold(entries)


def leaf_rows(leaves: Iterable[Leaf], *, full: bool = False) -> list[LeafRow]:
    """The rows of a listing. Every leaf is in exactly one row; with `full` each has a row of its own."""
    listed = list(leaves)
    entries = [ShownKey(leaf.key.text, (), _look(leaf)) for leaf in listed]
    return [_leaf_row(listed[f.first], f.key, f.count) for f in folded(entries, full)]


def _look(leaf: Leaf) -> tuple[object, ...]:
    """Everything that a row says about a leaf but its key. Leaves share a row only where this is equal."""
    manifest = leaf.manifest
    stored = None if manifest is None else (manifest.chunk_shape, manifest.codec)
    return (describe(leaf), leaf.sharding, stored)


def _leaf_row(leaf: Leaf, key: str, count: int) -> LeafRow:
    sharding = "" if leaf.sharding is None else sharding_text(leaf.sharding)
    chunks = "" if leaf.manifest is None else chunks_text(leaf.manifest)
    return LeafRow(key, count, describe(leaf), leaf.nbytes * count, sharding, chunks)


def chunks_text(manifest: Manifest) -> str:
    """`[2048,2048] C zstd`: chunk shape, order of the elements inside a chunk, codec."""
    shape = ",".join(map(str, manifest.chunk_shape))
    return f"[{shape}] {manifest.codec.order} {manifest.codec.name}"


def inspect_json(
    source: Described, leaves: Sequence[Leaf], statistics: Mapping[str, Statistics | Unread] | None = None
) -> dict[str, Any]:
    """The JSON document of `inspect`: every leaf, sizes in bytes; `statistics` by key text.

    A leaf without statistics has the reason as `unread`, in place of numbers.
    """
    return {
        "schema": JSON_SCHEMA,
        "path": source.path,
        "format": source.format,
        "step": source.step,
        "item": source.item,
        "bytes": sum(leaf.nbytes for leaf in leaves),
        "metadata": dict(source.metadata),
        "leaves": [_leaf_json(leaf, statistics) for leaf in leaves],
    }


def _leaf_json(leaf: Leaf, statistics: Mapping[str, Statistics | Unread] | None) -> dict[str, Any]:
    listed = {
        "key": leaf.key.text,
        **spec_json(leaf),
        "bytes": leaf.nbytes,
        "kind": leaf.kind.value,
        "chunks": None if leaf.manifest is None else list(leaf.manifest.chunk_shape),
    }
    if statistics is None or leaf.key.text not in statistics:
        return listed
    stats = statistics[leaf.key.text]
    if isinstance(stats, Unread):
        return {**listed, "unread": stats.why}
    numbers = {"min": stats.minimum, "max": stats.maximum, "mean": stats.mean, "std": stats.std}
    return {**listed, **numbers, "nan": stats.nan, "inf": stats.inf}
