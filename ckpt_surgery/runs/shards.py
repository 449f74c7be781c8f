"""Shards of one plan: join or start them, write one, publish all."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ckpt_surgery.core.errors import (
    AGAIN,
    Interrupted,
    SourceError,
    SourcesChanged,
    StorageError,
    SurgeryError,
    UsageError,
    VerificationError,
    add_sentence,
)
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Report
from ckpt_surgery.core.protocols import Sink
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.parts import Head, Parts, done_name, head_of, missing, part_bytes, part_of
from ckpt_surgery.engine.shards import shares
from ckpt_surgery.engine.staging.leftovers import difference
from ckpt_surgery.engine.staging.stages import Publication
from ckpt_surgery.engine.worker import Means, Share, finish_checkpoint, work
from ckpt_surgery.inputs.opening import check_unchanged, with_samples
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, requested
from ckpt_surgery.inputs.saved_plans import document_of, saved_request
from ckpt_surgery.planner.identity import digest_of, identity_of
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.runs import shard_places
from ckpt_surgery.runs.destination import check_after, check_before, open_sink, place_of
from ckpt_surgery.runs.run import PublishOptions, Result, finish_result, record_room, verify_and_publish
from ckpt_surgery.runs.sidecars import SidecarOptions, find_sidecars
from ckpt_surgery.system.signals import unhindered
from ckpt_surgery.verification.new_checkpoints import read_back
from ckpt_surgery.verification.record import Shards

HINT = "Nothing was published. Remove the directory of parts, and run all shards again."


@dataclass(frozen=True)
class Job:
    """A plan that several machines execute in shards, as this process sees it."""

    prepared: Prepared
    where: Publication
    parts: Parts
    head: Head

    @property
    def shards(self) -> Shards:
        """The shards as the record describes them."""
        return Shards(self.head.count, self.head.run, digest_of(self.head.identity))

    def sink(self, directory: str) -> Sink:
        """The sink that this process writes into a directory with."""
        return open_sink(self.prepared, self.where, directory, self.head.record_bytes)


def join_or_start_job(request: Request, count: int, overwrite: bool) -> Job:
    """Join the shards of a destination, or start them if there are none.

    Raises UsageError if they are of another plan, or of another number of shards; DestinationError if
    something is at the destination that is not to be replaced; and what `prepare` raises.
    """
    where = place_of(request)
    parts = shard_places.parts_of(where)
    head = head_of(parts)
    if head is not None:
        prepared = reopen_plan(request).replacing(head.replaces)
        check_head(head, parts, prepared, count)
        shard_places.check_unwritten(where, head, overwrite)
        return Job(prepared, replace(where, step_only=head.step_only), parts, head)
    shard_places.check_unwritten(where, None, overwrite)
    replaces = check_before(where, request.inputs, request.beside, overwrite)
    prepared = with_samples(check_after(where, replaces, prepare(request), overwrite))
    shard_places.check_format(where, prepared.destination.format)
    saved = None if request.pinned is None else request.pinned.text
    document = document_of(prepared, request) if saved is None else saved
    identity = identity_of(prepared)
    shard_places.check_not_committed(where, digest_of(identity))
    shards = Shards(count, secrets.token_hex(4), digest_of(identity))
    head = Head(
        shards.run,
        identity,
        count,
        prepared.replaces,
        where.step_only,
        prepared.memory,
        record_room(prepared, shards),
    )
    job = Job(prepared, where, parts, head)
    parts.begin(head, document, lambda directory: job.sink(directory).create())
    begun = head_of(parts)
    if begun is None:
        raise StorageError(f"{shown(parts.place)} was removed as soon as it was made", hint="Run it again.")
    check_head(begun, parts, prepared, count)
    return replace(job, head=begun)


def join_job(where: Publication, parts: Parts, head: Head, options: Mapping[str, object]) -> Job:
    """Join shards that another process has started, by the plan saved among their parts.

    Raises SourceError if the plan is damaged or its sources have changed. `check_head` tells whether the
    others see the same files.
    """
    base = os.path.dirname(where.place) if head.step_only else where.place
    given = {name: value for name, value in options.items() if value}
    named = requested(head.plan, (), base, given)
    saved = saved_request(named, parts.read(head.plan) or b"")
    if saved is None:
        raise SourceError(
            f"{shown(f'{parts.place}/{head.plan}')} is damaged",
            hint="Remove the directory, and run all shards again.",
        )
    prepared = reopen_plan(saved).replacing(head.replaces)
    return Job(prepared, replace(where, step_only=head.step_only), parts, head)


@contextlib.contextmanager
def report_parts(job: Job) -> Iterator[None]:
    """Add the state of the parts to errors raised inside this context.

    After a signal it says that they are kept, and how to go on. Raises DestinationError if another process
    has published them meanwhile.
    """
    try:
        yield
    except SurgeryError as failure:
        with unhindered(), contextlib.suppress(SourceError, StorageError):  # a store that does not answer
            ours = head_of(job.parts) == job.head
            if isinstance(failure, Interrupted) and ours:
                done = job.head.count - len(missing(job.parts, job.head))
                sentence = f"{done} of {job.head.count} shards are done, and kept in {shown(job.parts.place)}"
                add_sentence(failure, sentence, hint=AGAIN)
            elif not ours and not isinstance(failure, Interrupted):
                shard_places.check_not_committed(job.where, job.shards.plan)
        raise


def reopen_plan(request: Request) -> Prepared:
    """Plan again over the sources. Raises SourceError if these changed since the shards were started."""
    try:
        return with_samples(prepare(request))
    except SourcesChanged as error:
        raise SourceError(*error.problems) from error


def check_head(head: Head, parts: Parts, prepared: Prepared, count: int) -> None:
    """Refuse parts of another plan, version, number of shards, or state of the sources.

    Raises UsageError, SourceError.
    """
    where, (name, reason) = shown(parts.place), difference(head.identity, identity_of(prepared))
    if name not in ("", "sources"):
        raise UsageError(
            f"{where}: {reason}",
            hint="Finish that one with `commit`, or remove the directory to start again.",
        )
    if head.count != count:
        raise UsageError(
            f"{where}: the plan is being carried out in {head.count} shards, not {count}",
            hint=f"Use the same number, or remove that directory to start again with {count}.",
        )
    if name:
        raise SourceError(
            f"{where}: {reason}", hint="Remove that directory, make the plan again, and run all shards."
        )


@memory_errors("write the shard")
def write_shard(job: Job, index: int, verify: Verify, progress: Report | None = None) -> bool:
    """Write one shard; False if another attempt was faster. Each attempt has its own name."""
    prepared = job.prepared
    plan, means = prepared.plan, Means(prepared.memory, prepared.workers, progress)
    tasks = shares(plan, job.head.count)[index]
    sink = job.sink(job.parts.work)
    name = f"{index}_{job.head.run}_{secrets.token_hex(4)}"
    part = work(plan, prepared.sources, sink, Share(name, tasks), means)
    check_unchanged(plan, prepared.sources, "The shard is not done: make the plan again.")
    if verify is not Verify.NONE:
        read_back(plan, sink, part, tasks, means)
    writer = sink.attach(name)
    job.parts.sync({file for task in tasks for file in writer.files(sink.outputs[task.step], task.region)})
    if head_of(job.parts) != job.head:
        raise StorageError(
            f"{shown(job.parts.place)} was removed, or started again, while the shard was written",
            hint="Nothing of it is published. Run it again if the result is not there.",
        )
    return job.parts.put(done_name(index), part_bytes(part))


# --- publication ------------------------------------------------------------------------------------------


def publish_shards(
    job: Job,
    mode: Verify,
    sidecars: SidecarOptions,
    destination: str,
    started: float,
    progress: Report | None = None,
) -> Result:
    """Merge and publish the work of all shards, and remove the parts.

    `destination` is what the caller called it, `started` when the
    command began, on the monotonic clock. Raises VerificationError, SourceError, DestinationError,
    StorageError.
    """
    prepared = job.prepared
    done = [part for index in range(job.head.count) if (part := part_of(job.parts, index)) is not None]
    companions = find_sidecars(prepared, sidecars)
    with shard_places.stage_for_parts(job.where, job.parts, job.head, prepared) as stage:
        sink = job.sink(stage.work)
        try:
            written = finish_checkpoint(prepared.plan, sink, done)
        except SourceError as error:
            unread = "what a shard wrote cannot be read"
            raise VerificationError(
                *(replace(p, message=f"{unread}: {p.message}", hint=HINT) for p in error.problems)
            ) from error
        options = PublishOptions(job.where, mode, companions, progress, job.shards)
        result = verify_and_publish(prepared, sink, stage, written, options)
    notices = stage.notices
    try:
        job.parts.clear()
    except (StorageError, SourceError) as error:
        notices += (f"{shown(job.parts.place)} is left ({error}); remove it",)
    return finish_result(result, started, destination, notices)
