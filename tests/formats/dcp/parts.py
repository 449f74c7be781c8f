"""Distributed checkpoints of PyTorch made by hand: any metadata, around archives that torch writes."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ckpt_surgery.core.arrays import Region
from tests.formats.torch.pickles import Call, Name, Raw, code, document
from tests.formats.torch.test_torch import tensor

METADATA = "torch.distributed.checkpoint.metadata"
DATA = "__0_0.distcp"
LAYOUT = Call(Name("torch.serialization", "_get_layout"), ("torch.strided",))
MEMORY_FORMAT = Call(Name(METADATA, "_MEM_FORMAT_ENCODING"), (0,))

Offsets = tuple[int, ...]


def record(name: str, state: Any, module: str = METADATA) -> Raw:
    """An instance of a class with this state, as Python pickles it."""
    return Raw(code(Name(module, name)) + b")\x81" + code(state) + b"b")


def size(numbers: Any) -> Call:
    return Call(Name("torch", "Size"), (numbers,))


def properties(dtype: str, layout: Any = LAYOUT) -> Raw:
    return record("TensorProperties", (Name("torch", dtype), layout, False, MEMORY_FORMAT, False))


def described(dtype: str, shape: Any, chunks: Iterable[tuple[Any, Any]]) -> Raw:
    """The description of a tensor, with the offsets and sizes of its chunks."""
    parts = [{"offsets": size(offsets), "sizes": size(sizes)} for offsets, sizes in chunks]
    records = [record("ChunkStorageMetadata", part) for part in parts]
    state = {"properties": properties(dtype), "size": size(shape), "chunks": records}
    return record("TensorStorageMetadata", state)


OBJECT = Raw(code(Name(METADATA, "BytesStorageMetadata")) + b")\x81")


def index(name: Any, offsets: Any = None) -> Raw:
    found = None if offsets is None else size(offsets)
    return record("MetadataIndex", {"fqn": name, "offset": found, "index": 0})


def place(file: Any, offset: Any, length: Any, **more: Any) -> Raw:
    state = {"relative_path": file, "offset": offset, "length": length, **more}
    return record("_StorageInfo", state, "torch.distributed.checkpoint.filesystem")


def archive(value: Any) -> bytes:
    """What `torch.save` writes for a chunk or an object."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@dataclass
class Parts:
    """A checkpoint that is not written yet."""

    entries: dict[str, Any] = field(default_factory=dict)
    places: dict[tuple[str, Offsets | None], Any] = field(default_factory=dict)
    """Where chunks and objects are: file, offset and length, or the record of a place."""
    paths: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the metadata."""

    def put(self, name: str, value: Any, offsets: Offsets | None = None, file: str = DATA) -> None:
        """Append an archive to a file."""
        data, before = archive(value), self.files.get(file, b"")
        self.files[file] = before + data
        self.places[name, offsets] = (file, len(before), len(data))

    def add(
        self, name: str, value: np.ndarray, boxes: Sequence[Region], files: Sequence[str] = (DATA,)
    ) -> None:
        """Add an array in chunks, which go to the files in turn."""
        chunks = [(box.starts, box.shape) for box in boxes]
        self.entries[name] = described(value.dtype.name, value.shape, chunks)
        for number, box in enumerate(boxes):
            if box.size:
                self.put(name, tensor(np.asarray(value[box.slices])), box.starts, files[number % len(files)])

    def pickled(self) -> bytes:
        places = b"".join(
            code(index(*key)) + code(place(*found) if isinstance(found, tuple) else found)
            for key, found in self.places.items()
        )
        state = {
            "state_dict_metadata": self.entries,
            "planner_data": self.paths or None,
            "storage_data": Raw(b"}(" + places + b"u"),
            **self.more,
        }
        return document(record("Metadata", state))

    def write(self, directory: Path) -> Path:
        directory.mkdir()
        (directory / ".metadata").write_bytes(self.pickled())
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory


def rows(*stops: int, columns: int = 6) -> list[Region]:
    """Boxes one below the other."""
    return [Region((a, 0), (b, columns)) for a, b in zip((0, *stops[:-1]), stops, strict=True)]


VALUE = np.arange(24, dtype=np.int32).reshape(4, 6)


def usual() -> Parts:
    """One array in two chunks, and a number."""
    parts = Parts()
    parts.add("w", VALUE, rows(2, 4))
    parts.entries["step"] = OBJECT
    parts.put("step", 5)
    return parts
