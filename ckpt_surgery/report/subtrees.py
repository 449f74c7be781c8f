"""The largest subtrees of a plan, and where their bytes went: a picture for people."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.planner.plan import Plan, Transfer
from ckpt_surgery.planner.plan_json import DROPPED

MOST_SUBTREES = 12
"""Number of subtrees that a picture shows; the smallest ones of more become one."""

WAYS = {Transfer.LINK: "linked", Transfer.COPY: "copied", Transfer.COMPUTE: "computed"}
"""What happens to the bytes of an output, by its transfer."""
ALL_WAYS = (*WAYS.values(), DROPPED)


@dataclass(frozen=True)
class Share:
    """Bytes of one leaf, of a result or of what is dropped."""

    parts: tuple[str, ...]
    """The parts of the leaf's key: see `key_parts`."""
    way: str
    """One of ALL_WAYS."""
    nbytes: int


@dataclass(frozen=True)
class Subtree:
    """Leaves with a common beginning of their keys."""

    name: str
    """The beginning, with an ellipsis where it is not a whole key; `(others)` for the smallest subtrees."""
    leaves: int
    ways: Mapping[str, int]
    """Bytes by what happened to them."""

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves together."""
        return sum(self.ways.values())


@dataclass(frozen=True)
class _Group:
    """The leaves whose keys begin with the same `depth` components."""

    depth: int
    shares: Sequence[Share]

    @property
    def nbytes(self) -> int:
        return sum(share.nbytes for share in self.shares)

    def split(self) -> list["_Group"]:
        """The groups of one component more, in the order of the leaves. A key that ends here stays alone."""
        found: dict[str | None, list[Share]] = {}
        for share in self.shares:
            part = share.parts[self.depth : self.depth + 1]
            found.setdefault(part[0] if part else None, []).append(share)
        return [_Group(self.depth + (part is not None), shares) for part, shares in found.items()]

    def shown(self) -> Subtree:
        parts = self.shares[0].parts
        name = "".join(parts[: self.depth]) + ("" if len(parts) == self.depth else "…")
        ways: Counter[str] = Counter()
        for share in self.shares:
            ways[share.way] += share.nbytes
        return Subtree(name, len(self.shares), dict(ways))


def key_parts(text: str) -> tuple[str, ...]:
    """The components of a key, each with the separator after it: `/`, or `.` in keys without a `/`.

    Formats whose keys are flat names separate what is nested with dots.
    """
    separator = r"(?<!\\)/" if "/" in text else r"\."
    return tuple(part for part in re.split(rf"(?<={separator})", text) if part)


def shares_of(plan: Plan) -> list[Share]:
    """The leaves of the result, and those that are dropped, each with its bytes."""
    several = len({gone.source for gone in plan.dropped}) > 1
    dropped = (
        Share(((f"{gone.source}:",) if several else ()) + _parts(gone.leaf), DROPPED, gone.leaf.nbytes)
        for gone in plan.dropped
    )
    kept = (Share(_parts(step.leaf), WAYS[step.transfer], step.leaf.nbytes) for step in plan.steps)
    return [*kept, *dropped]


def _parts(leaf: Leaf) -> tuple[str, ...]:
    return key_parts(leaf.key.printed)


def subtrees(shares: Iterable[Share], most: int = MOST_SUBTREES) -> list[Subtree]:
    """The subtrees of a tree, the largest first: as deep as a number of `most` allows."""
    groups = _Group(0, list(shares)).split()
    settled: list[_Group] = []
    while groups:
        largest = max(groups, key=lambda group: group.nbytes)
        groups.remove(largest)
        parts = largest.split()
        if len(groups) + len(settled) + len(parts) > most or parts == [largest]:
            settled.append(largest)
        else:
            groups += parts
    settled.sort(key=lambda group: -group.nbytes)
    if len(settled) <= most:
        return [group.shown() for group in settled]
    rest = _Group(0, [share for group in settled[most - 1 :] for share in group.shares]).shown()
    return [*(group.shown() for group in settled[: most - 1]), Subtree("(others)", rest.leaves, rest.ways)]
