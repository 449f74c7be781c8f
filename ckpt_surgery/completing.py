"""The end of a run: the record, the verification of all that was written, and the publication."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ckpt_surgery.companions import along, copy_in, keep_in
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Companion, KeepingSink, Sink
from ckpt_surgery.engine.resources import release_memory
from ckpt_surgery.engine.staging.life import Stage
from ckpt_surgery.engine.staging.stages import Publication
from ckpt_surgery.engine.tracking import Written
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.preparing import check_unchanged
from ckpt_surgery.prepublication import verify_written
from ckpt_surgery.records import Shards, record_text, room_for_record
from ckpt_surgery.remarks import without_checksums
from ckpt_surgery.report.verification import VerifiedRun, Verify
from ckpt_surgery.results import (
    Result,
    copy_notices,
    overflow_notices,
    overflowed_leaves,
    plan_as_executed,
    shared,
)


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
    step_only, trusted = ending.where.step_only, ending.shards is not None
    found = verify_written(prepared, stage.product, text, ending.verify, step_only, trusted, ending.progress)
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
    overflowed = overflowed_leaves(plan, written.overflowed)
    notices = (
        *overflow_notices(overflowed),
        *copy_notices(written.files),
        *without_checksums(plan, prepared.destination.zarr),
    )
    return Result(
        plan,
        notices=notices,
        shared=shared(written.files),
        verified=verified,
        companions=along(companions),
        overflowed=overflowed,
    )
