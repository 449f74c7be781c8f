"""Writing zarr groups: version 3 with a CRC-32C over each chunk, or version 2.

Each component of a key is a directory, each chunk a file. Stored bytes are copied rather than linked, because
a chunk is seldom a file of its own where it comes from.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zarr.arrays import OPEN_ARRAYS
from ckpt_surgery.formats.shared.zarr.outputs import definition
from ckpt_surgery.formats.shared.zarr.writing import (
    DRIVERS,
    chunk_name,
    chunk_names,
    fetched,
    put,
    store_errors,
)
from ckpt_surgery.formats.zarr.documents import documents, with_record
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.handles import Handles
from ckpt_surgery.storage.record_files import put_record

if TYPE_CHECKING:
    from ckpt_surgery.formats.zarr.object_sink import ZarrObjectSink


class ZarrSink:
    """Writes a group into a directory. `create` makes all groups and arrays."""

    def __init__(self, directory: Path, zarr: int, attributes: Mapping[str, Any], outputs: Sequence[Output]):
        self.outputs = outputs
        self._directory = directory
        self._zarr = zarr
        self._attributes = attributes

    def create(self) -> None:
        """Make every group and every array, without chunks. Raises StorageError."""
        for name, data in documents(self._zarr, self._attributes, self.outputs).items():
            path = self._directory / name
            with storage_errors(path):
                if path.parent != self._directory:
                    path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)

    def attach(self, worker: str) -> "ZarrWriter":
        """A writer of chunks. Each chunk is a file of its own, so workers share none."""
        return ZarrWriter(self._directory, self._zarr, self.outputs)

    def finish(self, workers: Sequence[str]) -> None:
        """Do nothing: a group has no index and no commit marker."""

    def record(self, text: str) -> bool:
        """Put the record among the group's attributes. Raises StorageError."""
        name, content = with_record(self._zarr, self._attributes, text)
        put_record(self._directory / name, content)
        return True


class ZarrWriter:
    """Writes chunks. It buffers nothing. Safe to use from several threads."""

    def __init__(self, directory: Path, zarr: int, outputs: Sequence[Output]):
        self._directory = directory
        self._zarr = zarr
        self._computed = {o.leaf.key.text: o for o in outputs if o.stored is None}
        self._handles = Handles(self._opened, OPEN_ARRAYS)

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy stored bytes. Raises StorageError, SourceError."""
        assert output.stored is not None
        crcs = {}
        for index, chunk in output.stored.chunks.items():
            path = self._directory / output.leaf.key.text / chunk_name(index, self._zarr)
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            crcs[index] = copy_chunk(chunk, path, ((0, chunk.length),), known.get(index))
        return TaskResult(crcs)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region made of whole chunks. Raises StorageError."""
        text, spec = output.leaf.key.text, output.leaf.spec
        assert spec is not None
        assert (block.dtype, block.shape) == (spec.dtype, region.shape)
        if region.size:
            with store_errors(f"`{shown(text)}`"):
                put(self._handles.get(text), region, block).result()

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region. Raises StorageError where chunks are missing or damaged."""
        text = output.leaf.key.text
        with store_errors(f"`{shown(text)}`"):
            return fetched(self._handles.get(text), region)

    def flush(self) -> None:
        """Return at once: `write` returns when its chunks are in their files."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The files of the chunks."""
        if output.stored is None:
            names = chunk_names(region, output.chunks, self._zarr)
        else:
            names = [chunk_name(index, self._zarr) for index in output.stored.chunks]
        return [str(self._directory / output.leaf.key.text / name) for name in names]

    @cached_property
    def _context(self) -> Any:
        import tensorstore as ts

        # Publication synchronizes the files with the disk, all at once.
        return ts.Context({"cache_pool": {"total_bytes_limit": 0}, "file_io_sync": False})

    def _opened(self, text: str) -> Any:
        import tensorstore as ts

        spec = {
            "driver": DRIVERS[self._zarr],
            "kvstore": {"driver": "file", "path": os.path.join(self._directory.resolve(), text, "")},
            "metadata": json.loads(definition(self._computed[text], self._zarr)),
            # Some readers refuse arrays that lack chunks.
            "store_data_equal_to_fill_value": True,
            "fill_missing_data_reads": False,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        opened = ts.open(spec, open=True, read=True, write=True, assume_metadata=True, context=self._context)
        return opened.result()


def open_zarr_sink(
    directory: PathLike, options: SinkOptions, outputs: Sequence[Output]
) -> "ZarrSink | ZarrObjectSink":
    """A sink that writes a group, to a directory or below a URL.

    The custom metadata becomes the group's attributes.
    """
    metadata = dict(options.metadata)
    if urls.is_url(os.fspath(directory)):
        from ckpt_surgery.formats.zarr.object_sink import ZarrObjectSink  # takes what only stores need

        return ZarrObjectSink(os.fspath(directory), options.zarr, metadata, outputs)
    return ZarrSink(Path(directory), options.zarr, metadata, outputs)
