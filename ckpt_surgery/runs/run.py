"""A run: from a request to a published result, in this process or on a cluster."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TypedDict

from ckpt_surgery.core.arguments import LinkMode, one_of
from ckpt_surgery.core.folding import FEW
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import ProgressLike, Report
from ckpt_surgery.core.protocols import AdoptedFile, Companion, KeepingSink, Sink
from ckpt_surgery.core.summary import Represented, Summary
from ckpt_surgery.core.text import bytes_text, number_of, seconds_text, shown
from ckpt_surgery.engine import worker
from ckpt_surgery.engine.staging.life import Staging, staged
from ckpt_surgery.engine.tasks import Written
from ckpt_surgery.inputs.opening import check_unchanged, with_samples
from ckpt_surgery.inputs.options import ConvertOptions, PlanOptions
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.plan import Plan, Step, Transfer
from ckpt_surgery.planner.prepared import Prepared
from ckpt_surgery.report.plan_texts import plan_summary, totals_text
from ckpt_surgery.report.results import OverflowedLeaf
from ckpt_surgery.report.verification import MODES, NOT_VERIFIED, VerifiedRun, Verify
from ckpt_surgery.runs import destination
from ckpt_surgery.runs.destination import Publication
from ckpt_surgery.runs.sidecars import copy_sidecars, find_sidecars, keep_sidecars
from ckpt_surgery.storage.listing import real_path
from ckpt_surgery.storage.record_files import KEPT
from ckpt_surgery.system import signals
from ckpt_surgery.system.resources import release_memory
from ckpt_surgery.verification.new_checkpoints import verify_written
from ckpt_surgery.verification.record import Shards, record_length, record_text

NO_CHECKSUMS = "zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does"


class RunArguments(TypedDict, total=False):
    """Arguments about the execution of a plan, described by `apply`; `convert` and `merge` take them too."""

    overwrite: bool
    resume: bool
    verify: Verify | str
    copy_config: bool | None
    engine: str
    scheduler: str | None
    progress: ProgressLike
    on_plan: Callable[[Plan], None] | None


class ApplyArguments(RunArguments, PlanOptions, total=False):
    """Arguments of `apply` that are given by name."""


class ConvertArguments(RunArguments, ConvertOptions, total=False):
    """Arguments of `convert` and `merge` that are given by name."""


@dataclass(frozen=True)
class RunOptions:
    """`RunArguments` with their defaults filled in."""

    overwrite: bool = False
    resume: bool = False
    verify: Verify = Verify.FAST
    copy_config: bool | None = None
    engine: str = "local"
    scheduler: str | None = None
    progress: Report | None = None
    on_plan: Callable[[Plan], None] | None = None


def run_options(given: RunArguments, progress: Report | None) -> RunOptions:
    """Pick the options of a run from keyword arguments. Raises UsageError for an unknown `verify`."""
    chosen = {name: value for name, value in given.items() if name in RunArguments.__annotations__}
    verify = one_of("verify", given.get("verify", Verify.FAST), MODES)
    return RunOptions(**{**chosen, "progress": progress, "verify": verify})  # type: ignore[arg-type]


@dataclass(frozen=True, repr=False)
class Result(Represented):
    """Result of `apply`, `convert`, `merge` and `commit`."""

    plan: Plan
    """The plan as executed: outputs that could not be linked count as copied."""
    seconds: float = 0.0
    """Wall time of planning, writing, and verification."""
    destination: str = ""
    """Path of the result, as the caller gave it."""
    notices: tuple[str, ...] = ()
    """Sentences about leftovers of earlier runs that were cleaned up, and about files that were copied
    because no link was possible."""
    shared: tuple[AdoptedFile, ...] = ()
    """Files of the result that are hard links to files of sources: rewriting one in place changes both."""
    verified: VerifiedRun = NOT_VERIFIED
    """Mode of the verification before publication, with the bytes read back and skipped."""
    companions: tuple[Companion, ...] = ()
    """Config and tokenizer files copied beside the weights."""
    overflowed: tuple[OverflowedLeaf, ...] = ()
    """Leaves with NaN or infinity that their sources do not have, which the recipe permitted by
    `allow_nonfinite` or `on_overflow='inf'`."""

    def _summary(self) -> Summary:
        costs, plan = self.plan.costs, plan_summary(self.plan)
        took = f"{bytes_text(costs.bytes_out)} in {seconds_text(self.seconds)}"
        about = f"{totals_text(self.plan)}; {took}"
        return replace(plan, about=about, closing=(*plan.closing[:1], *self.notices))


def finish_result(result: Result, started: float, destination: str, notices: Iterable[str]) -> Result:
    """Complete a result with its destination, the stage's notices, and the seconds since `started`."""
    seconds = time.monotonic() - started
    return replace(result, seconds=seconds, destination=destination, notices=(*notices, *result.notices))


def overflow_notices(leaves: Iterable[OverflowedLeaf]) -> tuple[str, ...]:
    """Report permitted NaN and infinity in one sentence; empty if there are none."""
    leaves = tuple(leaves)
    total = sum(leaf.count for leaf in leaves)
    named = ", ".join(f"{leaf.count:,} in `{shown(leaf.key)}`" for leaf in leaves[:FEW])
    more = f", and others in {len(leaves) - FEW:,} more leaves" if len(leaves) > FEW else ""
    made = f"not finite, though made of finite ones, as the recipe permits: {number_of(total, 'element')}"
    return (f"{made}, {named}{more}",) if leaves else ()


def copy_notices(files: Sequence[AdoptedFile]) -> tuple[str, ...]:
    """Report why files were copied instead of linked, one sentence for each reason."""
    sizes: dict[str, list[int]] = {}
    for file in files:
        if file.how is LinkMode.COPY:
            sizes.setdefault(file.reason, []).append(file.size)
    return tuple(
        f"copied because no link was possible: {number_of(len(of), 'file')} ({bytes_text(sum(of))}): {reason}"
        for reason, of in sizes.items()
    )


def plan_as_executed(plan: Plan, files: Sequence[AdoptedFile]) -> Plan:
    """Count outputs whose files could not be linked as copied."""
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
    old, read = plan.costs, plan.costs.bytes_read + sum(copied.values())
    linked, written = old.bytes_linked - moved, old.bytes_copied + moved
    costs = replace(old, bytes_linked=linked, bytes_copied=written, bytes_read=read)
    return replace(plan, steps=steps, costs=costs)


def run_here(request: Request, options: RunOptions) -> Result:
    """Plan, check and carry out a request in this process."""
    started = time.monotonic()
    with signals.interruptible():
        where = destination.place_of(request)
        prepared = with_samples(plan_for_destination(request, where, options.overwrite))
        companions = find_sidecars(prepared, options.copy_config, request.changes or {})
        if options.on_plan is not None:
            options.on_plan(prepared.plan)
        publishing = PublishOptions(where, options.verify, companions, options.progress)
        means = worker.Means(prepared.memory, prepared.workers, options.progress)
        stage = destination.stage_for(prepared, where)
        with memory_errors("write the checkpoint"), staged(stage, options.resume):
            sink = destination.open_sink(prepared, where, stage.work, record_room(prepared))
            written = worker.run(prepared.plan, prepared.sources, sink, means, stage.journal(means.name))
            result = verify_and_publish(prepared, sink, stage, written, publishing)
    return finish_result(result, started, str(request.dst), stage.notices)


def plan_for_destination(request: Request, where: Publication, overwrite: bool) -> Prepared:
    """Plan a request whose result can be published at `where`."""
    replaces = destination.check_before(where, request, overwrite)
    return destination.check_after(where, replaces, prepare(request), overwrite)


def record_room(prepared: Prepared, shards: Shards | None = None) -> int:
    """Bytes that the sink reserves for the record; 0 if the format reserves none."""
    details = prepared.encoder.details
    return record_length(prepared.plan, shards, details.holds_config) if details.reserves_record else 0


@dataclass(frozen=True)
class PublishOptions:
    """Options of verification, and files published beside the checkpoint."""

    where: Publication
    verify: Verify
    companions: Sequence[Companion] = ()
    """Config and tokenizer files."""
    progress: Report | None = None
    """Called with the bytes read back, from any thread."""
    shards: Shards | None = None
    """Shards that wrote the checkpoint and read their part back; None for a run in this process."""


def verify_and_publish(
    prepared: Prepared, sink: Sink, stage: Staging, written: Written, options: PublishOptions
) -> Result:
    """Verify the written checkpoint, then publish it; `finish_result` completes the result.

    Raises SourceError if a source has changed, VerificationError, DestinationError, StorageError.
    """
    plan = prepared.plan
    check_unchanged(plan, prepared.sources, "Nothing was published; run again when nothing writes to it.")
    release_memory()  # reading back begins with the whole budget
    holds_config = prepared.encoder.details.holds_config
    copied = copy_sidecars(options.companions, stage.work) if holds_config else ()
    if isinstance(sink, KeepingSink):
        keep_sidecars(options.companions, sink.record_directory)
    recorded = partial(record_text, plan, files=written.files, shards=options.shards, companions=copied)
    text = recorded(written.digests)
    inside = sink.record(text)
    how = {"step_only": options.where.step_only, "reread": options.shards is not None}
    verification = verify_written(
        prepared, stage.product, text, options.verify, progress=options.progress, **how
    )
    text = recorded({**written.digests, **verification.digests}, structure=verification.structure)
    if inside:
        sink.record(text)
    else:
        stage.put_beside(text)
    plan = plan_as_executed(plan, written.files)
    overflowed = tuple(
        OverflowedLeaf(plan.steps[number].leaf.key.text, count)
        for number, count in sorted(written.overflowed.items())
        if count
    )
    notices = (*overflow_notices(overflowed), *copy_notices(written.files))
    computed = (step for step in plan.steps if step.transfer is Transfer.COMPUTE)
    if prepared.destination.zarr == 2 and any(step.leaf.nbytes for step in computed):
        notices = (*notices, NO_CHECKSUMS)
    result = Result(
        plan,
        notices=notices,
        shared=tuple(file for file in written.files if file.how is LinkMode.HARDLINK),
        verified=verification.run,
        companions=tuple([file for file in options.companions if not file.name.startswith(f"{KEPT}/")]),
        overflowed=overflowed,
    )
    stage.publish()
    return result
