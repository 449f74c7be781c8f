"""Verification of a checkpoint that was written, before it is published: against its plan and its checksums.

The checkpoint is opened again through its format's own reader, as whoever restores it will open it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import Problem, SourceError, UsageError, VerificationError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.destinations import DEFAULT_ITEM
from ckpt_surgery.engine.tracking import Written
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.chunk_checks import chunk_flaw
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Step
from ckpt_surgery.readback import Findings, read_leaves
from ckpt_surgery.records import UNKNOWN
from ckpt_surgery.report.verification import Flaw, VerifiedRun, Verify, flaw_text
from ckpt_surgery.storage.failures import DAMAGED, told
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.views import forget
from ckpt_surgery.structure import Structure, place_of_record, structure_of
from ckpt_surgery.wholeness import check_chunks, check_copies, check_grid

MOST_TOLD = 10
"""Number of flaws that an error names."""
HINT = "Nothing was published. Run again; if it happens twice, test the memory and the disk of this machine."


def verify_mode(text: Verify | str) -> Verify:
    """The mode of that name. Raises UsageError."""
    if text not in list(Verify):
        raise UsageError(f"`verify`: {shown(repr(text))} is not one of: {', '.join(Verify)}")
    return Verify(text)


@dataclass(frozen=True)
class Verification:
    """What verification found where nothing is wrong."""

    run: VerifiedRun
    digests: Mapping[int, Digests]
    """Checksums of linked outputs, where their values were read, by the positions of their steps."""
    structure: Structure
    """Checksums of what describes the checkpoint; unknown where nothing was verified."""


def verify_written(
    prepared: Prepared,
    product: str,
    written: Written,
    mode: Verify,
    step_only: bool,
    reread: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Verification:
    """Check a checkpoint that is not published yet; `product` is its temporary directory or file.

    `step_only`: it is one step, for a CheckpointManager directory that exists. `reread`: each worker has read
    back what it computed; in formats whose workers write files of their own nothing else can have changed
    that, and only `full` reads it again. `progress` is called from any thread.

    Raises VerificationError, which names leaf and chunk, and SourceError where a chunk of a source is cut
    short.
    """
    plan = prepared.plan
    if mode is Verify.NONE:
        return Verification(VerifiedRun(mode, 0, plan.costs.bytes_out), {}, UNKNOWN)
    findings = Findings()
    source, leaves = _reopened(prepared, product, step_only)
    _compare_leaves(plan.steps, leaves, findings)
    _raise(findings.flaws, prepared)
    stored, known, linked = _sorted_out(plan.steps, leaves, written.digests)
    for leaf in leaves.values():
        check_grid(leaf, findings)
    trusted: Mapping[str, Leaf] = {}
    if reread and mode is Verify.FAST and formats.named(prepared.destination.format).separate_files:
        trusted = {
            step.leaf.key.text: leaves[step.leaf.key.text] for step in plan.steps if step.cut is not None
        }
    check_chunks([*stored, *trusted.values()], findings, prepared.memory, prepared.workers)
    check_copies(os.path.dirname(place_of_record(source)), written.files, findings)
    _raise(findings.flaws, prepared)
    unknown = linked if mode is Verify.FULL else {}
    known = [(leaf, digests) for leaf, digests in known if leaf.key.text not in trusted]
    found = read_leaves(
        source, known, unknown.values(), findings, prepared.memory, prepared.workers, progress
    )
    _raise(findings.flaws, prepared)
    skipped = sum(leaf.nbytes for leaf in linked.values() if leaf.key.text not in unknown)
    keys = {step.leaf.key.text: number for number, step in enumerate(plan.steps)}
    run = VerifiedRun(mode, plan.costs.bytes_out - skipped, skipped)
    more = {keys[key]: digests for key, digests in found.items()}
    return Verification(run, more, structure_of(source, leaves))


def _sorted_out(
    steps: Sequence[Step], leaves: Mapping[str, Leaf], digests: Mapping[int, Digests]
) -> tuple[list[Leaf], list[tuple[Leaf, Digests]], dict[str, Leaf]]:
    """Leaves whose stored bytes were taken over, leaves with checksums, and linked leaves by key."""
    stored, known, linked = [], [], {}
    for number, step in enumerate(steps):
        leaf = leaves[step.leaf.key.text]
        if step.stored is not None:
            stored.append(leaf)
        if number in digests:
            known.append((leaf, digests[number]))
        elif leaf.spec is not None and leaf.spec.size:
            linked[leaf.key.text] = leaf
    return stored, known, linked


def _reopened(prepared: Prepared, product: str, step_only: bool) -> tuple[Source, Mapping[str, Leaf]]:
    options = prepared.destination
    step = None if step_only else options.step
    item = options.item or (None if options.step is None else DEFAULT_ITEM)
    forget()  # what was listed before it was written
    try:
        source = formats.open_source(product, options.format, step, item)
        return source, source.leaves()
    except (SourceError, UsageError) as error:  # UsageError: it is not there
        raise VerificationError(
            *(
                replace(p, message=f"what was written cannot be read: {p.message}", hint=HINT)
                for p in error.problems
            )
        ) from error


# --- leaves -----------------------------------------------------------------------------------------------


def _compare_leaves(steps: Sequence[Step], leaves: Mapping[str, Leaf], findings: Findings) -> None:
    """Note what the plan has and the checkpoint has not, the other way round, and where they differ."""
    wanted = {step.leaf.key.text: step.leaf for step in steps}
    for key in wanted.keys() - leaves.keys():
        findings.add(key, None, "it is missing")
    for key in leaves.keys() - wanted.keys():
        findings.add(key, None, "it is in the checkpoint, but not in the plan")
    for key in wanted.keys() & leaves.keys():
        one, other = wanted[key], leaves[key]
        if _essence(one) != _essence(other):
            findings.add(key, None, f"it is {_described(other)}, not {_described(one)}")


def _essence(leaf: Leaf) -> tuple[object, ...]:
    """What must be the same of a leaf when it is read back. Some formats do not tell scalars from arrays."""
    kind = LeafKind.ARRAY if leaf.kind is LeafKind.SCALAR else leaf.kind
    return kind, leaf.spec, leaf.prng_impl, leaf.string


def _described(leaf: Leaf) -> str:
    match leaf.kind:
        case LeafKind.STRING:
            return f"the string {abridged(leaf.string)}"
        case LeafKind.EMPTY:
            return "an empty node"
        case LeafKind.PRNG_KEY:
            return f"a PRNG key ({leaf.prng_impl}), {leaf.spec}"
        case _:
            return str(leaf.spec)


# --- errors -----------------------------------------------------------------------------------------------


def _raise(flaws: Sequence[Flaw], prepared: Prepared) -> None:
    """Raise what the flaws are, if there are any."""
    if not flaws:
        return
    steps = {step.leaf.key.text: step for step in prepared.plan.steps}
    for flaw in flaws:
        if flaw.key in steps and flaw.chunk is not None:
            _check_source(steps[flaw.key], flaw)
    told_ones = [Problem(flaw_text(flaw)) for flaw in flaws[:MOST_TOLD]]
    more = len(flaws) - MOST_TOLD
    last = told_ones.pop()
    rest = f"; and {more} more" if more > 0 else ""
    raise VerificationError(*told_ones, Problem(f"{last.message}{rest}", hint=HINT))


def _check_source(step: Step, flaw: Flaw) -> None:
    """Raises SourceError where the source's own chunk has a flaw: the link is as good as what it links."""
    assert flaw.chunk is not None
    chunk = None if step.stored is None else step.stored.chunks.get(flaw.chunk)
    if chunk is None or step.stored is None or not chunk.file:
        return
    try:
        with opened(chunk.file) as file:
            found = chunk_flaw(step.stored, chunk, file)
    except SourceError as error:
        found = told(error)
    if found is not None:
        raise SourceError(
            f"{flaw_text(replace(flaw, what=found))} (in {shown(chunk.file)}, at byte {chunk.offset})",
            hint=DAMAGED,
        )
