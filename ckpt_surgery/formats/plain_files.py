"""The one source and the one sink of formats whose files are plain data, listed or planned."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.registry import FilePlan, Listing
from ckpt_surgery.storage.failures import about_key
from ckpt_surgery.storage.listing import digest, relative
from ckpt_surgery.storage.reading import opened, stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.regions import put_pieces


class ListedSource:
    """The source of every checkpoint that is listed as plain data. Safe to use from several threads."""

    def __init__(
        self, path: str, format: str, listing: Listing, rest: Callable[[], Listing] | None = None
    ) -> None:
        """`rest`: what makes the listing of leaves, and of what reading them takes, when they are first asked
        for; `listing` is then without them.
        """
        self.path, self.format = path, format
        self.step, self.item, self.metadata = listing.step, listing.item, listing.metadata
        self.details = listing.details
        self._first, self._rest = listing, rest

    @cached_property
    def _listing(self) -> Listing:
        return self._first if self._rest is None else self._rest()

    def leaves(self) -> Mapping[str, Leaf]:
        return self._listing.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        listing = self._listing
        with about_key(leaf.key):
            if leaf.unreadable is not None:
                raise SourceError(f"it {leaf.unreadable.why}", hint=leaf.unreadable.hint)
            reader = listing.readers.get(leaf.key.text)
            if reader is not None:
                return reader.read(region, listing.files)
            assert leaf.manifest is not None
            return read_stored(leaf.manifest, region, listing.files, listing.decode, listing.checks)

    def files(self) -> Iterator[str]:
        """Paths of all files, of which those that listing does not need may be missing."""
        directory = self._first.directory
        if directory is not None:
            yield from (os.path.join(directory.path, name) for name in directory.walked())
        else:
            yield from dict.fromkeys((*self._listing.files, *self._listing.expected_files))

    def fingerprint(self) -> str:
        directory = self._first.directory
        if directory is not None:
            return digest({name: stat for name, stat in directory.walked().items() if name != RECORD_NAME})
        return digest(relative({path: stat_file(path) for path in self._listing.files}))


class PlannedSink:
    """A `Sink` that writes these files into a directory. They are whole once it has finished.

    It is the `Writer` of all its workers, too: it buffers nothing. Safe to use from several threads.
    """

    def __init__(self, directory: Path, plans: Sequence[FilePlan], outputs: Sequence[Output]):
        self.outputs = outputs
        self._plans = {directory / plan.name: plan for plan in plans}
        self._directory = directory
        plans_of = self._plans.items()
        self._arrays = {text: (path, array) for path, plan in plans_of for text, array in plan.arrays.items()}
        """The file and the place of every array, by the text of its leaf's key."""

    def create(self) -> None:
        """Make every file in its full size, with everything but the elements."""
        for path, plan in self._plans.items():
            put_pieces(path, plan.pieces, plan.size)

    def attach(self, worker: str) -> "PlannedSink":
        return self

    def finish(self, workers: Sequence[str]) -> None:
        """Add what depends on the elements, such as checksums. Raises SourceError, too."""
        for path, plan in self._plans.items():
            if plan.seal is not None:
                with opened(os.fspath(path)) as written:
                    pieces = plan.seal(written)
                put_pieces(path, pieces)

    def record(self, text: str) -> bool:
        """Put the record beside several files, or into the only one that has room."""
        if len(self._plans) > 1:
            put_record(self._directory / RECORD_NAME, text)
            return True
        ((path, plan),) = self._plans.items()
        pieces = None if plan.record is None else plan.record(text)
        if pieces is None:
            return False
        put_pieces(path, pieces)
        return True

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        assert output.stored is not None
        path, array = self._arrays[output.leaf.key.text]
        return TaskResult(array.copy(path, output.stored, known))

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form."""
        path, array = self._arrays[output.leaf.key.text]
        array.write(path, region, block)

    def read(self, output: Output, region: Region) -> np.ndarray:
        path, array = self._arrays[output.leaf.key.text]
        return array.read(path, region)

    def flush(self) -> None:
        """Return at once: everything is in the files already."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        return [os.fspath(self._arrays[output.leaf.key.text][0])]
