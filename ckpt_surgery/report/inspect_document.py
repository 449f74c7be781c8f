"""The JSON document of `inspect`."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC
from typing import Annotated, Any

from ckpt_surgery.core import history
from ckpt_surgery.core.documents import NAMED, UNSET, Document, Keyed, Number, Versioned, shape_and_dtype
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.history import Origin, PastRecipe
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.shardings import sharding_summary
from ckpt_surgery.report.inspection import Inspection, What
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.scalars import Values
from ckpt_surgery.report.tree import DtypeTotal, SubtreeTotal, dtype_totals


@dataclass(frozen=True, kw_only=True)
class Histogram(Document):
    """Bin i holds the values from start + i·width to start + (i + 1)·width."""

    start: Number
    """Where the first bin begins."""
    width: Number
    """Width of each bin."""
    counts: tuple[int, ...]
    """Number of elements in each bin."""


@frozen()
class ListedLeaf(Keyed):
    """A leaf of a checkpoint."""

    _: KW_ONLY
    shape: tuple[int, ...] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""
    bytes: int
    """Size of the array."""
    kind: Annotated[LeafKind, NAMED]
    """What it is."""
    type: str | None = UNSET
    """Type of an object of a tree in memory that no checkpoint holds."""
    chunks: tuple[int, ...] | None
    """Shape of the chunks that it is stored in."""
    stored_as: str | None = UNSET
    """Type of the format's own that it is stored in, such as Q4_K of GGUF, where that is not `dtype`."""
    sharding: Mapping[str, Any] | None
    """How it was spread over devices."""
    value: Any = UNSET
    """Value of a string or of a number."""
    unread: str | None = UNSET
    """Why its value could not be read."""
    min: Number | None = UNSET
    """With `--stats`: the smallest finite element."""
    max: Number | None = UNSET
    """With `--stats`: the largest."""
    mean: Number | None = UNSET
    """With `--stats`: the mean of the finite elements."""
    std: Number | None = UNSET
    """With `--stats`: their standard deviation."""
    nan: int | None = UNSET
    """With `--stats`: how many elements are NaN."""
    inf: int | None = UNSET
    """With `--stats`: how many are infinite."""
    histogram: Histogram | None = UNSET
    """With `--stats`: how the finite elements are distributed."""


@dataclass(frozen=True, kw_only=True)
class UnusualLeaves(Document):
    """Leaves that have something unusual in common."""

    what: What
    """What it is."""
    keys: tuple[str, ...]
    """Their keys."""


@dataclass(frozen=True, kw_only=True)
class History(Document):
    """How the checkpoint was made by ckpt-surgery."""

    recipes: tuple[PastRecipe, ...]
    """The recipes that it went through, the latest last."""
    sources: tuple[Origin, ...]
    """What the last run made it from."""
    version: str | None
    """Version of ckpt-surgery that made it."""
    written: str | None
    """When, by the time of the file that records it, in UTC; null in a bucket."""
    config: tuple[str, ...]
    """Names of the entries of the config that is recorded in it."""


@dataclass(frozen=True, kw_only=True)
class InspectDocument(Versioned):
    """`inspect`."""

    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """Step inside a CheckpointManager's directory."""
    item: str | None
    """Item of that step."""
    steps: tuple[int, ...]
    """All steps of that directory."""
    unfinished_steps: tuple[int, ...]
    """Steps whose writing was not completed."""
    items: tuple[str, ...]
    """All items of the step."""
    bytes: int
    """Size of all listed arrays."""
    parameters: int
    """Number of parameters."""
    others: int
    """Number of leaves that `--match` and `--under` leave out."""
    metadata: Mapping[str, Any]
    """What else the checkpoint holds."""
    dtypes: Mapping[str, DtypeTotal]
    """Totals by type of elements."""
    subtrees: tuple[SubtreeTotal, ...]
    """Totals by subtree."""
    leaves: tuple[ListedLeaf, ...]
    """Every leaf."""
    unusual: tuple[UnusualLeaves, ...] | None
    """With `--stats`: what is unusual; else null."""
    warnings: tuple[str, ...]
    """What may be a mistake in the checkpoint, or around it."""
    history: History | None = UNSET
    """How it was made, where ckpt-surgery made it."""


def inspect_document(found: Inspection) -> InspectDocument:
    """The JSON document of `inspect`: every leaf, sizes in bytes.

    A leaf that could not be read has the reason as `unread`, in place of numbers.
    """
    unusual = [
        UnusualLeaves(what=one.what, keys=tuple([leaf.key.text for leaf in one.leaves]))
        for one in found.unusual or ()
    ]
    return InspectDocument.from_attributes(
        found,
        steps=found.choices.steps,
        unfinished_steps=found.choices.unfinished,
        items=found.choices.items,
        bytes=sum(leaf.nbytes for leaf in found.leaves),
        dtypes=dtype_totals(found.leaves),
        leaves=tuple([_listed(leaf, found) for leaf in found.leaves]),
        unusual=None if found.unusual is None else tuple(unusual),
        history=UNSET if found.history is None else _history(found.history),
    )


def _listed(leaf: Leaf, found: Inspection) -> ListedLeaf:
    shape, dtype = shape_and_dtype(leaf)
    more = {
        **_stored(leaf),
        **_value(leaf, found.values),
        **_statistics((found.statistics or {}).get(leaf.key.text)),
    }
    return ListedLeaf(
        leaf.key.text,
        leaf.key.names,
        shape=shape,
        dtype=dtype,
        bytes=leaf.nbytes,
        kind=leaf.kind,
        type=UNSET if leaf.type is None else leaf.type,
        chunks=None if leaf.manifest is None else leaf.manifest.chunk_shape,
        sharding=None if leaf.sharding is None else sharding_summary(leaf.sharding),
        **more,
    )


def _stored(leaf: Leaf) -> dict[str, Any]:
    """The quantized type that an array is stored in, and why it is not read where that is so."""
    if leaf.stored_type is None:
        return {}
    why = {} if leaf.unreadable is None else {"unread": f"it {leaf.unreadable.why}"}
    return {"stored_as": leaf.stored_type, **why}


def _value(leaf: Leaf, values: Values) -> dict[str, Any]:
    """The value of a string, and of a number that was read."""
    if leaf.string is not None:
        return {"value": leaf.string}
    value = values.get(leaf.key.text)
    if value is None:
        return {}
    return {"unread": value.why} if isinstance(value, Unread) else {"value": value}


def _statistics(stats: Statistics | Unread | None) -> dict[str, Any]:
    if stats is None:
        return {}
    if isinstance(stats, Unread):
        return {"unread": stats.why}
    numbers = {"min": stats.minimum, "max": stats.maximum, "mean": stats.mean, "std": stats.std}
    return {
        **numbers,
        "nan": stats.nan,
        "inf": stats.inf,
        "histogram": Histogram.from_attributes(stats.histogram),
    }


def _history(found: history.History) -> History:
    written = None if found.written is None else found.written.astimezone(UTC).isoformat("T", "seconds")
    return History.from_attributes(found, written=written)
