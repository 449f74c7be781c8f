"""What is unusual about the values of a checkpoint: often the traces of a training run that went wrong."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import brief
from ckpt_surgery.report.leaves import Statistics, Unread

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
    """What is unusual, from the statistics of these leaves; nothing, where nothing is."""
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
