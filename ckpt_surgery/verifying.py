"""Whether a checkpoint is still what was written: `verify`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.arguments import PathLike, Size, bytes_of
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import AdoptedFile, LinkMode, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine import signals
from ckpt_surgery.engine.resources import default_memory, default_workers
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.readback import (
    Findings,
    Work,
    add_leaf,
    add_unknown,
    check_chunks,
    check_copies,
    check_grid,
    read_back,
)
from ckpt_surgery.records import Malformed, Record, digests_of, place_of_record, record_of, with_digests
from ckpt_surgery.report.verification import Depth, Flaw, Verified
from ckpt_surgery.storage.failures import told
from ckpt_surgery.storage.listing import exists
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.record_files import put_record

NO_RECORD = "no digests are recorded: values were read, but not compared"
NO_RECORD_FAST = "no digests are recorded: only structure and sizes were checked"
READ_ONLY = "the checkpoint has no record of ckpt-surgery: digests of what was read are not recorded"


def verify(
    path: PathLike,
    *,
    mode: Depth | str = Depth.VALUES,
    step: int | None = None,
    item: str | None = None,
    src_format: str | None = None,
    memory: Size | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Verified:
    """Whether a checkpoint is whole and, where it has a record of ckpt-surgery, what was written.

    `mode`: `values` reads everything that has checksums in the record, or everything where there is no
    record; `fast` checks structure, sizes, and files that are shared with a source; `full` reads all values,
    and records checksums of those that have none. `step` and `item` choose from a checkpoint that holds
    several; `src_format` is what it is read as. `memory` is the budget: bytes, or a text such as `2GiB`;
    `workers` is the number of threads; `progress` is called from any thread.

    What is wrong is in the result. Raises UsageError, SourceError where the path holds no known format, and
    StorageError where the record cannot be written.
    """
    if mode not in list(Depth):
        raise UsageError(f"`mode`: {shown(repr(mode))} is none of: {', '.join(Depth)}")
    place, depth = os.fspath(path), Depth(mode)
    budget, threads = bytes_of("memory", memory) or default_memory(), workers or default_workers()
    chosen = src_format or (formats.detect_format(place).name if exists(place) else None)
    with signals.interruptible():
        try:
            source = formats.open_source(place, chosen, step, item)
            leaves = source.leaves()
        except SourceError as error:
            return Verified(place, depth, chosen or "", 0, 0, 0, (Flaw(None, None, told(error)),))
        return _Run(source, leaves, depth, budget, threads).done(progress)


@dataclass(frozen=True)
class _Run:
    """One verification of an open checkpoint."""

    source: Source
    leaves: Mapping[str, Leaf]
    mode: Depth
    memory: int
    workers: int

    def done(self, progress: Callable[[Progress], None] | None) -> Verified:
        """Check and read everything that the mode asks for."""
        findings, work = Findings(), Work()
        record = self._record(findings)
        arrays = {key: leaf for key, leaf in self.leaves.items() if leaf.spec is not None and leaf.spec.size}
        known = {} if record is None else _known(record, self.leaves, findings)
        if record is not None:
            _compare_count(record, self.leaves, findings)
            for leaf in arrays.values():
                check_grid(leaf, findings)
            self._check_files(record.files, findings)
        check_chunks(arrays, findings, self.memory, self.workers)
        unknown: Mapping[str, Leaf] = {}
        if self.mode is not Depth.FAST:
            for key, digests in known.items():
                add_leaf(work, findings, arrays[key], digests)
            if record is None or self.mode is Depth.FULL:
                unknown = {key: leaf for key, leaf in arrays.items() if key not in known}
        grids = {key: add_unknown(work, leaf, self.memory) for key, leaf in unknown.items()}
        findings.expect(work.nbytes, progress)
        read_back(self.source, work, findings, self.memory, self.workers)
        notices = self._notices(record, known)
        place = place_of_record(self.source)
        if record is not None and not findings.flaws and findings.crcs and exists(os.fspath(place)):
            found = {key: Digests(grids[key], True, crcs) for key, crcs in findings.crcs.items()}
            put_record(place, with_digests(record, self.leaves, found))
            notices = (*notices, f"digests of {len(found)} more leaves were recorded")
        read = 0 if self.mode is Depth.FAST else sum(arrays[key].nbytes for key in {*known, *unknown})
        total = sum(leaf.nbytes for leaf in arrays.values())
        return Verified(
            self.source.path,
            self.mode,
            self.source.format,
            len(self.leaves),
            read,
            total - read,
            tuple(findings.flaws),
            notices,
        )

    def _record(self, findings: Findings) -> Record | None:
        try:
            return record_of(self.source)
        except Malformed as error:
            findings.add(None, None, f"the record cannot be used: {shown(str(error))}")
        except SourceError as error:
            findings.add(None, None, f"the record cannot be read: {told(error)}")
        return None

    def _check_files(self, files: tuple[AdoptedFile, ...], findings: Findings) -> None:
        """Whole files that came from sources: those that are shared must be as they were."""
        directory = place_of_record(self.source).parent
        for file in files:
            _check_file(directory / file.name, file, findings)
        if self.mode is not Depth.FAST:
            check_copies(directory, files, findings)

    def _notices(self, record: Record | None, known: Mapping[str, Digests]) -> tuple[str, ...]:
        if record is not None:
            return ()
        if self.mode is Depth.FAST:
            return (NO_RECORD_FAST,)
        return (NO_RECORD, READ_ONLY) if self.mode is Depth.FULL else (NO_RECORD,)


def _known(record: Record, leaves: Mapping[str, Leaf], findings: Findings) -> dict[str, Digests]:
    """The checksums of the record by the texts of keys. Those that are of no leaf here are flaws."""
    found = {}
    for key, (grid, of_values, crcs) in record.grids.items():
        leaf = leaves.get(key)
        if leaf is None or leaf.spec is None:
            findings.add(key, None, "it is in the record, and not in the checkpoint")
            continue
        digests = digests_of(grid, of_values, crcs, leaf.spec.shape)
        if digests is None:
            findings.add(
                key, None, f"it is {leaf.spec}, and its checksums in the record are of another shape"
            )
        elif leaf.spec.size:
            found[key] = digests
    return found


def _compare_count(record: Record, leaves: Mapping[str, Leaf], findings: Findings) -> None:
    if record.leaf_count != len(leaves):
        what = f"the checkpoint has {len(leaves)} leaves, and its record is of {record.leaf_count}"
        findings.add(None, None, what)


def _check_file(path: Path, file: AdoptedFile, findings: Findings) -> None:
    try:
        found = stat_file(os.fspath(path))
    except SourceError as error:
        findings.add(None, None, told(error))
        return
    shared = file.how is LinkMode.HARDLINK
    if found.size != file.size or (shared and found.modified != file.modified):
        why = f", which it shares with {shown(file.source)}," if shared else ""
        findings.add(None, None, f"its file {shown(file.name)}{why} has changed since it was written")
