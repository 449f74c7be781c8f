"""Saved plans that several machines carry out: `apply_shard`, any number of times, and then `commit`."""

import contextlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from ckpt_surgery import shard_places, sharing
from ckpt_surgery.api import Result
from ckpt_surgery.completing import completed
from ckpt_surgery.core.arguments import PathLike, Size
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError, VerificationError
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Sink
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import Publication, open_sink, publication
from ckpt_surgery.engine import signals
from ckpt_surgery.engine.local_parts import LocalParts
from ckpt_surgery.engine.object_parts import ObjectParts
from ckpt_surgery.engine.parts import (
    Head,
    done_name,
    head_of,
    missing,
    part_bytes,
    part_of,
    shards_text,
)
from ckpt_surgery.engine.rereading import read_back
from ckpt_surgery.engine.shards import shares
from ckpt_surgery.engine.staging.objects import roll_forward
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.tracking import Part, Written
from ckpt_surgery.engine.worker import joined, work
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.preparing import check_unchanged, check_values, prepared_for
from ckpt_surgery.prepublication import verify_mode
from ckpt_surgery.records import Shards, room_for_record
from ckpt_surgery.remarks import without_checksums
from ckpt_surgery.report.shards import ShardResult
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import PlanOptions, place, requested, takes
from ckpt_surgery.resuming import digest_of, identity_of
from ckpt_surgery.saved_plans import SavedRequest, SourcesChanged, opened_again, saved_request

MOST_SHARDS = 65536
HINT = "Nothing was published. Remove the directory of parts, and run all shards again."


@dataclass(frozen=True)
class _Job:
    """A plan that several machines carry out, as this process sees it."""

    prepared: Prepared
    where: Publication
    parts: LocalParts | ObjectParts
    head: Head

    @property
    def shards(self) -> Shards:
        """How the record describes them."""
        return Shards(self.head.count, self.head.run, digest_of(self.head.identity))


@takes(PlanOptions)
def apply_shard(
    plan: PathLike,
    *,
    shard: str,
    dst: PathLike | None = None,
    overwrite: bool = False,
    verify: Verify | str = Verify.FAST,
    progress: Callable[[Progress], None] | None = None,
    **options: Unpack[PlanOptions],
) -> ShardResult:
    """Carry out one part of a saved plan; `commit` publishes the result when all parts are done.

    `plan` is the path of a plan that was saved with `plan(out=…)`. `shard` is `I/N`: the part number I of N,
    from `0/N` on. Any machine that sees the sources and the destination can do any part, in any order, and
    more than once: the first attempt that is finished counts. The parts lie beside `dst` meanwhile.
    `overwrite` lets `commit` replace what is at `dst`. `verify` says what is read back before the part
    counts as done: `fast` or `full`, what was computed; `none`, nothing. `progress` is called after each
    task, from any thread.

    Raises SurgeryError; then the part is not done.
    """
    started = time.monotonic()
    index, count = shard_of(shard)
    request = requested(plan, (), dst, options)
    saved = saved_request(request)
    if saved is None:
        raise UsageError(
            f"{shown(str(plan))} is no saved plan, and only a saved plan has shards",
            hint="Save the plan of the recipe first, once for all shards.",
        )
    if request.link_mode is not None:
        raise UsageError(
            "shards link as their plan says", hint="Leave out `link_mode`, or give it to `plan`."
        )
    with signals.interruptible():
        job = joined_job(saved, count, overwrite)
        mine = shares(job.prepared.plan, count)[index]
        already = part_of(job.parts, index) is not None
        if not already:
            already = not _carried_out(job, index, verify_mode(verify), progress)
        left = tuple(missing(job.parts, job.head))
    return ShardResult(
        index,
        count,
        str(saved.destination.path),
        len(mine),
        sum(task.nbytes for task in mine),
        already,
        left,
        time.monotonic() - started,
    )


def shard_of(text: str) -> tuple[int, int]:
    """Number and count of `I/N`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if index >= count or count > MOST_SHARDS:
        raise UsageError(
            f"`shard`: {shown(repr(text))} is not I/N",
            hint=f"Shards are numbered from 0: `0/8` to `7/8`. There can be {MOST_SHARDS:,}.",
        )
    return index, count


def joined_job(saved: SavedRequest, count: int, overwrite: bool, launcher: str = "") -> _Job:
    """The parts of a destination, which are begun where nobody has begun them.

    Raises UsageError where they are of another plan, or of another number of shards; DestinationError where
    something is at the destination that is not to be replaced; and what `opened_again` raises.
    """
    if saved.destination.path is None:
        raise UsageError("there is no destination", hint="Name the directory or file to write.")
    where = publication(saved.destination.path, saved.destination.step)
    parts = shard_places.parts_of(where)
    head = head_of(parts)
    if head is not None:
        prepared = _opened(saved)
        _check_head(head, parts, prepared, count)
        shard_places.check_unwritten(where, head, overwrite)
        return _Job(prepared, replace(where, step_only=head.step_only), parts, head)
    shard_places.check_unwritten(where, None, overwrite)
    prepared = prepared_for(where, saved.inputs, saved.beside, partial(opened_again, saved), overwrite)
    check_values(prepared.plan, prepared.sources)
    identity = identity_of(prepared)
    shard_places.check_not_committed(where, digest_of(identity))
    run = secrets.token_hex(4)
    head = Head(run, identity, count, prepared.replaces, where.step_only, launcher)
    job = _Job(prepared, where, parts, head)
    parts.begin(head, Path(saved.path).read_bytes(), lambda directory: _sink(job, directory).create())
    begun = head_of(parts)
    if begun is None:
        raise StorageError(f"{shown(parts.place)} was removed as soon as it was made", hint="Run it again.")
    _check_head(begun, parts, prepared, count)
    return replace(job, head=begun)


def _opened(saved: SavedRequest) -> Prepared:
    """The saved plan over its sources. Raises SourceError where these have changed since shards began."""
    try:
        return opened_again(saved)
    except SourcesChanged as error:
        raise SourceError(*error.problems) from error


def _check_head(head: Head, parts: LocalParts | ObjectParts, prepared: Prepared, count: int) -> None:
    """Refuse parts that do not belong together. Raises UsageError, SourceError."""
    identity, where = identity_of(prepared), shown(parts.place)
    if head.identity.get("version") != identity["version"]:
        reason = (
            f"version {shown(head.identity.get('version', ''))} of the program; this is {identity['version']}"
        )
    elif head.identity.get("plan") != identity["plan"]:
        reason = "another plan"
    elif head.count != count:
        raise UsageError(
            f"{where}: the plan is being carried out in {head.count} shards, not {count}",
            hint=f"Use the same number, or remove that directory to begin anew with {count}.",
        )
    elif head.identity.get("sources") != identity["sources"]:
        raise SourceError(
            f"{where}: the sources have changed since the first shard began",
            hint="Remove that directory, make the plan again, and run all shards.",
        )
    else:
        return
    raise UsageError(
        f"{where}: holds parts of {reason}",
        hint="Finish that one with `commit`, or remove the directory to begin anew.",
    )


def _sink(job: _Job, directory: str) -> Sink:
    prepared, plan = job.prepared, job.prepared.plan
    options = prepared.destination
    reserves = formats.named(options.format).reserves_record
    room = room_for_record(plan, job.shards) if reserves else 0
    sources = list(prepared.sources.values())
    step_only = job.where.step_only
    return open_sink(options, plan.metadata, directory, outputs_of(plan), sources, step_only, room)


@memory_errors("write the shard")
def _carried_out(job: _Job, index: int, verify: Verify, progress: Callable[[Progress], None] | None) -> bool:
    """Write a shard under a name that no other attempt has. False where another attempt was faster."""
    prepared = job.prepared
    plan, memory, workers = prepared.plan, prepared.memory, prepared.workers
    tasks = shares(plan, job.head.count)[index]
    sink = _sink(job, job.parts.work)
    name = f"{index}_{job.head.run}_{secrets.token_hex(4)}"
    part = work(plan, prepared.sources, sink, name, tasks, memory, workers, progress)
    check_unchanged(plan, prepared.sources, "The shard is not done: make the plan again.")
    if verify is not Verify.NONE:
        read_back(plan, sink, part, tasks, memory, workers)
    job.parts.sync()
    if head_of(job.parts) != job.head:
        raise StorageError(
            f"{shown(job.parts.place)} was removed, or begun anew, while the shard was written",
            hint="Nothing of it is published. Run it again if the result is not there.",
        )
    return job.parts.put(done_name(index), part_bytes(part))


# --- publication ------------------------------------------------------------------------------------------


def commit(
    dst: PathLike,
    *,
    verify: Verify | str = Verify.FAST,
    memory: Size | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
) -> Result | None:
    """Publish at `dst` what the shards of a plan have written, in one step; None if that was done before.

    `verify` says what is checked before: `fast`, that everything is there, and what one machine cannot know
    of another's writing; `full` reads all values back; `none`, nothing. `memory` is the budget for that, in
    bytes or as a text such as `2GiB`; `workers` the number of threads. `allow_hooks` is needed where the
    plan has hooks. `on_plan` is called before anything is put together.

    Raises SourceError where shards are not done, which it names, or where a source has changed;
    VerificationError where what was written is not whole; DestinationError where something else is at `dst`,
    or another process publishes there; UsageError where there is nothing to publish. The parts stay then.
    """
    started, url_or_path, mode = time.monotonic(), place(dst), verify_mode(verify)
    with signals.interruptible():
        where, parts = shard_places.parts_to_commit(url_or_path)
        rolled = roll_forward(where.place) if where.is_url else ()
        head = head_of(parts)
        if head is None:
            _check_committed(where, rolled)
            return None
        if shard_places.is_committed(where, parts, head):
            parts.clear()
            return None
        shard_places.check_unwritten(where, head, overwrite=False)
        _check_done(parts, head)
        with _saved(
            where, parts, head, {"memory": memory, "workers": workers, "allow_hooks": allow_hooks}
        ) as saved:
            prepared = replace(_opened(saved), replaces=head.replaces)
        _check_head(head, parts, prepared, head.count)
        if on_plan is not None:
            on_plan(prepared.plan)
        job = _Job(prepared, replace(where, step_only=head.step_only), parts, head)
        return _published(job, mode, str(dst), started)


def _check_committed(where: Publication, rolled: tuple[str, ...]) -> None:
    """Raise UsageError unless there is a checkpoint that shards have written."""
    record = shard_places.record_at(where.place)
    if rolled or (record is not None and "shards" in record.document):
        return
    raise UsageError(
        f"{shown(where.place)}: there are no parts to put together",
        hint="Carry out the shards of a saved plan first.",
    )


def _check_done(parts: LocalParts | ObjectParts, head: Head) -> None:
    lacking = missing(parts, head)
    if lacking:
        are = "shard is" if len(lacking) == 1 else "shards are"
        raise SourceError(
            f"{shown(parts.place)}: {len(lacking)} of {head.count} {are} not done: "
            f"{shards_text(lacking, head.count)}",
            hint="Run them; those that are done are kept.",
        )


@contextlib.contextmanager
def _saved(
    where: Publication, parts: LocalParts | ObjectParts, head: Head, options: dict[str, object]
) -> Iterator[SavedRequest]:
    """The plan of the parts, in a file of this machine."""
    document = parts.read(head.plan)
    base = os.path.dirname(where.place) if head.step_only else where.place
    given = {name: value for name, value in options.items() if value}
    with tempfile.TemporaryDirectory(prefix="ckpt-surgery-") as directory:
        path = Path(directory, head.plan)
        path.write_bytes(document or b"")
        saved = saved_request(requested(str(path), (), base, given))  # type: ignore[arg-type]
        if saved is None:
            raise SourceError(
                f"{shown(f'{parts.place}/{head.plan}')} is damaged",
                hint="Remove the directory, and run all shards again.",
            )
        yield saved


def _published(job: _Job, mode: Verify, destination: str, started: float) -> Result:
    prepared, plan = job.prepared, job.prepared.plan
    found = [part_of(job.parts, index) for index in range(job.head.count)]
    done = [part for part in found if isinstance(part, Part)]
    with shard_places.stage_of(job.where, job.parts, job.head, prepared.destination) as stage:
        sink = _sink(job, stage.work)
        written = _joined(prepared, sink, done)
        verified = completed(prepared, sink, stage, written, mode, job.where.step_only, job.shards)
    notices = stage.notices
    try:
        job.parts.clear()
    except (StorageError, SourceError) as error:
        notices += (f"{shown(job.parts.place)} is left ({error}); remove it",)
    made, shared = sharing.carried_out(plan, written.files), sharing.shared(written.files)
    bare = without_checksums(made, prepared.destination.zarr)
    notices = (*notices, *sharing.copy_notices(written.files), *bare)
    return Result(made, time.monotonic() - started, destination, notices, shared, verified)


def _joined(prepared: Prepared, sink: Sink, parts: list[Part]) -> Written:
    """What all shards have written, put together.

    Raises VerificationError where what a shard wrote cannot be read, SourceError where a source changed.
    """
    check_unchanged(prepared.plan, prepared.sources, "Nothing was published. Make the plan again.")
    try:
        return joined(prepared.plan, sink, parts)
    except SourceError as error:
        raise VerificationError(
            *(
                replace(p, message=f"what a shard wrote cannot be read: {p.message}", hint=HINT)
                for p in error.problems
            )
        ) from error
