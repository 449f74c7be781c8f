"""Writing HDF5: a file whose structure is made in memory, and arrays written at their places in it.

In one of Keras's archives it is a member that is stored as it is, so that arrays have their places there too.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.hdf5.archives import ModelArchive
from ckpt_surgery.formats.hdf5.detect import is_archive_name
from ckpt_surgery.formats.hdf5.image import Image, image_of
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zip.writing import written_crc
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.regions import PreallocatedArray, PreallocatedWriter

DEFAULT_NAME = "checkpoint.h5"


class Hdf5Sink:
    """Writes one file into a directory. An archive is not valid before `finish`."""

    def __init__(
        self,
        path: Path,
        metadata: Mapping[str, Any],
        outputs: Sequence[Output],
        model_files: Mapping[str, bytes] | None,
    ):
        self.outputs = outputs
        self._path = path
        self._metadata = metadata
        self._model_files = model_files
        """The other members of the archive; None where the file is none."""

    @cached_property
    def _image(self) -> Image:
        return image_of([output.leaf for output in self.outputs], self._metadata)

    @cached_property
    def _archive(self) -> ModelArchive | None:
        return None if self._model_files is None else ModelArchive(self._model_files, self._image.size)

    @property
    def _start(self) -> int:
        """Offset of the HDF5 file in the file."""
        return 0 if self._archive is None else self._archive.weights.start

    def create(self) -> None:
        """Make the file in its full size, with everything but the elements. Raises StorageError."""
        pieces = [(self._start + offset, data) for offset, data in self._image.pieces]
        size = self._image.size
        if self._archive is not None:
            around = self._archive.pieces(0)
            pieces += around
            size = around[-1][0] + len(around[-1][1])
        preallocate(self._path, size)
        self._write(pieces)

    def _write(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for offset, data in pieces:
                file.seek(offset)
                file.write(data)

    def attach(self, worker: str) -> PreallocatedWriter:
        """A writer of arrays. All workers write to the same file."""
        offsets = self._image.offsets
        return PreallocatedWriter(
            {
                output.leaf.key.text: PreallocatedArray(
                    self._path, self._start + offsets.get(output.leaf.key.text, 0), output.leaf.spec
                )
                for output in self.outputs
                if output.leaf.spec is not None
            }
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Read the weights of an archive back for their CRC-32, and make it valid. Raises StorageError.

        An HDF5 file by itself is whole once all arrays are written.
        """
        if self._archive is not None:
            with opened(os.fspath(self._path)) as written:
                crc = written_crc(written, self._archive.weights)
            self._write(self._archive.pieces(crc))

    def record(self, text: str) -> bool:
        """Do nothing: the record is a file of its own, beside this one."""
        return False


def open_hdf5_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> Hdf5Sink:
    """A sink that writes one file: `checkpoint.h5`, or `options.file_name`.

    The metadata is the attributes of the root group: texts and numbers as they are, other values as JSON.
    """
    name = options.file_name or DEFAULT_NAME
    files = options.model_files() if is_archive_name(name) else None
    return Hdf5Sink(directory / name, options.metadata, outputs, files)
