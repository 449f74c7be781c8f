"""What carrying out a plan gives."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.core.protocols import AdoptedFile, Companion
from ckpt_surgery.core.text import shown
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.verification import NOT_VERIFIED, VerifiedRun


@frozen()
class Overflowed:
    """A leaf of the result with elements that are not finite although what they were made of is."""

    key: str
    """Its key."""
    count: int
    """Number of these elements."""


@dataclass(frozen=True)
class Result:
    """What `apply` and `convert` did."""

    plan: Plan
    """The plan as it was carried out: what could not be linked counts as copied."""
    seconds: float = 0.0
    """Wall time of planning, writing, and verification."""
    destination: str = ""
    """Path of the result, as the caller gave it."""
    notices: tuple[str, ...] = ()
    """Sentences about leftovers of earlier runs that were put in order, and about files that were copied
    because no link was possible."""
    shared: tuple[AdoptedFile, ...] = ()
    """Files of the result that are hard links to files of sources: rewriting one in place changes both."""
    verified: VerifiedRun = NOT_VERIFIED
    """What was read back before the result was published."""
    companions: tuple[Companion, ...] = ()
    """Config and tokenizer files that came along."""
    overflowed: tuple[Overflowed, ...] = ()
    """Leaves in which the recipe permitted NaN or infinity, by `allow_nonfinite` or `on_overflow='inf'`, and
    in which there are some that their sources do not have."""


def ended(result: Result, started: float, destination: str, notices: Iterable[str]) -> Result:
    """The result of a run that began at `started`, on the monotonic clock, and had these notices before."""
    seconds = time.monotonic() - started
    return replace(result, seconds=seconds, destination=destination, notices=(*notices, *result.notices))


def overflowed_leaves(plan: Plan, counts: Mapping[int, int]) -> tuple[Overflowed, ...]:
    """The leaves with permitted NaN and infinity. `counts`: numbers of elements by positions of outputs."""
    return tuple(Overflowed(plan.steps[n].leaf.key.text, counts[n]) for n in sorted(counts) if counts[n])


def overflow_notices(leaves: Iterable[Overflowed]) -> tuple[str, ...]:
    """The sentence about permitted NaN and infinity; nothing where there are none."""
    leaves = tuple(leaves)
    if not leaves:
        return ()
    total = sum(leaf.count for leaf in leaves)
    named = ", ".join(f"{leaf.count:,} in `{shown(leaf.key)}`" for leaf in leaves[:FEW])
    more = f", and others in {len(leaves) - FEW:,} more leaves" if len(leaves) > FEW else ""
    elements = "element is" if total == 1 else "elements are"
    return (f"{total:,} {elements} not finite, made of finite ones as the recipe permits: {named}{more}",)
