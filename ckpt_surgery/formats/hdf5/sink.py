"""Writing HDF5: a file whose structure is made in memory, and arrays written at their places in it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.hdf5.image import Image, image_of
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.regions import PreallocatedArray, PreallocatedWriter

DEFAULT_NAME = "checkpoint.h5"


class Hdf5Sink:
    """Writes one file into a directory."""

    def __init__(self, path: Path, metadata: Mapping[str, Any], outputs: Sequence[Output]):
        self.outputs = outputs
        self._path = path
        self._metadata = metadata

    @cached_property
    def _image(self) -> Image:
        return image_of([output.leaf for output in self.outputs], self._metadata)

    def create(self) -> None:
        """Make the file in its full size, with everything but the elements. Raises StorageError."""
        image = self._image
        preallocate(self._path, image.size)
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for offset, data in image.pieces:
                file.seek(offset)
                file.write(data)

    def attach(self, worker: str) -> PreallocatedWriter:
        """A writer of arrays. All workers write to the same file."""
        offsets = self._image.offsets
        return PreallocatedWriter(
            {
                output.leaf.key.text: PreallocatedArray(
                    self._path, offsets.get(output.leaf.key.text, 0), output.leaf.spec
                )
                for output in self.outputs
                if output.leaf.spec is not None
            }
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Do nothing: the file is whole once all arrays are written."""

    def record(self, text: str) -> bool:
        """Do nothing: the record is a file of its own, beside this one."""
        return False


def open_hdf5_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> Hdf5Sink:
    """A sink that writes one file: `checkpoint.h5`, or `options.file_name`.

    The metadata is the attributes of the root group: texts and numbers as they are, other values as JSON.
    """
    return Hdf5Sink(directory / (options.file_name or DEFAULT_NAME), options.metadata, outputs)
