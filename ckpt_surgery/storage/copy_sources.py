"""What stored bytes are copied from: files, and objects of stores that are read like files."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import Any, Protocol

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED, unreadable
from ckpt_surgery.storage.reading import opened


class Reader(Protocol):
    """What bytes are copied from: a file, or an object of a store."""

    name: Any

    def seek(self, offset: int, /) -> int:
        """Read on from this byte."""
        ...

    def readinto(self, buffer: Any, /) -> int | None:
        """Fill the buffer, or as much of it as there is; returns the number of bytes."""
        ...


class ObjectReader:
    """An object that is read like a file. Raises SourceError where it is gone or has changed."""

    def __init__(self, url: str):
        self.name = url
        self._at = 0
        with opened(url) as file:
            self._file = file

    def seek(self, offset: int, /) -> int:
        """Read on from here."""
        self._at = offset
        return offset

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer, or as much of it as there is; returns the number of bytes."""
        count = max(0, min(len(buffer), self._file.stat.size - self._at))
        self._file.read_into(self._at, buffer[:count])
        self._at += count
        return count


@contextmanager
def opened_to_copy(path: str) -> Iterator[Reader]:
    """A file to read. Raises SourceError where it is gone, StorageError where it may not be read."""
    if urls.is_url(path):
        yield ObjectReader(path)
        return
    try:
        reader = FileIO(path)
    except OSError as error:
        raise unreadable(path, error) from error
    with reader:
        yield reader


def read_chunk(chunk: Chunk) -> bytes:
    """The stored bytes of a chunk. Raises SourceError where its file is gone or too short, StorageError."""
    if chunk.inline is not None:
        return chunk.inline
    with opened(chunk.file) as file:
        if chunk.offset + chunk.length > file.stat.size:
            raise SourceError(
                f"{shown(chunk.file)} ends at byte {file.stat.size}: it is shorter than its index says",
                hint=DAMAGED,
            )
        return file.read(chunk.offset, chunk.length)
