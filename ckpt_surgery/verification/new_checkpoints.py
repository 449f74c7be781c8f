"""Verify a written checkpoint against its plan and its checksums before it is published.

The checkpoint is opened again through its format's own reader, as whoever restores it will open it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import floordiv

from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import Problem, SourceError, UsageError, VerificationError, in_one_line
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.progress import Report
from ckpt_surgery.core.protocols import Sink
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.engine.tasks import ShardProgress, Task
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.shared.zarr.chunk_checks import chunk_flaw
from ckpt_surgery.planner.plan import Plan, Step
from ckpt_surgery.planner.prepared import DEFAULT_ITEM, Prepared
from ckpt_surgery.report.verification import Flaw, VerifiedRun, Verify, flaw_text
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.record_files import record_path
from ckpt_surgery.storage.views import forget
from ckpt_surgery.verification.reading_back import Checker, ExpectedValues
from ckpt_surgery.verification.record import (
    UNKNOWN,
    DescriptionChecksums,
    Record,
    description_checksums,
    digests_of,
    parse_record,
)

MOST_TOLD = 10
"""Limit on the flaws that an error names."""
HINT = "Nothing was published. Run again; if it happens twice, test the memory and the disk of this machine."


@dataclass(frozen=True)
class Verification:
    """Result of a successful verification."""

    run: VerifiedRun
    digests: Mapping[int, Digests]
    """Checksums of linked outputs whose values were read, by the positions of their steps."""
    structure: DescriptionChecksums
    """Checksums of the checkpoint's descriptions; unknown if nothing was verified."""


def verify_written(
    prepared: Prepared,
    product: str,
    record: str,
    mode: Verify,
    *,
    step_only: bool,
    reread: bool = False,
    progress: Report | None = None,
) -> Verification:
    """Check an unpublished checkpoint, the temporary directory or file `product`, by the text of its record.

    `step_only`: it is one step, for an existing CheckpointManager directory.
    `reread`: each worker has read back what it computed; in formats whose workers write files of their own
    nothing else can have changed that, and only `full` reads it again. `progress` is called from any thread.

    Raises VerificationError, which names leaf and chunk, and SourceError if a chunk of a source is cut
    short.
    """
    plan, options = prepared.plan, prepared.destination
    if mode is Verify.NONE:
        return Verification(VerifiedRun(mode, 0, plan.costs.bytes_out), {}, UNKNOWN)
    checker = Checker(Means(prepared.memory, prepared.workers, progress))
    recorded = parse_record(record)
    step = None if step_only else options.step
    item = options.item or (None if options.step is None else DEFAULT_ITEM)
    forget()  # what was listed before it was written
    try:
        source = opening.open_source(product, options.format, step, item)
        leaves = source.leaves()
    except (SourceError, UsageError) as error:  # UsageError: it is not there
        what = "what was written cannot be read"
        problems = (replace(p, message=f"{what}: {p.message}", hint=HINT) for p in error.problems)
        raise VerificationError(*problems) from error
    _compare_leaves(plan.steps, leaves, checker)
    _raise(checker.flaws, plan)
    arrays, known = arrays_of(leaves), recorded_digests(recorded, leaves, checker)
    computed = {step.leaf.key.text for step in plan.steps if step.cut is not None}
    separate = formats.format_named(options.format).separate_files
    trusted = computed if reread and separate and mode is Verify.FAST else frozenset()
    for leaf in arrays.values():
        checker.check_grid(leaf)
    # What is read anyway needs no look at its chunks.
    by_chunks = (leaf for key, leaf in arrays.items() if key in trusted or key not in computed)
    checker.check_chunks(by_chunks)
    checker.check_copies(os.path.dirname(record_path(source)), recorded.files)
    _raise(checker.flaws, plan)
    to_compare = [(leaves[key], digests) for key, digests in known.items() if key not in trusted]
    linked = [leaf for key, leaf in arrays.items() if key not in known]
    unknown, skipped = (linked, 0) if mode is Verify.FULL else ([], sum(leaf.nbytes for leaf in linked))
    computed_now = checker.read_leaves(source, to_compare, unknown)
    _raise(checker.flaws, plan)
    run = VerifiedRun(mode, plan.costs.bytes_out - skipped, skipped)
    numbers = {step.leaf.key.text: number for number, step in enumerate(plan.steps)}
    crcs = {numbers[key]: digests for key, digests in computed_now.items()}
    return Verification(run, crcs, description_checksums(source, leaves))


def read_back(plan: Plan, sink: Sink, part: ShardProgress, tasks: Sequence[Task], means: Means) -> None:
    """Compare a worker's results with the stored values.

    `tasks` are the worker's. What was copied is compared where the checkpoint is put together. Raises
    VerificationError, with the key.
    """
    writer, checker = sink.attach(part.worker), Checker(means)
    outputs = {plan.steps[task.step].leaf.key.text: sink.outputs[task.step] for task in tasks}
    values = []
    for task in tasks:
        step, crc = plan.steps[task.step], part.done[task.number].crc
        if step.cut is not None and crc is not None:
            index = tuple(map(floordiv, task.region.starts, step.cut.block))
            values.append(ExpectedValues(step.leaf, task.region, index, crc))
    read = lambda cell: writer.read(outputs[cell.leaf.key.text], cell.region)  # noqa: E731
    checker.compare_values(read, values, lambda group: max(cell.nbytes for cell in group))
    again = "The shard counts as not done. Run it again; if it happens twice, test the memory and the disk."
    _raise(checker.flaws, plan, again)


def arrays_of(leaves: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Leaves with elements, by the texts of their keys."""
    return {key: leaf for key, leaf in leaves.items() if leaf.spec is not None and leaf.spec.size}


def recorded_digests(record: Record, leaves: Mapping[str, Leaf], checker: Checker) -> dict[str, Digests]:
    """Read the checksums of the record by the texts of keys; entries without a leaf are flaws."""
    known = {}
    for key, (grid, of_values, crcs) in record.grids.items():
        leaf = leaves.get(key)
        if leaf is None or leaf.spec is None:
            checker.add(key, None, "it is in the record, and not in the checkpoint")
            continue
        digests = digests_of(grid, of_values, crcs, leaf.spec.shape)
        if digests is None:
            what = f"it is {leaf.spec}, and its checksums in the record are of another shape"
            checker.add(key, None, what)
        elif leaf.spec.size:
            known[key] = digests
    return known


def _compare_leaves(steps: Sequence[Step], leaves: Mapping[str, Leaf], checker: Checker) -> None:
    """Note leaves that are only in the plan or only in the checkpoint, and those that differ."""
    wanted = {step.leaf.key.text: step.leaf for step in steps}
    for key in dict.fromkeys([*wanted, *leaves]):
        expected, stored = wanted.get(key), leaves.get(key)
        if stored is None:
            checker.add(key, None, "it is missing")
        elif expected is None:
            checker.add(key, None, "it is in the checkpoint, but not in the plan")
        elif _essence(expected) != _essence(stored):
            checker.add(key, None, f"it is {_described(stored)}, not {_described(expected)}")


def _essence(leaf: Leaf) -> tuple[object, ...]:
    """Properties of a leaf that reading back must preserve. Some formats do not tell scalars from arrays."""
    kind = LeafKind.ARRAY if leaf.kind is LeafKind.SCALAR else leaf.kind
    return kind, leaf.spec, leaf.prng_impl, leaf.string


def _described(leaf: Leaf) -> str:
    if leaf.kind is LeafKind.STRING:
        return f"the string {abridged(leaf.string)}"
    key = "" if leaf.prng_impl is None else f"a PRNG key ({leaf.prng_impl}), "
    return "an empty node" if leaf.spec is None else f"{key}{leaf.spec}"


def _raise(flaws: Sequence[Flaw], plan: Plan, hint: str = HINT) -> None:
    """Raise VerificationError for these flaws, if there are any."""
    if not flaws:
        return
    steps = {step.leaf.key.text: step for step in plan.steps}
    for flaw in flaws:
        if flaw.key in steps and flaw.chunk is not None:
            _check_source(steps[flaw.key], flaw)
    texts = [flaw_text(flaw) for flaw in flaws[:MOST_TOLD]]
    if len(flaws) > MOST_TOLD:
        texts[-1] += f"; and {len(flaws) - MOST_TOLD} more"
    raise VerificationError(*texts[:-1], Problem(texts[-1], hint=hint))


def _check_source(step: Step, flaw: Flaw) -> None:
    """Raise SourceError if the source's own chunk has the flaw, so that the link is not to blame."""
    assert flaw.chunk is not None
    chunk = None if step.stored is None else step.stored.chunks.get(flaw.chunk)
    if chunk is None or step.stored is None or not chunk.file:
        return
    try:
        with opened(chunk.file) as file:
            what = chunk_flaw(step.stored, chunk, file)
    except SourceError as error:
        what = in_one_line(error)
    if what is not None:
        where = f"(in {shown(chunk.file)}, at byte {chunk.offset})"
        raise SourceError(f"{flaw_text(replace(flaw, what=what))} {where}", hint=DAMAGED)
