"""The end of a run: the record, the verification of all that was written, and the publication."""

from collections.abc import Callable, Sequence
from functools import partial

from ckpt_surgery.companions import copy_in, keep_in, may_have
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Companion, KeepingSink, Sink
from ckpt_surgery.engine.resources import release_memory
from ckpt_surgery.engine.staging.stage import Stage
from ckpt_surgery.engine.tracking import Written
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.preparing import check_unchanged
from ckpt_surgery.prepublication import verify_written
from ckpt_surgery.records import Shards, record_text
from ckpt_surgery.report.verification import VerifiedRun, Verify


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
) -> VerifiedRun:
    """Verify a checkpoint whose sink has finished, and publish it; says what was read back.

    `step_only`: it is one step, for a CheckpointManager directory that exists. `shards`: which machines have
    written it, and have read back what they wrote; None where this process has done so alone. `progress` is
    told what is read back. `companions`: files that come along, and are published with it.

    Raises SourceError where a source has changed, VerificationError, DestinationError, StorageError.
    """
    plan = prepared.plan
    check_unchanged(plan, prepared.sources, "Nothing was published; run again when nothing writes to it.")
    release_memory()  # reading back begins with the whole budget
    copied = copy_in(companions, stage.work) if may_have(prepared.destination) else ()
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
    stage.publish()
    return found.run
