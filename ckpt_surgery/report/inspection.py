"""Result of `inspect`, what is unusual about it, often traces of a failed training run, and its document."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC
from typing import Annotated, Any, Final, Literal

from ckpt_surgery.core import history as recorded
from ckpt_surgery.core.arguments import SortBy
from ckpt_surgery.core.documents import NAMED, UNSET, Document, Keyed, Number, Versioned, shape_and_dtype
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.history import Origin, PastRecipe
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.shardings import sharding_summary
from ckpt_surgery.core.summary import Represented, Summary
from ckpt_surgery.core.text import brief, chosen_text
from ckpt_surgery.report import tree
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.values import Values, shared_texts

NAN: Final = "nan"
INFINITE: Final = "inf"
ZEROS: Final = "zeros"
MIXED_DTYPES: Final = "mixed dtypes"
What = Literal["nan", "inf", "zeros", "mixed dtypes"]

_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True)
class Unusual:
    """Leaves that have something unusual in common."""

    what: What
    """`nan` or `inf` (an element is), `zeros` (all elements are), or `mixed dtypes` (the leaves have several,
    though their keys differ in indices only)."""
    leaves: tuple[Leaf, ...]
    """In the order of the listing."""

    __repr__ = brief


def unusual(leaves: Iterable[Leaf], statistics: Mapping[str, Statistics | Unread]) -> tuple[Unusual, ...]:
    """Unusual values, from the statistics of these leaves; empty if there are none."""
    groups: dict[What, list[Leaf]] = {NAN: [], INFINITE: [], ZEROS: []}
    alike: dict[str, list[tuple[Leaf, str]]] = defaultdict(list)
    for leaf in leaves:
        if leaf.spec is None:
            continue
        alike[_DIGITS.sub("0", leaf.key.text)].append((leaf, leaf.spec.dtype.name))
        stats = statistics.get(leaf.key.text)
        if isinstance(stats, Statistics):
            zeros = (stats.minimum, stats.maximum, stats.nan, stats.inf) == (0, 0, 0, 0)
            # A counter that is 0 is nothing unusual.
            is_zeros = zeros and leaf.kind is LeafKind.ARRAY and leaf.spec.ndim > 0
            for applies, some in zip((stats.nan, stats.inf, is_zeros), groups.values(), strict=True):
                if applies:
                    some.append(leaf)
    found = [Unusual(what, tuple(some)) for what, some in groups.items() if some]
    mixed = ([leaf for leaf, _ in some] for some in alike.values() if len({name for _, name in some}) > 1)
    return (*found, *(Unusual(MIXED_DTYPES, tuple(some)) for some in mixed))


@dataclass(frozen=True, repr=False)
class Inspection(Represented):
    """Result of `inspect`."""

    path: str
    """Path as the caller gave it."""
    format: str
    """Name of the format."""
    step: int | None
    """The step that was chosen; None where the checkpoint is not one of several steps."""
    item: str | None
    """The item that was chosen; None where the checkpoint is not composite."""
    metadata: Mapping[str, Any]
    """The user's custom metadata."""
    leaves: tuple[Leaf, ...]
    """Leaves that were asked for, in the checkpoint's order, or sorted."""
    statistics: Mapping[str, Statistics | Unread] | None = None
    """Statistics by key text, of every leaf with an array; None where no values were read."""
    values: Values = field(default_factory=dict)
    """Values by key text, of the first arrays without axes."""
    others: int = 0
    """Number of leaves that were not asked for."""
    choices: Choices = field(default_factory=Choices)
    """The steps and items that there are."""
    depth: int | None = None
    """Number of components of the longest keys of subtrees; None: any."""
    sort: SortBy | None = None
    """Sort order of the leaves; None: the checkpoint's own."""
    warnings: tuple[str, ...] = ()
    """Warnings about probable mistakes in the checkpoint, or beside it."""
    history: recorded.History | None = None
    """Origin, where this tool made it; None where nothing says so."""

    @property
    def parameters(self) -> int:
        """Number of the model's parameters: elements of all arrays but optimizer states and counters."""
        return tree.parameters(self.leaves)

    @property
    def subtrees(self) -> tuple[tree.SubtreeTotal, ...]:
        """The number of leaves, of elements and of bytes below each part of a key with `depth` components."""
        return tree.subtrees(self.leaves, self.depth)

    @property
    def unusual(self) -> tuple[Unusual, ...] | None:
        """Leaves with NaN or infinities, of zeros alone, or of mixed dtypes; None without statistics."""
        return None if self.statistics is None else unusual(self.leaves, self.statistics)

    def _summary(self) -> Summary:
        about = f"{self.path} ({chosen_text(self.format, self.step, self.item)})"
        texts = shared_texts(self.leaves, self.values)
        return tree.listing_summary(about, self.leaves, texts, self.others, self.warnings)


@dataclass(frozen=True, kw_only=True)
class Histogram(Document):
    """Bin i holds the values from start + i·width to start + (i + 1)·width."""

    start: Number
    """Lower edge of the first bin."""
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
    """Kind of the leaf."""
    type: str | None = UNSET
    """Type of an object of a tree in memory that no checkpoint holds."""
    chunks: tuple[int, ...] | None
    """Shape of the chunks that it is stored in."""
    stored_as: str | None = UNSET
    """Type of the format's own that it is stored in, such as Q4_K of GGUF, where that is not `dtype`."""
    sharding: Mapping[str, Any] | None
    """Sharding over the devices that it was saved from."""
    value: Any = UNSET
    """Value of a string or of a number."""
    unread: str | None = UNSET
    """The reason why its value could not be read."""
    min: Number | None = UNSET
    """With `--stats`: the smallest finite element."""
    max: Number | None = UNSET
    """With `--stats`: the largest."""
    mean: Number | None = UNSET
    """With `--stats`: the mean of the finite elements."""
    std: Number | None = UNSET
    """With `--stats`: their standard deviation."""
    nan: int | None = UNSET
    """With `--stats`: number of elements that are NaN."""
    inf: int | None = UNSET
    """With `--stats`: number of infinite ones."""
    histogram: Histogram | None = UNSET
    """With `--stats`: distribution of the finite elements."""


@dataclass(frozen=True, kw_only=True)
class UnusualLeaves(Document):
    """Leaves that have something unusual in common."""

    what: What
    """Property that they share."""
    keys: tuple[str, ...]
    """Their keys."""


@dataclass(frozen=True, kw_only=True)
class History(Document):
    """Origin of a checkpoint that ckpt-surgery made."""

    recipes: tuple[PastRecipe, ...]
    """The recipes that it went through, the latest last."""
    sources: tuple[Origin, ...]
    """Checkpoints that the last run made it from."""
    version: str | None
    """Version of ckpt-surgery that made it."""
    written: str | None
    """Time of the file that records it, in UTC; null in a bucket."""
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
    """Metadata that the checkpoint holds beside its leaves."""
    dtypes: Mapping[str, tree.DtypeTotal]
    """Totals by type of elements."""
    subtrees: tuple[tree.SubtreeTotal, ...]
    """Totals by subtree."""
    leaves: tuple[ListedLeaf, ...]
    """Every leaf."""
    unusual: tuple[UnusualLeaves, ...] | None
    """With `--stats`: unusual leaves; else null."""
    warnings: tuple[str, ...]
    """Possible mistakes in the checkpoint, or around it."""
    history: History | None = UNSET
    """Origin, where ckpt-surgery made it."""


def inspect_document(inspection: Inspection) -> InspectDocument:
    """The JSON document of `inspect`. A leaf that cannot be read has the reason, `unread`, and no numbers."""
    history, written = inspection.history, None
    if history is not None and history.written is not None:
        written = history.written.astimezone(UTC).isoformat("T", "seconds")
    unusual = [
        UnusualLeaves(what=one.what, keys=tuple([leaf.key.text for leaf in one.leaves]))
        for one in inspection.unusual or ()
    ]
    return InspectDocument.from_attributes(
        inspection,
        steps=inspection.choices.steps,
        unfinished_steps=inspection.choices.unfinished,
        items=inspection.choices.items,
        bytes=sum(leaf.nbytes for leaf in inspection.leaves),
        dtypes=tree.dtype_totals(inspection.leaves),
        leaves=tuple([_listed(leaf, inspection) for leaf in inspection.leaves]),
        unusual=None if inspection.unusual is None else tuple(unusual),
        history=UNSET if history is None else History.from_attributes(history, written=written),
    )


def _listed(leaf: Leaf, inspection: Inspection) -> ListedLeaf:
    shape, dtype = shape_and_dtype(leaf)
    value: Any = inspection.values.get(leaf.key.text) if leaf.string is None else leaf.string
    stats = (inspection.statistics or {}).get(leaf.key.text)
    reasons = [one.why for one in (stats, value) if isinstance(one, Unread)]
    if leaf.stored_type is not None and leaf.unreadable is not None:
        reasons.append(f"it {leaf.unreadable.why}")
    numbers: dict[str, Any] = {}
    if isinstance(stats, Statistics):
        numbers = {"min": stats.minimum, "max": stats.maximum, "mean": stats.mean, "std": stats.std}
        numbers |= {"nan": stats.nan, "inf": stats.inf}
        numbers["histogram"] = Histogram.from_attributes(stats.histogram)
    if isinstance(value, Unread):
        value = None
    optional = {"type": leaf.type, "stored_as": leaf.stored_type, "value": value}
    optional["unread"] = reasons[0] if reasons else None
    return ListedLeaf(
        leaf.key.text,
        leaf.key.names,
        shape=shape,
        dtype=dtype,
        bytes=leaf.nbytes,
        kind=leaf.kind,
        chunks=None if leaf.manifest is None else leaf.manifest.chunk_shape,
        sharding=None if leaf.sharding is None else sharding_summary(leaf.sharding),
        **{name: member for name, member in optional.items() if member is not None},
        **numbers,
    )
