"""The end of a run: the record, the verification of all that was written, and the publication."""

from collections.abc import Callable, Sequence
from functools import partial

from ckpt_surgery.companions import along, copy_in, keep_in
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Companion, KeepingSink, Sink
from ckpt_surgery.engine.resources import release_memory
from ckpt_surgery.engine.staging.life import Stage
from ckpt_surgery.engine.tracking import Written
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.preparing import check_unchanged
from ckpt_surgery.prepublication import verify_written
from ckpt_surgery.records import Shards, record_text, room_for_record
from ckpt_surgery.remarks import without_checksums
from ckpt_surgery.report.verification import VerifiedRun, Verify
from ckpt_surgery.results import Result, overflow_notices, overflowed_leaves
from ckpt_surgery.sharing import carried_out, copy_notices, shared


def room_for(prepared: Prepared, shards: Shards | None = None) -> int:
    """Bytes for the record that the sink of a plan is opened with; 0 where its format reserves none."""
    form = prepared.form
    return room_for_record(prepared.plan, shards, form.holds_config) if form.reserves_record else 0


def completed(
    prepared: Prepared,
    sink: Sink,
    stage: Stage,
    written: Written,
    mode: Verify,
    step_only: bool,
    shards: Shards | None = None,
    progress: Callable[[Progress], None] | None = None,
    companions: Sequence[Companion] = (),
) -> Result:
    """Verify a checkpoint whose sink has finished, and publish it.

    `step_only`: it is one step, for a CheckpointManager directory that exists. `shards`: which machines have
    written it, and have read back what they wrote; None where this process has done so alone. `progress` is
    told what is read back. `companions`: files that come along, and are published with it. The caller adds
    to the result what it alone knows: seconds, destination, notices of the stage.

    Raises SourceError where a source has changed, VerificationError, DestinationError, StorageError.
    """
    plan = prepared.plan
    check_unchanged(plan, prepared.sources, "Nothing was published; run again when nothing writes to it.")
    release_memory()  # reading back begins with the whole budget
    copied = copy_in(companions, stage.work) if prepared.form.holds_config else ()
    if isinstance(sink, KeepingSink):
        keep_in(companions, sink.record_directory)
    recorded = partial(record_text, plan, files=written.files, shards=shards, companions=copied)
    text = recorded(written.digests)
    inside = sink.record(text)
    found = verify_written(prepared, stage.product, text, mode, step_only, shards is not None, progress)
    text = recorded({**written.digests, **found.digests}, structure=found.structure)
    if not inside:
        stage.put_beside(text)
    else:
        sink.record(text)
    result = _result(prepared, written, found.run, companions)
    stage.publish()
    return result


def _result(
    prepared: Prepared, written: Written, verified: VerifiedRun, companions: Sequence[Companion]
) -> Result:
    plan = carried_out(prepared.plan, written.files)
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
