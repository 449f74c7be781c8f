"""Leaves and listings in words and as JSON: the report of `inspect`, and the descriptions in all reports."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.folding import Fold, ShownKey, fold, unfolded
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.shardings import sharding_text
from ckpt_surgery.core.text import number_of
from ckpt_surgery.report.histograms import NO_VALUES, Histogram

_SHORT_DTYPES = {"bfloat": "bf", "float": "f", "uint": "u", "int": "i", "complex": "c"}


@dataclass(frozen=True)
class Statistics:
    """Statistics of the values of one leaf.

    The first four are over its finite elements, and None where it has none; `nan` and `inf` count elements.
    Of complex numbers they are those of the magnitudes; a number with a part that is NaN or infinite is not
    finite.
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
    histogram: Histogram = NO_VALUES
    """Number of finite elements in each of a few bins."""


@dataclass(frozen=True)
class Unread:
    """A leaf with an array that has no statistics."""

    why: str
    """`it is an array of byte strings`."""
    damaged: bool
    """Whether reading failed, because bytes are missing or damaged; otherwise it is no array of numbers."""


@functools.lru_cache(maxsize=4096)
def short_spec(spec: ArraySpec) -> str:
    """`bf16[2048,8192]`."""
    return f"{short_dtype(spec.dtype.name)}[{','.join(map(str, spec.shape))}]"


def short_dtype(name: str) -> str:
    """`bf16` for `bfloat16`."""
    for long, short in _SHORT_DTYPES.items():
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name


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
        case LeafKind.OBJECT:
            return f"object {leaf.type}"


def folded(entries: Iterable[ShownKey], full: bool) -> list[Fold]:
    """Entries whose keys differ in indices only as one; with `full` each on its own."""
    return unfolded(entries) if full else fold(entries)


def look(leaf: Leaf, texts: Mapping[str, str]) -> tuple[object, ...]:
    """Everything that a row says about a leaf but its key. Leaves share a row only where this is equal."""
    manifest = leaf.manifest
    stored = None if manifest is None else (manifest.chunk_shape, manifest.codec)
    return (describe(leaf), leaf.sharding, stored, texts.get(leaf.key.text))


def stored_sharding(leaf: Leaf) -> str:
    """The sharding of a leaf in its short form; empty where there is none."""
    return "" if leaf.sharding is None else sharding_text(leaf.sharding)


def chunks_text(manifest: Manifest | None) -> str:
    """`[2048,2048] C zstd`: chunk shape, order of the elements inside a chunk, codec; or nothing."""
    if manifest is None:
        return ""
    shape = ",".join(map(str, manifest.chunk_shape))
    return f"[{shape}] {manifest.codec.order} {manifest.codec.name}"


def times_text(count: int, what: str) -> str:
    """`48 × f32[8]`; of several leaves without a description `48 leaves`."""
    if count == 1:
        return what
    return f"{count:,} × {what}" if what else number_of(count, "leaf")
