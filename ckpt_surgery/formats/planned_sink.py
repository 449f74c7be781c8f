"""Files whose bytes all have their places before any is written, and the one sink of formats of such files.

def layout(leaves, options):                                     # all that a format has to say
    return [FilePlan("w.bin", 108, [(0, b"8 bytes!")], {"w": PlacedArray(spec, ((8, 100),))})]
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.reading import OpenFile, opened
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.regions import Pieces, PlacedArray, put_pieces


@frozen()
class FilePlan:
    """A file that is to be written: everything but the elements of its arrays, and where those go."""

    name: str
    """Path relative to the checkpoint's directory."""
    size: int
    """Size of the whole file in bytes."""
    pieces: Pieces
    """All bytes that are not elements and not zero."""
    arrays: Mapping[str, PlacedArray] = field(default_factory=dict)
    """Where the elements go, by the text of the leaf's key."""
    seal: Callable[[OpenFile], Pieces] | None = None
    """Reads the file with all elements in it, and returns the bytes that depend on them: checksums.

    Raises SourceError.
    """
    record: Callable[[str], Pieces | None] | None = None
    """Returns the bytes that put the text of a record into the file; None where no room was reserved."""


Layout: TypeAlias = Callable[[Sequence[Leaf], Any], Sequence[FilePlan]]
"""Plans the files of a checkpoint of these leaves from its `SinkOptions`. Called in every process."""


class PlannedSink:
    """A `Sink` that writes these files into a directory. They are whole once it has finished."""

    def __init__(self, directory: Path, plans: Sequence[FilePlan], outputs: Sequence[Output]):
        self.outputs = outputs
        self._plans = {directory / plan.name: plan for plan in plans}
        self._directory = directory

    def create(self) -> None:
        """Make every file in its full size, with everything but the elements. Raises StorageError."""
        for path, plan in self._plans.items():
            preallocate(path, plan.size)
            put_pieces(path, plan.pieces)

    def attach(self, worker: str) -> "PlannedWriter":
        """A writer of arrays. All workers write to the same files."""
        return PlannedWriter(
            {text: (path, array) for path, plan in self._plans.items() for text, array in plan.arrays.items()}
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Add what depends on the elements, such as checksums. Raises StorageError, SourceError."""
        for path, plan in self._plans.items():
            if plan.seal is not None:
                with opened(os.fspath(path)) as written:
                    pieces = plan.seal(written)
                put_pieces(path, pieces)

    def record(self, text: str) -> bool:
        """Put the record beside several files, or into the only one that has room. Raises StorageError."""
        if len(self._plans) > 1:
            put_record(self._directory / RECORD_NAME, text)
            return True
        ((path, plan),) = self._plans.items()
        pieces = None if plan.record is None else plan.record(text)
        if pieces is None:
            return False
        put_pieces(path, pieces)
        return True


class PlannedWriter:
    """A `Writer` of placed arrays. It buffers nothing. Safe to use from several threads."""

    def __init__(self, arrays: Mapping[str, tuple[Path, PlacedArray]]):
        self._arrays = arrays
        """The file and the place of every array, by the text of its leaf's key."""

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy stored bytes. Raises StorageError, SourceError."""
        assert output.stored is not None
        path, array = self._arrays[output.leaf.key.text]
        return TaskResult(array.copy(path, output.stored, known))

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form. Raises StorageError."""
        path, array = self._arrays[output.leaf.key.text]
        array.write(path, region, block)

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as they are in the file. Raises SourceError."""
        path, array = self._arrays[output.leaf.key.text]
        return array.read(path, region)

    def flush(self) -> None:
        """Return at once: everything is in the files already."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The file that has the array."""
        return [os.fspath(self._arrays[output.leaf.key.text][0])]
