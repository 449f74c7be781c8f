"""Shards of one plan: find their parts, join or start them, write one, publish all."""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, VerificationError
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Report
from ckpt_surgery.core.protocols import Companion, Sink
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.engine import parts as documents
from ckpt_surgery.engine.parts import Head, LocalParts, ObjectParts, Parts
from ckpt_surgery.engine.staging.checks import already_there
from ckpt_surgery.engine.staging.leftovers import difference, is_published
from ckpt_surgery.engine.staging.life import Staging, staged
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.tasks import shares
from ckpt_surgery.engine.worker import Means, finish_checkpoint, work
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs.opening import check_unchanged, with_samples
from ckpt_surgery.inputs.pinned import document_of, saved_request
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, requested
from ckpt_surgery.planner.prepared import Prepared, digest_of, identity_of
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.runs import run
from ckpt_surgery.runs.destination import MOST_NAMES, Publication, is_one_file, items_of, open_sink, place_of
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import directory_names, exists, is_directory
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.signals import unhindered
from ckpt_surgery.verification.new_checkpoints import read_back
from ckpt_surgery.verification.record import Malformed, Shards, load_record


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

    Raises UsageError for another plan or count, DestinationError if something is there that is not replaced.
    """
    where = place_of(request)
    parts = parts_of(where)
    head = documents.head_of(parts)
    if head is not None:
        job = _joined(request, where, parts, head)
        check_head(head, parts, job.prepared, count)
        check_unwritten(where, head)
        return job
    forget()
    if exists(where.place) and not (overwrite or where.of_items):
        raise already_there(shown(where.place))
    prepared = with_samples(run.plan_for_destination(request, where, overwrite))
    if where.is_url and not prepared.encoder.details.shards_in_stores:
        format = prepared.destination.format
        problem = f"{shown(where.place)}: {format} checkpoints are not written to a bucket in shards"
        raise errors.UsageError(problem, hint="Apply the plan without `shard`, or write orbax.")
    document = (request.pinned and request.pinned.text) or document_of(prepared, request)
    identity = identity_of(prepared)
    check_not_committed(where, digest_of(identity))
    shards = Shards(count, secrets.token_hex(4), digest_of(identity))
    about = prepared.plan.replaces, where.step_only, prepared.memory, run.record_room(prepared, shards)
    head = Head(shards.run, identity, count, *about)
    job = Job(prepared, where, parts, head)
    parts.begin(head, document, lambda directory: job.sink(directory).create())
    begun = documents.head_of(parts)
    if begun is None:
        raise StorageError(f"{shown(parts.place)} was removed as soon as it was made", hint="Run it again.")
    check_head(begun, parts, prepared, count)
    return replace(job, head=begun)


def join_job(where: Publication, parts: Parts, head: Head, options: Mapping[str, object]) -> Job:
    """Join shards that another process has started, by the plan saved among their parts: see `check_head`.

    Raises SourceError if the plan is damaged or its sources have changed.
    """
    base = os.path.dirname(where.place) if head.step_only else where.place
    named = requested(head.plan, (), base, {name: value for name, value in options.items() if value})
    saved = saved_request(named, parts.read(head.plan) or b"")
    if saved is None:
        raise SourceError(f"{shown(f'{parts.place}/{head.plan}')} is damaged", hint=documents.ANEW)
    return _joined(saved, where, parts, head)


def _joined(request: Request, where: Publication, parts: Parts, head: Head) -> Job:
    """Plan again over the sources. Raises SourceError if these changed since the shards were started."""
    try:
        prepared = with_samples(prepare(request)).replacing(head.replaces)
    except errors.SourcesChanged as error:
        raise SourceError(*error.problems) from error
    return Job(prepared, replace(where, step_only=head.step_only), parts, head)


@contextlib.contextmanager
def report_parts(job: Job) -> Iterator[None]:
    """Add the state of the parts to errors, and after a signal how to go on with them.

    Raises DestinationError if another process has published them meanwhile.
    """
    try:
        yield
    except errors.SurgeryError as failure:
        with unhindered(), contextlib.suppress(SourceError, StorageError):  # a store that does not answer
            ours = documents.head_of(job.parts) == job.head
            if isinstance(failure, errors.Interrupted) and ours:
                done = job.head.count - len(documents.missing(job.parts, job.head))
                sentence = f"{done} of {job.head.count} shards are done, and kept in {shown(job.parts.place)}"
                errors.add_sentence(failure, sentence, hint=errors.AGAIN)
            elif not ours and not isinstance(failure, errors.Interrupted):
                check_not_committed(job.where, job.shards.plan)
        raise


def check_head(head: Head, parts: Parts, prepared: Prepared, count: int) -> None:
    """Refuse parts of another plan, version, number of shards, or sources. Raises UsageError, SourceError."""
    where, (name, reason) = shown(parts.place), difference(head.identity, identity_of(prepared))
    if name not in ("", "sources"):
        hint = "Finish that one with `commit`, or remove the directory to start again."
        raise errors.UsageError(f"{where}: {reason}", hint=hint)
    if head.count != count:
        problem = f"{where}: the plan is being carried out in {head.count} shards, not {count}"
        hint = f"Use the same number, or remove that directory to start again with {count}."
        raise errors.UsageError(problem, hint=hint)
    if name:
        hint = "Remove that directory, make the plan again, and run all shards."
        raise SourceError(f"{where}: {reason}", hint=hint)


@memory_errors("write the shard")
def write_shard(job: Job, index: int, verify: Verify, progress: Report | None = None) -> bool:
    """Write one shard; False if another attempt was faster. Each attempt has its own name."""
    prepared = job.prepared
    plan, tasks = prepared.plan, shares(prepared.plan, job.head.count)[index]
    sink = job.sink(job.parts.work(job.head))
    name = f"{index}_{job.head.run}_{secrets.token_hex(4)}"
    means = Means(prepared.memory, prepared.workers, progress, name)
    part = work(plan, prepared.sources, sink, tasks, means)
    check_unchanged(plan, prepared.sources, "The shard is not done: make the plan again.")
    if verify is not Verify.NONE:
        read_back(plan, sink, part, tasks, means)
    writer = sink.attach(name)
    job.parts.sync({file for task in tasks for file in writer.files(sink.outputs[task.step], task.region)})
    if documents.head_of(job.parts) != job.head:
        problem = f"{shown(job.parts.place)} was removed, or started again, while the shard was written"
        raise StorageError(
            problem, hint="Nothing of it is published. Run it again if the result is not there."
        )
    return documents.put_part(job.parts, job.head, index, part)


def publish_shards(
    job: Job,
    mode: Verify,
    companions: Sequence[Companion],
    destination: str,
    started: float,
    progress: Report | None = None,
) -> run.Result:
    """Merge and publish the work of all shards with `companions`, and remove the parts.

    Raises VerificationError, SourceError, DestinationError, StorageError.
    """
    prepared, where, parts, head = job.prepared, job.where, job.parts, job.head
    options = run.PublishOptions(where, mode, companions, progress, job.shards)
    stage: Staging
    if isinstance(parts, ObjectParts):
        item = prepared.destination.item
        stage = StoreStage(where.place, head.identity, head.replaces, item, shards=head.run)
    else:
        one_file = is_one_file(prepared.destination)
        stage = DiskStage(where.path, one_file, head.identity, head.replaces, parts.complete)
    done = [part for n in range(head.count) if (part := documents.part_of(parts, head, n)) is not None]
    with staged(stage):  # after a failure, the work of the shards stays among the parts
        if isinstance(parts, LocalParts):
            parts.take(head)
            if not exists(stage.product):
                gone = f"{shown(stage.product)} is gone, which the shards wrote"
                raise VerificationError(gone, hint=documents.ANEW)
        sink = job.sink(stage.work)
        try:
            written = finish_checkpoint(prepared.plan, sink, done)
        except SourceError as error:
            unread = f"what a shard wrote cannot be read: {errors.in_one_line(error)}"
            raise VerificationError(unread, hint=f"Nothing was published. {documents.ANEW}") from error
        result = run.verify_and_publish(prepared, sink, stage, written, options)
    notices = stage.notices
    try:
        parts.clear()
    except (StorageError, SourceError) as error:
        notices += (f"{shown(parts.place)} is left ({error}); remove it",)
    return run.finish_result(result, started, destination, notices)


_STEP_PARTS = re.compile(r"\.([0-9]+)\.ckpt-surgery-parts")


def parts_of(where: Publication) -> Parts:
    """The parts of a destination, started or not."""
    return ObjectParts(where.place) if where.is_url else LocalParts(where.path)


def parts_to_commit(dst: str) -> tuple[Publication, Parts]:
    """Find the parts of a path or URL, or of the one step in it that has any. Raises UsageError."""
    parts = parts_of(Publication(dst, False))
    if parts.read(documents.HEAD) is None and is_directory(dst):
        forget()
        matches = map(_STEP_PARTS.fullmatch, directory_names(dst).directories)
        steps = sorted(int(match[1]) for match in matches if match)
        if len(steps) > 1:
            raise errors.UsageError(
                f"{shown(dst)}: has parts of several steps ({few(list(map(str, steps)), MOST_NAMES)})",
                hint=f"Name one of them: {shown(os.path.join(dst, str(steps[0])))}.",
            )
        for number in steps:
            step = Publication(os.path.join(dst, str(number)), True)
            return step, parts_of(step)
    return Publication(dst, False), parts


def check_unwritten(where: Publication, head: Head) -> None:
    """Refuse a destination that was taken since the first shard began. Raises DestinationError.

    In a store, data lies there from the beginning; a marker is refused where the parts are put together.
    """
    forget()
    if not where.is_url and head.replaces is None and exists(where.place):
        problem = "something was put there since the first shard began, without leave to replace it"
        parts = shown(parts_of(where).place)
        hint = f"Move it away to go on, or give up the parts beside it: remove {parts}."
        raise DestinationError(f"{shown(where.place)}: {problem}", hint=hint)


def check_not_committed(where: Publication, plan: str) -> None:
    """Refuse a late shard of a plan that was published already. Raises DestinationError."""
    if any(shards.get("plan") == plan for shards in shards_at(where.place)):
        problem = f"{shown(where.place)}: the shards of this plan were put together and published there"
        raise DestinationError(
            problem, hint="There is nothing left to do. To make it again, remove it first."
        )


def shards_at(place: str) -> Iterator[Mapping[str, Any]]:
    """Yield the shards that wrote the checkpoint at a path or URL, from each readable record."""
    forget()
    for item in (items_of(place) or (None,)) if exists(place) else ():
        with contextlib.suppress(SourceError, errors.UsageError, Malformed):
            record = load_record(opening.open_source(place, item=item))
            if record is not None and "shards" in record.document:
                yield record.document["shards"]


def is_committed(where: Publication, parts: Parts, head: Head) -> bool:
    """True if a run published these parts but ended before it removed them."""
    if isinstance(parts, LocalParts):
        with storage_errors(where.path):
            return is_published(parts.directory, where.path)
    return any(shards.get("run") == head.run for shards in shards_at(where.place))
