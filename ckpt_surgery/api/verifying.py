"""`verify`: check that a checkpoint is still what was written."""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ckpt_surgery.core.arguments import PathLike, bytes_of, described, one_of
from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import SourceError, UsageError, in_one_line
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import ProgressLike
from ckpt_surgery.core.protocols import AdoptedFile, Source
from ckpt_surgery.core.text import bytes_text, few, number_of, shown
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs import options
from ckpt_surgery.inputs.opening import choice_at
from ckpt_surgery.inputs.request import path_of_source, uint16_at
from ckpt_surgery.report.verification import Depth, Flaw, Verified, VerifiedSample
from ckpt_surgery.runs.sidecars import edited_sidecars
from ckpt_surgery.storage.listing import exists, is_directory
from ckpt_surgery.storage.record_files import put_record, record_path
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system import signals
from ckpt_surgery.system.progress_bars import reported
from ckpt_surgery.system.resources import default_memory, default_workers
from ckpt_surgery.verification.new_checkpoints import arrays_of, recorded_digests
from ckpt_surgery.verification.reading_back import Checker
from ckpt_surgery.verification.record import Malformed, Record, add_digests, check_descriptions, load_record

NO_RECORD = "no digests are recorded: values were read, but not compared"
NO_SAMPLE = "no digests are recorded, so there is nothing to compare a sample with"
NO_RECORD_FAST = "no digests are recorded: only structure and sizes were checked"
READ_ONLY = "the checkpoint has no record of ckpt-surgery: digests of what was read are not recorded"


@described
def verify(
    path: PathLike,
    *,
    mode: Depth | str = Depth.VALUES,
    sample: options.Sample = None,
    seed: options.Seed = 0,
    step: options.Step = None,
    item: options.Item = None,
    src_format: options.SrcFormat = None,
    uint16: options.Uint16 = None,
    memory: options.Memory = None,
    workers: options.Workers = None,
    progress: ProgressLike = None,
) -> Verified:
    """Check that a checkpoint is complete and, if ckpt-surgery recorded it, unchanged since.

    `mode`: `values` reads everything that has checksums in the record, or everything where there is no
    record; `fast` checks structure, sizes, and files that are shared with a source; `full` reads all values,
    and records checksums of those that have none. `uint16` changes nothing: checksums are those of bits. With
    `sample`, damage in other chunks is not noticed. `progress`: see `apply`.

    Flaws are in the result. Raises UsageError, also for a sample where no checksums are recorded,
    SourceError where the path holds no known format, and StorageError where the record cannot be written.
    """
    with reported(progress) as report, memory_errors("verify the checkpoint"):
        depth = one_of("mode", mode, list(Depth))
        if sample is not None and not 0 < sample <= 1:
            hint = "Give a share, such as `sample=0.05` for a twentieth."
            raise UsageError(f"`sample` is {sample:g}, and has to be above 0 and at most 1", hint=hint)
        if sample is not None and depth is not Depth.VALUES:
            problem = f"`sample` is a part of what has digests, which `mode={depth}` does not read alone"
            raise UsageError(problem, hint="Leave out one of them.")
        forget()
        place = path_of_source(path)
        src_format, step, item = choice_at(place, step=step, item=item, src_format=src_format)
        uint16_at(place, uint16)
        budget = bytes_of("memory", memory) or default_memory()
        chosen = src_format or (opening.detect_format(place).name if exists(place) else None)
        with signals.interruptible():
            means = Means(budget, workers or default_workers(), report)
            try:
                source = opening.open_source(place, chosen, step, item)
                source.leaves()
            except SourceError as error:
                return Verified(place, depth, chosen or "", 0, 0, 0, (Flaw(None, None, in_one_line(error)),))
            return _verified(source, depth, means, None if sample is None else (sample, seed))


def _verified(source: Source, mode: Depth, means: Means, drawn: tuple[float, int] | None) -> Verified:
    """Check and read everything that the mode asks for; of what has digests, the share that a seed draws."""
    leaves, checker, record = source.leaves(), Checker(means), None
    arrays = arrays_of(leaves)
    try:
        record = load_record(source)
    except Malformed as error:
        checker.add(None, None, f"the record cannot be used: {shown(str(error))}")
    except SourceError as error:
        checker.add(None, None, f"the record cannot be read: {in_one_line(error)}")
    known = {} if record is None else recorded_digests(record, leaves, checker)
    retimed = [] if record is None else _check_against(record, source, mode, checker)
    checker.check_chunks(arrays.values())
    compared = [] if mode is Depth.FAST else [(leaves[key], crc) for key, crc in known.items()]
    reads_all = mode is Depth.FULL or (mode is Depth.VALUES and record is None)
    readable = {key: leaf for key, leaf in arrays.items() if leaf.unreadable is None}
    unknown = [leaf for key, leaf in readable.items() if key not in known] if reads_all else []
    sample = None
    if drawn is not None:
        if record is None and not checker.flaws:
            raise UsageError(NO_SAMPLE, hint="Leave out `sample` to read all values.")
        compared, sample = draw_sample(compared, *drawn)
        unknown = []
    computed = checker.read_leaves(source, compared, unknown)
    read = sum(leaf.nbytes for leaf in (*(leaf for leaf, _ in compared), *unknown))
    read = read if sample is None else sample.bytes_read
    unread = sum(leaf.nbytes for leaf in arrays.values()) - read
    times = _times_notice(retimed, unread, len(computed))
    others = _notices(record, source, mode, {} if checker.flaws else computed)
    notices = (*times, *others, *_sample_notice(sample))
    return Verified(
        source.path,
        mode,
        source.format,
        len(leaves),
        bytes_read=read,
        bytes_not_read=unread,
        flaws=tuple(checker.flaws),
        notices=notices,
        sample=sample,
    )


def _check_against(record: Record, source: Source, mode: Depth, checker: Checker) -> list[AdoptedFile]:
    """Check all that shows without digests; return the hard links of which the time alone has changed."""
    leaves, directory = source.leaves(), os.path.dirname(record_path(source))
    if record.leaf_count != len(leaves):
        what = f"the checkpoint has {len(leaves)} leaves, and its record is of {record.leaf_count}"
        checker.add(None, None, what)
    for leaf in arrays_of(leaves).values():
        checker.check_grid(leaf)
    check_descriptions(source, leaves, record.structure, checker)
    if mode is not Depth.FAST:
        checker.check_copies(directory, record.files)
    return checker.check_shared(directory, record.files)


def _notices(
    record: Record | None, source: Source, mode: Depth, computed: Mapping[str, Digests]
) -> tuple[str, ...]:
    """Say what could not be compared, and record the checksums of more leaves."""
    if record is None:
        if mode is Depth.FAST:
            return (NO_RECORD_FAST,)
        return (NO_RECORD, READ_ONLY) if mode is Depth.FULL else (NO_RECORD,)
    place = record_path(source)
    directory = source.path if is_directory(source.path) else os.path.dirname(source.path)
    edited = edited_sidecars(directory, record.companions)
    notices = (f"edited or removed since the checkpoint was written: {few(edited)}",) if edited else ()
    if not computed or not exists(place):
        return notices
    put_record(place, add_digests(record, source.leaves(), computed))
    return (*notices, f"digests of {len(computed)} more leaves were recorded")


def _sample_notice(sample: VerifiedSample | None) -> tuple[str, ...]:
    """Say what a sample does not prove."""
    left = 0 if sample is None else sample.regions - sample.regions_read
    if sample is None or not left:
        return ()
    which = f"{left:,} of {sample.regions:,} chunks with digests were not compared"
    seed = f"another `seed` than {sample.seed} draws others"
    return (f"a sample: {which}, and damage in them is not noticed; {seed}",)


def _times_notice(retimed: Sequence[AdoptedFile], unread: int, recorded: int) -> tuple[str, ...]:
    """A notice of files whose time alone has changed, while values have no digests from before that."""
    if not retimed or not (unread or recorded):
        return ()
    same = "size agrees" if any(file.sample is None for file in retimed) else "size and sample agree"
    rest = f"{bytes_text(unread)} were not read" if unread else "what was read had no digests to compare with"
    files = f"{number_of(len(retimed), 'linked file')}: only the time differs from the record"
    return (f"{files}, {same}, as after a copy or a touch; {rest}",)


LeafDigests = tuple[Leaf, Digests]
"""A leaf, and the expected digests of its regions."""


def draw_sample(
    wanted: Sequence[LeafDigests], share: float, seed: int
) -> tuple[list[LeafDigests], VerifiedSample]:
    """Draw the regions to read, at least this share of all decoded bytes, and describe the sample.

    Regions are drawn at random, each with the same chance; the same checkpoint and seed give the same ones.
    """
    regions = []
    for number, (leaf, digests) in enumerate(wanted):
        for index, nbytes in _regions(leaf, digests):
            text = f"{seed}\0{leaf.key.text}\0{index}".encode("utf-8", "surrogatepass")
            turn = hashlib.blake2b(text, digest_size=8).digest()
            regions.append((turn, number, index, nbytes))
    total = sum(nbytes for *_, nbytes in regions)
    chosen: dict[int, dict[Shape, int]] = {}
    read = count = 0
    for _, number, index, nbytes in sorted(regions):
        if read >= share * total:
            break
        chosen.setdefault(number, {})[index] = wanted[number][1].crcs[index]
        read, count = read + nbytes, count + 1
    parts = [(wanted[n][0], replace(wanted[n][1], crcs=crcs)) for n, crcs in sorted(chosen.items())]
    of_all = read / total if total else 1.0
    return parts, VerifiedSample(share, seed, count, len(regions), read, total, of_all)


def _regions(leaf: Leaf, digests: Digests) -> Iterable[tuple[Shape, int]]:
    """Regions of a leaf with digests, and their decoded bytes."""
    assert leaf.spec is not None
    shape, itemsize = leaf.spec.shape, leaf.spec.dtype.itemsize
    for index in digests.crcs:
        lengths = (min(n, s - i * n) for i, n, s in zip(index, digests.grid, shape, strict=True))
        yield index, math.prod(lengths) * itemsize
