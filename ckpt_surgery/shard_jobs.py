"""One plan that several processes carry out: the parts, the work at one of them, the publication of all."""

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ckpt_surgery import shard_places, sharing
from ckpt_surgery.companions import Wanted, along, companions_of, may_have
from ckpt_surgery.completing import completed
from ckpt_surgery.core.errors import (
    AGAIN,
    Interrupted,
    SourceError,
    StorageError,
    UsageError,
    VerificationError,
)
from ckpt_surgery.core.file_states import changes_between
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Sink
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import Publication, open_sink, publication
from ckpt_surgery.engine.local_parts import LocalParts
from ckpt_surgery.engine.object_parts import ObjectParts
from ckpt_surgery.engine.parts import Head, done_name, head_of, missing, part_bytes, part_of
from ckpt_surgery.engine.shards import shares
from ckpt_surgery.engine.signals import unhindered
from ckpt_surgery.engine.staging.outcomes import add
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.tracking import Part, Written
from ckpt_surgery.engine.worker import joined, work
from ckpt_surgery.existing_items import check_after, check_before
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.preparing import check_unchanged, check_values, prepare
from ckpt_surgery.prepublication import read_back
from ckpt_surgery.records import Shards, room_for_record
from ckpt_surgery.remarks import without_checksums
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import Request, requested
from ckpt_surgery.results import Result, overflow_notices, overflowed_leaves
from ckpt_surgery.resuming import digest_of, identity_of
from ckpt_surgery.saved_plans import SourcesChanged, saved_request

HINT = "Nothing was published. Remove the directory of parts, and run all shards again."


@dataclass(frozen=True)
class Job:
    """A plan that several machines carry out, as this process sees it."""

    prepared: Prepared
    where: Publication
    parts: LocalParts | ObjectParts
    head: Head

    @property
    def shards(self) -> Shards:
        """How the record describes them."""
        return Shards(self.head.count, self.head.run, digest_of(self.head.identity))


def joined_job(saved: Request, count: int, overwrite: bool, launcher: str = "") -> Job:
    """The parts of a destination, which are begun where nobody has begun them.

    Raises UsageError where they are of another plan, or of another number of shards; DestinationError where
    something is at the destination that is not to be replaced; and what `prepare` raises.
    """
    if saved.dst is None or saved.pinned is None:
        raise UsageError("no destination is given", hint="Name the directory or file to write.")
    where = publication(saved.dst, saved.dst_step, saved.dst_item)
    shard_places.check_format(where, str(saved.format))
    parts = shard_places.parts_of(where)
    head = head_of(parts)
    if head is not None:
        prepared = opened(saved).replacing(head.replaces)
        check_head(head, parts, prepared, count)
        shard_places.check_unwritten(where, head, overwrite)
        return Job(prepared, replace(where, step_only=head.step_only), parts, head)
    shard_places.check_unwritten(where, None, overwrite)
    replaces = check_before(where, saved.inputs, saved.beside, overwrite)
    prepared = check_after(where, replaces, prepare(saved), overwrite)
    check_values(prepared.plan, prepared.sources)
    identity = identity_of(prepared)
    shard_places.check_not_committed(where, digest_of(identity))
    run = secrets.token_hex(4)
    head = Head(run, identity, count, prepared.replaces, where.step_only, launcher)
    job = Job(prepared, where, parts, head)
    parts.begin(head, saved.pinned.text, lambda directory: _sink(job, directory).create())
    begun = head_of(parts)
    if begun is None:
        raise StorageError(f"{shown(parts.place)} was removed as soon as it was made", hint="Run it again.")
    check_head(begun, parts, prepared, count)
    return replace(job, head=begun)


@contextlib.contextmanager
def kept(job: Job) -> Iterator[None]:
    """Context of work at parts: after a signal, the error says that they are kept, and how to go on.

    Where they are gone, the result was published.
    """
    try:
        yield
    except Interrupted as stop:
        with unhindered(), contextlib.suppress(SourceError, StorageError):  # a store that does not answer
            if head_of(job.parts) == job.head:
                done = job.head.count - len(missing(job.parts, job.head))
                told = f"{done} of {job.head.count} shards are done, and kept in {shown(job.parts.place)}"
                add(stop, told, hint=AGAIN)
        raise


def opened(saved: Request) -> Prepared:
    """The saved plan over its sources. Raises SourceError where these have changed since shards began."""
    try:
        return prepare(saved)
    except SourcesChanged as error:
        raise SourceError(*error.problems) from error


def check_head(head: Head, parts: LocalParts | ObjectParts, prepared: Prepared, count: int) -> None:
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
            hint=f"Use the same number, or remove that directory to start again with {count}.",
        )
    elif head.identity.get("sources") != identity["sources"]:
        found = changes_between(head.identity.get("sources"), identity["sources"])
        raise SourceError(
            f"{where}: the sources have changed since the first shard began{': ' if found else ''}{found}",
            hint="Remove that directory, make the plan again, and run all shards.",
        )
    else:
        return
    raise UsageError(
        f"{where}: holds parts of {reason}",
        hint="Finish that one with `commit`, or remove the directory to start again.",
    )


def _sink(job: Job, directory: str) -> Sink:
    prepared, plan = job.prepared, job.prepared.plan
    options = prepared.destination
    reserves = formats.named(options.format).reserves_record
    room = room_for_record(plan, job.shards, may_have(options)) if reserves else 0
    sources = list(prepared.sources.values())
    step_only, existing = job.where.step_only, job.where.place if prepared.writes_one_item else None
    return open_sink(options, plan.metadata, directory, outputs_of(plan), sources, step_only, room, existing)


@memory_errors("write the shard")
def carried_out(job: Job, index: int, verify: Verify, progress: Callable[[Progress], None] | None) -> bool:
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
    writer = sink.attach(name)
    job.parts.sync({file for task in tasks for file in writer.files(sink.outputs[task.step], task.region)})
    if head_of(job.parts) != job.head:
        raise StorageError(
            f"{shown(job.parts.place)} was removed, or started again, while the shard was written",
            hint="Nothing of it is published. Run it again if the result is not there.",
        )
    return job.parts.put(done_name(index), part_bytes(part))


# --- publication ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def saved_plan(
    where: Publication, parts: LocalParts | ObjectParts, head: Head, options: dict[str, object]
) -> Iterator[Request]:
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


def published(job: Job, mode: Verify, wanted: Wanted, destination: str, started: float) -> Result:
    """Put together and publish what all shards have written, and remove the parts.

    `wanted`: the files that come along. `destination` is what the caller called it, `started` when the
    command began, on the monotonic clock. Raises VerificationError, SourceError, DestinationError,
    StorageError.
    """
    prepared, plan = job.prepared, job.prepared.plan
    found = [part_of(job.parts, index) for index in range(job.head.count)]
    done = [part for part in found if isinstance(part, Part)]
    companions = companions_of(prepared, wanted)
    with shard_places.stage_of(job.where, job.parts, job.head, prepared.destination) as stage:
        sink = _sink(job, stage.work)
        written = _joined(prepared, sink, done)
        verified = completed(
            prepared, sink, stage, written, mode, job.where.step_only, job.shards, companions=companions
        )
    notices = stage.notices
    try:
        job.parts.clear()
    except (StorageError, SourceError) as error:
        notices += (f"{shown(job.parts.place)} is left ({error}); remove it",)
    made, shared = sharing.carried_out(plan, written.files), sharing.shared(written.files)
    overflowed = overflowed_leaves(made, written.overflowed)
    bare = without_checksums(made, prepared.destination.zarr)
    notices = (*notices, *overflow_notices(overflowed), *sharing.copy_notices(written.files), *bare)
    return Result(
        made,
        time.monotonic() - started,
        destination,
        notices,
        shared,
        verified,
        along(companions),
        overflowed,
    )


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
