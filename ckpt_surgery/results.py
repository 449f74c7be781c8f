"""The result of a run: its plan as it was executed, and what became of links and of permitted NaN."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.core.protocols import AdoptedFile, Companion, LinkMode
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.planner.plan import Plan, Step, Transfer
from ckpt_surgery.report.verification import NOT_VERIFIED, VerifiedRun
from ckpt_surgery.storage.listing import real_path


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


def shared(files: Sequence[AdoptedFile]) -> tuple[AdoptedFile, ...]:
    """The files that are one with a source's file: what rewrites one of them changes the other."""
    return tuple(file for file in files if file.how is LinkMode.HARDLINK)


def copy_notices(files: Sequence[AdoptedFile]) -> tuple[str, ...]:
    """A sentence for each reason why files that were to be linked were copied."""
    sizes: dict[str, list[int]] = {}
    for file in files:
        if file.how is LinkMode.COPY:
            sizes.setdefault(file.reason, []).append(file.size)
    return tuple(
        f"{len(of)} file{'' if len(of) == 1 else 's'} ({bytes_text(sum(of))}) could not be linked and "
        f"{'was' if len(of) == 1 else 'were'} copied: {reason}"
        for reason, of in sizes.items()
    )


def plan_as_executed(plan: Plan, files: Sequence[AdoptedFile]) -> Plan:
    """The plan as it was carried out: outputs whose files could not be linked count as copied."""
    copied = {file.source: file.size for file in files if file.how is LinkMode.COPY}
    if not copied:
        return plan
    real = cache(real_path)

    def done(step: Step) -> Step:
        if step.transfer is not Transfer.LINK or step.stored is None:
            return step
        chunks = (chunk for chunk in step.stored.chunks.values() if chunk.inline is None)
        return replace(step, transfer=Transfer.COPY) if any(real(c.file) in copied for c in chunks) else step

    steps = tuple(map(done, plan.steps))
    moved = sum(new.leaf.nbytes for new, old in zip(steps, plan.steps, strict=True) if new is not old)
    costs = replace(
        plan.costs,
        bytes_linked=plan.costs.bytes_linked - moved,
        bytes_copied=plan.costs.bytes_copied + moved,
        bytes_read=plan.costs.bytes_read + sum(copied.values()),
    )
    return replace(plan, steps=steps, costs=costs)
