"""Whether the files and chunks of a checkpoint are whole, as far as that is known without reading values."""

import os
from collections.abc import Iterable, Iterator, Sequence

from ckpt_surgery.core.arrays import Shape, chunk_regions, grid_counts
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.file_states import FileState, change
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import AdoptedFile, LinkMode
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.chunk_checks import chunk_flaw
from ckpt_surgery.storage.failures import told
from ckpt_surgery.storage.reading import OpenFile, opened
from ckpt_surgery.storage.samples import state_of
from ckpt_surgery.system import threads
from ckpt_surgery.verification.reading_back import BATCH_COUNT, PIECE, Findings, differs, range_crc

SAMPLED_TOGETHER = 16
"""Files that one thread samples before it takes others."""
Place = tuple[Leaf, Shape, Chunk]
"""A chunk, its leaf, and its index in the leaf's grid."""


def check_chunks(leaves: Iterable[Leaf], findings: Findings, memory: int, workers: int) -> None:
    """Check by a few bytes of each that the chunks of these leaves are whole; each file is opened once."""
    by_file: dict[str, list[Place]] = {}
    for leaf in leaves:
        if leaf.manifest is None:
            continue
        for index, chunk in leaf.manifest.chunks.items():
            by_file.setdefault(chunk.file, []).append((leaf, index, chunk))
    items = [part for found in by_file.values() for part in _parts(found)]
    threads.run_all(lambda part: _check_part(part, findings), items, lambda _: PIECE, memory, workers)


def _parts(found: list[Place]) -> Iterator[list[Place]]:
    found.sort(key=lambda one: one[2].offset)
    for at in range(0, len(found), BATCH_COUNT):
        yield found[at : at + BATCH_COUNT]


def _check_part(part: list[Place], findings: Findings) -> None:
    path = part[0][2].file
    try:
        if not path:
            _check_in(None, part, findings)
        else:
            with opened(path) as file:
                _check_in(file, part, findings)
    except SourceError as error:
        findings.add(part[0][0].key.text, part[0][1], told(error))


def _check_in(file: OpenFile | None, part: list[Place], findings: Findings) -> None:
    for leaf, index, chunk in part:
        assert leaf.manifest is not None
        if file is not None and chunk.offset + chunk.length > file.stat.size:
            what = f"its file ends at byte {file.stat.size}, before byte {chunk.offset + chunk.length}"
            findings.add(leaf.key.text, index, what)
            continue
        flaw = chunk_flaw(leaf.manifest, chunk, file)
        if flaw is not None:
            findings.add(leaf.key.text, index, flaw)


def check_grid(leaf: Leaf, findings: Findings) -> None:
    """Note chunks of the grid that have no stored bytes."""
    manifest = leaf.manifest
    if manifest is None or manifest.complete:
        return
    counts = grid_counts(manifest.spec.shape, manifest.chunk_shape)
    for region in chunk_regions(counts, (1,) * len(counts)):
        if region.starts not in manifest.chunks:
            findings.add(leaf.key.text, region.starts, "its stored bytes are missing")
            return


def check_copies(directory: str, files: Iterable[AdoptedFile], findings: Findings) -> None:
    """Compare whole files that were copied with their checksums; names are relative to `directory`."""
    for copy in files:
        if copy.crc32c is not None:
            try:
                with opened(os.path.join(directory, copy.name)) as file:
                    crc = range_crc(file, 0, file.stat.size, memoryview(bytearray(PIECE)))
            except SourceError as error:
                findings.add(None, None, told(error))
                continue
            if crc != copy.crc32c:
                findings.add(None, None, f"the file {shown(copy.name)}: {differs(crc, copy.crc32c)}")


def check_shared(
    directory: str, files: Sequence[AdoptedFile], findings: Findings, memory: int, workers: int
) -> list[AdoptedFile]:
    """Compare sizes and samples of whole files that came from sources with those in the record.

    Returns the hard links whose time alone differs: they were copied, touched, or rewritten outside their
    samples; and in records of earlier versions, which took no samples, contents may differ, too.
    """
    retimed: list[AdoptedFile] = []

    def check(batch: Sequence[AdoptedFile]) -> None:
        for file in batch:
            raise_if_cancelled()
            try:
                now = state_of(os.path.join(directory, file.name), of_objects=True)
            except SourceError as error:
                findings.add(None, None, told(error))
                continue
            before = FileState(file.size, file.modified, now.version, file.sample)
            shared, what = file.how is LinkMode.HARDLINK, change(before, now, times=False)
            if what:
                why = f", which it shares with {shown(file.source)}," if shared else ""
                told_of = f"its file {shown(file.name)}{why} has changed since it was written: {what}"
                findings.add(None, None, told_of)
            elif shared and now.modified != file.modified:
                retimed.append(file)

    parts = [files[at : at + SAMPLED_TOGETHER] for at in range(0, len(files), SAMPLED_TOGETHER)]
    threads.run_all(check, parts, lambda _: PIECE, memory, workers)
    return retimed
