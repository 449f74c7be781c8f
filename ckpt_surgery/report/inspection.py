"""What `inspect` finds, and what is unusual about it: often traces of a training run that went wrong."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ckpt_surgery.core.arguments import SortBy
from ckpt_surgery.core.history import History
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.summary import Represented, Summary
from ckpt_surgery.core.text import brief, chosen_text
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.scalars import Values, shared_texts
from ckpt_surgery.report.tree import SubtreeTotal, listing_summary, parameters, subtrees

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
    listed = list(leaves)
    read = [(leaf, statistics.get(leaf.key.text)) for leaf in listed]
    known = [(leaf, stats) for leaf, stats in read if isinstance(stats, Statistics)]
    found: dict[What, list[Leaf]] = {
        NAN: [leaf for leaf, stats in known if stats.nan],
        INFINITE: [leaf for leaf, stats in known if stats.inf],
        ZEROS: [leaf for leaf, stats in known if _is_zeros(leaf, stats)],
    }
    told = [Unusual(what, tuple(which)) for what, which in found.items() if which]
    return (*told, *(Unusual(MIXED_DTYPES, tuple(which)) for which in _mixed(listed)))


def _is_zeros(leaf: Leaf, stats: Statistics) -> bool:
    """Whether an array with axes has elements, all of them 0. A counter that is 0 is nothing unusual."""
    has_axes = leaf.kind is LeafKind.ARRAY and leaf.spec is not None and leaf.spec.ndim > 0
    return has_axes and (stats.minimum, stats.maximum, stats.nan, stats.inf) == (0, 0, 0, 0)


def _mixed(leaves: Sequence[Leaf]) -> list[list[Leaf]]:
    """The leaves with keys that differ in indices only, and with several dtypes."""
    alike: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        if leaf.spec is not None:
            alike.setdefault(_DIGITS.sub("0", leaf.key.text), []).append(leaf)
    return [group for group in alike.values() if len(set(map(_dtype, group))) > 1]


def _dtype(leaf: Leaf) -> str:
    return "" if leaf.spec is None else leaf.spec.dtype.name


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
    history: History | None = None
    """How it was made by this tool; None where nothing says so."""

    @property
    def parameters(self) -> int:
        """Number of the model's parameters: elements of all arrays but optimizer states and counters."""
        return parameters(self.leaves)

    @property
    def stored_types(self) -> Mapping[str, str]:
        """Names of the quantized types, such as `Q4_K`, that leaves are stored in, by key text."""
        return {leaf.key.text: leaf.stored_type for leaf in self.leaves if leaf.stored_type is not None}

    @property
    def subtrees(self) -> tuple[SubtreeTotal, ...]:
        """The number of leaves, of elements and of bytes below each part of a key with `depth` components."""
        return subtrees(self.leaves, self.depth)

    @property
    def unusual(self) -> tuple[Unusual, ...] | None:
        """Leaves with NaN or infinities, of zeros alone, or of mixed dtypes; None without statistics."""
        return None if self.statistics is None else unusual(self.leaves, self.statistics)

    def _summary(self) -> Summary:
        about = f"{self.path} ({chosen_text(self.format, self.step, self.item)})"
        texts = shared_texts(self.leaves, self.values)
        return listing_summary(about, self.leaves, texts, self.others, self.warnings)
