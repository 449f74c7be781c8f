"""What became of the links of a plan: files that are shared with sources, and files that had to be copied."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from ckpt_surgery.core.protocols import AdoptedFile, LinkMode
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.planner.plan import Plan, Step, Transfer
from ckpt_surgery.storage.listing import real_path


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


def carried_out(plan: Plan, files: Sequence[AdoptedFile]) -> Plan:
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
