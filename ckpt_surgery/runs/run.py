"""A run: from a request to a published result, in this process or on a cluster."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypedDict

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import AdoptedFile, Companion, KeepingSink, LinkMode, Sink
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.engine import worker
from ckpt_surgery.engine.staging.life import Stage, staged
from ckpt_surgery.engine.staging.stages import Publication, stage_for
from ckpt_surgery.engine.tracking import Written
from ckpt_surgery.inputs.preparing import check_unchanged, check_values, prepare, sampled
from ckpt_surgery.inputs.request import ConvertOptions, PlanOptions, Request
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Plan, Step, Transfer
from ckpt_surgery.report.verification import NOT_VERIFIED, VerifiedRun, Verify
from ckpt_surgery.runs.destination import check_after, check_before, open_sink, place_of
from ckpt_surgery.runs.sidecars import Wanted, along, companions_of, copy_in, keep_in
from ckpt_surgery.storage.listing import real_path
from ckpt_surgery.system import signals
from ckpt_surgery.system.resources import release_memory
from ckpt_surgery.verification.new_checkpoints import Product, verify_mode, verify_written
from ckpt_surgery.verification.record import Shards, record_text, room_for_record


class RunArguments(TypedDict, total=False):
    """How a plan is carried out: what `apply` describes, and `convert` and `merge` take too."""

    overwrite: bool
    resume: bool
    verify: Verify | str
    copy_config: bool | None
    engine: str
    scheduler: str | None
    progress: Callable[[Progress], None] | None
    on_plan: Callable[[Plan], None] | None


class ApplyArguments(RunArguments, PlanOptions, total=False):
    """Arguments of `apply` that are given by name."""


class ConvertArguments(RunArguments, ConvertOptions, total=False):
    """Arguments of `convert` and `merge` that are given by name."""


@dataclass(frozen=True)
class RunOptions:
    """How a plan is carried out, in one form: `RunArguments`, with their defaults."""

    overwrite: bool = False
    resume: bool = False
    verify: Verify = Verify.FAST
    copy_config: bool | None = None
    engine: str = "local"
    scheduler: str | None = None
    progress: Callable[[Progress], None] | None = None
    on_plan: Callable[[Plan], None] | None = None


def run_options(given: RunArguments) -> RunOptions:
    """The options of a run among these arguments. Raises UsageError for a mode that is none."""
    chosen: dict[str, Any] = {
        name: value for name, value in given.items() if name in RunArguments.__annotations__
    }
    return RunOptions(**{**chosen, "verify": verify_mode(chosen.get("verify", Verify.FAST))})


# --- the result ---------------------------------------------------------------------------------------------


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


def without_checksums(plan: Plan, zarr: int) -> tuple[str, ...]:
    """What is said after a run that wrote new arrays in version 2 of zarr, which has no checksums."""
    if zarr != 2 or not any(step.transfer is Transfer.COMPUTE and step.leaf.nbytes for step in plan.steps):
        return ()
    return ("zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does",)


# --- the run ------------------------------------------------------------------------------------------------


def run_here(request: Request, options: RunOptions, wanted: Wanted) -> Result:
    """Plan, check and carry out a request in this process."""
    started = time.monotonic()
    with signals.interruptible():
        prepared = sampled(plan_for_destination(request, options.overwrite))
        check_values(prepared.plan, prepared.sources)
        companions = companions_of(prepared, wanted)
        if options.on_plan is not None:
            options.on_plan(prepared.plan)
        result, notices = _write_and_publish(prepared, place_of(request), options, companions)
    return ended(result, started, str(request.dst), notices)


def plan_for_destination(request: Request, overwrite: bool) -> Prepared:
    """The plan of a request whose result can be published at its destination."""
    where = place_of(request)
    replaces = check_before(where, request.inputs, request.beside, overwrite)
    return check_after(where, replaces, prepare(request), overwrite)


@memory_errors("write the checkpoint")
def _write_and_publish(
    prepared: Prepared, where: Publication, options: RunOptions, companions: Sequence[Companion]
) -> tuple[Result, tuple[str, ...]]:
    """Returns the result, and the notices of its stage."""
    plan, means = prepared.plan, worker.Means(prepared.memory, prepared.workers, options.progress)
    with staged(stage_for(prepared, where), options.resume) as stage:
        sink = open_sink(prepared, where, stage.work, room_for(prepared))
        journal = stage.journal(worker.HERE)
        written = worker.run(plan, prepared.sources, sink, means, journal)
        ending = Ending(where, options.verify, companions, options.progress)
        result = verify_and_publish(prepared, sink, stage, written, ending)
    return result, stage.notices


# --- its end ------------------------------------------------------------------------------------------------


def room_for(prepared: Prepared, shards: Shards | None = None) -> int:
    """Bytes for the record that the sink of a plan is opened with; 0 where its format reserves none."""
    form = prepared.form
    return room_for_record(prepared.plan, shards, form.holds_config) if form.reserves_record else 0


@dataclass(frozen=True)
class Ending:
    """How a run ends: what is verified, and what is published beside the checkpoint."""

    where: Publication
    verify: Verify
    companions: Sequence[Companion] = ()
    """Config and tokenizer files."""
    progress: Callable[[Progress], None] | None = None
    """Is told what is read back."""
    shards: Shards | None = None
    """Which machines have written it, and have read back what they wrote; None where this process has."""


def verify_and_publish(
    prepared: Prepared, sink: Sink, stage: Stage, written: Written, ending: Ending
) -> Result:
    """Verify what the sink wrote, then publish it.

    The caller adds to the result what it alone knows: seconds, destination, notices of the stage. Raises
    SourceError where a source has changed, VerificationError, DestinationError, StorageError.
    """
    plan = prepared.plan
    check_unchanged(plan, prepared.sources, "Nothing was published; run again when nothing writes to it.")
    release_memory()  # reading back begins with the whole budget
    copied = copy_in(ending.companions, stage.work) if prepared.form.holds_config else ()
    if isinstance(sink, KeepingSink):
        keep_in(ending.companions, sink.record_directory)
    recorded = partial(record_text, plan, files=written.files, shards=ending.shards, companions=copied)
    text = recorded(written.digests)
    inside = sink.record(text)
    product = Product(stage.product, ending.where.step_only, text)
    found = verify_written(prepared, product, ending.verify, ending.shards is not None, ending.progress)
    text = recorded({**written.digests, **found.digests}, structure=found.structure)
    if not inside:
        stage.put_beside(text)
    else:
        sink.record(text)
    result = _result(prepared, written, found.run, ending.companions)
    stage.publish()
    return result


def _result(
    prepared: Prepared, written: Written, verified: VerifiedRun, companions: Sequence[Companion]
) -> Result:
    plan = plan_as_executed(prepared.plan, written.files)
    overflowed = tuple(
        Overflowed(plan.steps[number].leaf.key.text, count)
        for number, count in sorted(written.overflowed.items())
        if count
    )
    notices = (
        *overflow_notices(overflowed),
        *copy_notices(written.files),
        *without_checksums(plan, prepared.destination.zarr),
    )
    return Result(
        plan,
        notices=notices,
        shared=tuple(file for file in written.files if file.how is LinkMode.HARDLINK),
        verified=verified,
        companions=along(companions),
        overflowed=overflowed,
    )
