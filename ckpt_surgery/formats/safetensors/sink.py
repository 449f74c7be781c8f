"""Writing safetensors: headers first, then every tensor at its place, in any order and in parallel."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.safetensors.detect import (
    INDEX_NAME,
    MOST_HEADER_BYTES,
    PREFIX_BYTES,
    READERS_EXPECT,
    SINGLE_NAME,
)
from ckpt_surgery.formats.safetensors.encoder import metadata_texts
from ckpt_surgery.formats.safetensors.files import FilePlan, plan_files
from ckpt_surgery.formats.safetensors.header import header_bytes
from ckpt_surgery.formats.safetensors.source import paired
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.record_files import RECORD_NAME, put_record
from ckpt_surgery.storage.regions import PreallocatedArray, PreallocatedWriter


class SafetensorsSink:
    """Writes one file, or shards and their index, into a directory."""

    def __init__(
        self,
        directory: Path,
        metadata: Mapping[str, str],
        files: Sequence[FilePlan],
        outputs: Sequence[Output],
        record_bytes: int = 0,
    ):
        self.outputs = outputs
        self._directory = directory
        self._metadata = metadata
        self._files = files
        self._record_bytes = record_bytes

    def create(self) -> None:
        """Make every file in its full size, with its header. Raises StorageError."""
        for file in self._files:
            path, header = self._directory / file.name, self._headers[file.name]
            preallocate(path, len(header) + file.data_bytes, header)

    def attach(self, worker: str) -> "SafetensorsWriter":
        """A writer of tensors. All workers write to the same files."""
        arrays: dict[str, PreallocatedArray] = {}
        packed: dict[str, PreallocatedArray] = {}
        for file in self._files:
            path, data = self._directory / file.name, len(self._headers[file.name])
            for tensor in file.tensors:
                array = PreallocatedArray(path, data + tensor.start, tensor.spec)
                (packed if tensor.packed else arrays)[tensor.name] = array
        return SafetensorsWriter(arrays, packed)

    def finish(self, workers: Sequence[str]) -> None:
        """Write the index where there are several files. Raises StorageError."""
        if len(self._files) > 1:
            path = self._directory / INDEX_NAME
            with storage_errors(path):
                path.write_text(self._index(), encoding="utf-8")

    def record(self, text: str) -> bool:
        """Put the record into the header of the only file, or beside the files. Raises StorageError."""
        if len(self._files) > 1:
            put_record(self._directory / RECORD_NAME, text)
            return True
        (file,) = self._files
        path, before = self._directory / file.name, self._headers[file.name]
        header = self._with_record(file, text, len(before))
        if len(header) > len(before):
            return False  # no room was reserved
        with storage_errors(path), open(path, "r+b") as written:
            written.write(header)
        return True

    @cached_property
    def _headers(self) -> Mapping[str, bytes]:
        """The header of each file by its name, with room for the record where it is the only one."""
        headers = {file.name: header_bytes(file.tensors, self._metadata) for file in self._files}
        if self._record_bytes and len(self._files) == 1:
            (file,) = self._files
            room = len(self._with_record(file, " " * self._record_bytes))
            if room - PREFIX_BYTES <= MOST_HEADER_BYTES:
                headers[file.name] = header_bytes(file.tensors, self._metadata, room)
        return headers

    def _with_record(self, file: FilePlan, text: str, least: int = 0) -> bytes:
        """The header of a file with the record, and of at least so many bytes."""
        return header_bytes(file.tensors, {**READERS_EXPECT, **self._metadata, RECORD_NAME: text}, least)

    def _index(self) -> str:
        files = {tensor.name: file.name for file in self._files for tensor in file.tensors}
        total = sum(file.data_bytes for file in self._files)
        about = {"metadata": {"total_size": total}, "weight_map": files}
        return json.dumps(about, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class SafetensorsWriter(PreallocatedWriter):
    """Writes tensors into the files, also those with two elements to a byte."""

    def __init__(self, arrays: Mapping[str, PreallocatedArray], packed: Mapping[str, PreallocatedArray]):
        super().__init__(arrays)
        self._packed = packed
        """Where two elements share a byte, by the text of the leaf's key."""

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region. Where two elements share a byte, it begins and ends between pairs.

        Raises StorageError.
        """
        array = self._packed.get(output.leaf.key.text)
        if array is None:
            super().write(output, region, block)
            return
        assert (block.dtype, block.shape) == (array.spec.dtype, region.shape)
        assert region.starts[-1] % 2 == region.stops[-1] % 2 == 0, "chunks are of `SafetensorsEncoder.grid`"
        halves, touched = paired(array.spec, region)
        bits = block.view(np.uint8)
        PreallocatedArray(array.path, array.offset, halves).write(
            touched, bits[..., ::2] | bits[..., 1::2] << 4
        )

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as they are in the file. Raises SourceError."""
        array = self._packed.get(output.leaf.key.text)
        if array is None:
            return super().read(output, region)
        halves, touched = paired(array.spec, region)
        pairs = PreallocatedArray(array.path, array.offset, halves).read(touched)
        return np.stack([pairs & 15, pairs >> 4], -1).reshape(region.shape).view(array.spec.dtype)

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The file that has the tensor."""
        array = self._packed.get(output.leaf.key.text)
        return super().files(output, region) if array is None else [str(array.path)]


def open_safetensors_sink(
    directory: Path, options: SinkOptions, outputs: Sequence[Output]
) -> SafetensorsSink:
    """A sink that writes `model.safetensors`, or shards and `model.safetensors.index.json`.

    With `options.file_name` the one file is called so.
    """
    leaves = [output.leaf for output in outputs]
    files = plan_files(leaves, options.shard_size, options.file_name or SINGLE_NAME)
    return SafetensorsSink(directory, metadata_texts(options), files, outputs, options.record_bytes)
