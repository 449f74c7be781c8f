"""Saved plans that several machines carry out: `apply_shard`, any number of times, and then `commit`."""

import os
import re
import time
from collections.abc import Callable
from typing import Unpack

from ckpt_surgery.core.arguments import PathLike, Size, one_of, takes
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.progress import ProgressLike
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.engine.parts import head_of, missing, part_of
from ckpt_surgery.engine.staging.objects import roll_forward
from ckpt_surgery.engine.tasks import shares
from ckpt_surgery.inputs.options import PlanOptions
from ckpt_surgery.inputs.pinned import saved_request
from ckpt_surgery.inputs.request import Request, checked_path, requested
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.results import ShardResult
from ckpt_surgery.report.verification import MODES, Verify
from ckpt_surgery.runs import shards
from ckpt_surgery.runs.run import Result
from ckpt_surgery.runs.sidecars import find_sidecars
from ckpt_surgery.system import signals
from ckpt_surgery.system.progress_bars import reported

MOST_SHARDS = 65536
MOST_NAMED = 20
"""Limit on the shards that a message names."""


@takes(PlanOptions, Request)
def apply_shard(
    plan: PathLike,
    *,
    shard: str,
    dst: PathLike | None = None,
    overwrite: bool = False,
    verify: Verify | str = Verify.FAST,
    progress: ProgressLike = None,
    **options: Unpack[PlanOptions],
) -> ShardResult:
    """Carry out one part of a saved plan; `commit` publishes the result when all parts are done.

    `plan` is the path of a plan that was saved with `plan(out=…)`. `shard` is `I/N`: the part number I of N,
    from `0/N` on. Any machine that sees the sources and the destination can do any part, in any order, and
    more than once: the first attempt that is finished counts. The parts lie beside `dst` meanwhile.
    `overwrite` lets `commit` replace what is at `dst`. `verify` says what is read back before the part
    counts as done: `fast` or `full`, what was computed; `none`, nothing. `progress`: see `apply`.

    Raises SurgeryError; then the part is not done.
    """
    started = time.monotonic()
    index, count = shard_of(shard)
    request = requested(plan, (), dst, options)
    saved = saved_request(request)
    if saved is None:
        named = shown(str(plan)) if isinstance(plan, str | os.PathLike) else f"a {type(plan).__name__}"
        hint = "Save the plan of the recipe first, once for all shards."
        raise UsageError(f"{named} is not a saved plan, and only a saved plan has shards", hint=hint)
    if request.link_mode is not None:
        hint = "Leave out `link_mode`, or give it to `plan`."
        raise UsageError("shards link as their plan says", hint=hint)
    with signals.interruptible():
        job = shards.join_or_start_job(saved, count, overwrite)
        mine = shares(job.prepared.plan, count)[index]
        already = part_of(job.parts, job.head, index) is not None
        if not already:
            with reported(progress) as report, shards.report_parts(job):
                already = not shards.write_shard(job, index, one_of("verify", verify, MODES), report)
        left = tuple(missing(job.parts, job.head))
    return ShardResult(
        shard=index,
        shards=count,
        destination=str(saved.dst),
        tasks=len(mine),
        bytes=sum(task.nbytes for task in mine),
        already_done=already,
        missing_shards=left,
        seconds=time.monotonic() - started,
    )


def shard_of(text: str) -> tuple[int, int]:
    """Number and count of `I/N`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if index >= count or count > MOST_SHARDS:
        hint = f"Shards are numbered from 0: `0/8` to `7/8`. There can be {MOST_SHARDS:,}."
        raise UsageError(f"`shard`: {shown(repr(text))} is not I/N", hint=hint)
    return index, count


def commit(
    dst: PathLike,
    *,
    verify: Verify | str = Verify.FAST,
    copy_config: bool | None = None,
    memory: Size | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    progress: ProgressLike = None,
) -> Result | None:
    """Publish the output of a plan's shards at `dst`, in one step; None if that was done before.

    `verify` says what is checked before: `fast`, that everything is there, and what one machine cannot know
    of another's writing; `full` reads all values back; `none`, nothing. `copy_config`: see `apply`. `memory`
    is the budget for this check, in bytes or as a text such as `2GiB`; `workers` the number of threads.
    `allow_hooks` is needed where the plan has hooks. `on_plan` is called before anything is put together;
    `progress`: see `apply`.

    Raises SourceError where shards are not done, which it names, or where a source has changed;
    VerificationError where the output is incomplete or damaged; DestinationError where something else is at
    `dst`, or another process publishes there; UsageError where there is nothing to publish. The parts stay
    then.
    """
    started, url_or_path, mode = time.monotonic(), checked_path(dst), one_of("verify", verify, MODES)
    with signals.interruptible():
        where, parts = shards.parts_to_commit(url_or_path)
        rolled = roll_forward(where.place) if where.is_url else ()
        head = head_of(parts)
        if head is None:
            if rolled or any(True for _ in shards.shards_at(where.place)):
                return None
            hint = "Carry out the shards of a saved plan first."
            raise UsageError(f"{shown(where.place)}: it has no parts to put together", hint=hint)
        if shards.is_committed(where, parts, head):
            parts.clear()
            return None
        shards.check_unwritten(where, head)
        if lacking := [f"{index}/{head.count}" for index in missing(parts, head)]:
            are = "shard is" if len(lacking) == 1 else "shards are"
            what = f"{len(lacking)} of {head.count} {are} not done: {few(lacking, MOST_NAMED)}"
            hint = "Run them; those that are done are kept."
            raise SourceError(f"{shown(parts.place)}: {what}", hint=hint)
        options = {"memory": memory, "workers": workers, "allow_hooks": allow_hooks}
        job = shards.join_job(where, parts, head, options)
        shards.check_head(head, parts, job.prepared, head.count)
        if on_plan is not None:
            on_plan(job.prepared.plan)
        with reported(progress) as report, shards.report_parts(job):
            companions = find_sidecars(job.prepared, copy_config, {})
            return shards.publish_shards(job, mode, companions, str(dst), started, report)
