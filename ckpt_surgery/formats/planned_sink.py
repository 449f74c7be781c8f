"""The one sink of formats whose files are planned: all bytes have their places before any is written."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.formats.registry import FilePlan
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.regions import put_pieces


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
