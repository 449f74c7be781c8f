"""Check that files and chunks of a checkpoint are whole, without reading values."""

import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Shape, chunk_regions, grid_counts
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.file_states import FileState, change
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.formats.shared.zarr.chunk_checks import chunk_flaw
from ckpt_surgery.storage.failures import one_line
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.samples import state_of
from ckpt_surgery.system import threads
from ckpt_surgery.verification.reading_back import (
    PIECE,
    FlawCollector,
    compare_file,
    ends_early,
    file_batches,
)

SAMPLED_TOGETHER = 16
"""Number of files that one thread samples in a batch."""
Place = tuple[Leaf, Shape, Chunk]
"""A chunk, its leaf, and its index in the leaf's grid."""


def check_chunks(leaves: Iterable[Leaf], findings: FlawCollector, means: Means) -> None:
    """Check that the chunks of these leaves are whole, by a few bytes of each; opens each file once."""
    places = (
        (leaf, index, chunk)
        for leaf in leaves
        if leaf.manifest is not None
        for index, chunk in leaf.manifest.chunks.items()
    )
    batches = file_batches(places, lambda place: (place[2].file, place[2].offset), lambda _: 0)
    check = partial(_check_batch, findings=findings)
    threads.run_all(check, batches, lambda _: PIECE, means.memory, means.workers)


def _check_batch(batch: list[Place], findings: FlawCollector) -> None:
    leaf, index, chunk = batch[0]
    try:
        with opened(chunk.file) if chunk.file else nullcontext() as file:
            for leaf, index, chunk in batch:
                assert leaf.manifest is not None
                stop = chunk.offset + chunk.length
                if file is not None and stop > file.stat.size:
                    findings.add(leaf.key.text, index, ends_early(file, stop))
                elif (flaw := chunk_flaw(leaf.manifest, chunk, file)) is not None:
                    findings.add(leaf.key.text, index, flaw)
    except SourceError as error:
        findings.add(leaf.key.text, index, one_line(error))


def check_grid(leaf: Leaf, findings: FlawCollector) -> None:
    """Note chunks of the grid that have no stored bytes."""
    manifest = leaf.manifest
    if manifest is None or manifest.complete:
        return
    counts = grid_counts(manifest.spec.shape, manifest.chunk_shape)
    for region in chunk_regions(counts, (1,) * len(counts)):
        if region.starts not in manifest.chunks:
            findings.add(leaf.key.text, region.starts, "its stored bytes are missing")
            return


def check_copies(directory: str, files: Iterable[AdoptedFile], findings: FlawCollector) -> None:
    """Compare whole files that were copied with their checksums; names are relative to `directory`."""
    for copy in files:
        if copy.crc32c is not None:
            compare_file(os.path.join(directory, copy.name), copy.name, None, copy.crc32c, findings)


def check_shared(
    directory: str, files: Sequence[AdoptedFile], findings: FlawCollector, means: Means
) -> list[AdoptedFile]:
    """Compare sizes and samples of adopted whole files with those in the record.

    Returns the hard links whose time alone differs: they were copied, touched, or rewritten outside their
    samples.
    """
    retimed: list[AdoptedFile] = []

    def check(batch: Sequence[AdoptedFile]) -> None:
        for file in batch:
            raise_if_cancelled()
            try:
                now = state_of(os.path.join(directory, file.name), of_objects=True)
            except SourceError as error:
                findings.add(None, None, one_line(error))
                continue
            before = FileState(file.size, file.modified, now.version, file.sample)
            shared, what = file.how is LinkMode.HARDLINK, change(before, now, times=False)
            if what:
                why = f", which it shares with {shown(file.source)}," if shared else ""
                message = f"its file {shown(file.name)}{why} has changed since it was written: {what}"
                findings.add(None, None, message)
            elif shared and now.modified != file.modified:
                retimed.append(file)

    parts = [files[at : at + SAMPLED_TOGETHER] for at in range(0, len(files), SAMPLED_TOGETHER)]
    threads.run_all(check, parts, lambda _: PIECE, means.memory, means.workers)
    return retimed
