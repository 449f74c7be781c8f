"""What stored bytes are copied from: files, and objects of stores that are read like files."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

from ckpt_surgery.core import urls
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED, storage_errors, unreadable
from ckpt_surgery.storage.reading import opened, stat_file
from ckpt_surgery.storage.store import Store
from ckpt_surgery.storage.stores import store_of


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


PIECE = 16 << 20
"""Bytes of a large chunk that are in memory at a time. From a store, each piece is a request."""


def upload_chunk(chunk: Chunk, store: Store, name: str) -> int:
    """Copy the stored bytes of a chunk to an object, through a temporary file. Returns their CRC-32C.

    Raises SourceError where the chunk's file is gone or too short, StorageError.
    """
    crc, done = 0, 0
    buffer = memoryview(bytearray(min(PIECE, chunk.length)))
    with tempfile.NamedTemporaryFile(prefix="ckpt-surgery-") as file, storage_errors(Path(file.name)):
        with opened_to_copy(chunk.file) as reader:
            while done < chunk.length:
                raise_if_cancelled()
                reader.seek(chunk.offset + done)
                count = reader.readinto(buffer[: chunk.length - done])
                if not count:
                    raise _short(chunk.file, chunk.offset + done)
                crc = bytes_crc(buffer[:count], crc)
                file.write(buffer[:count])
                done += count
        file.flush()
        store.upload(name, Path(file.name))
    return crc


def copy_object(source: str, store: Store, name: str) -> None:
    """Have a store copy one of its objects, in the version that was listed.

    Raises SourceError where the object is gone or has changed, StorageError.
    """
    listed = stat_file(source)
    store.copy(source, name)
    origin, key = store_of(source)
    now = origin.stat(key)
    if now is None or now.version != listed.version:
        raise SourceError(
            f"{shown(source)} has changed since it was listed", hint="Run again when nothing writes to it."
        )


def read_chunk(chunk: Chunk) -> bytes:
    """The stored bytes of a chunk. Raises SourceError where its file is gone or too short, StorageError."""
    if chunk.inline is not None:
        return chunk.inline
    with opened(chunk.file) as file:
        if chunk.offset + chunk.length > file.stat.size:
            raise _short(chunk.file, file.stat.size)
        return file.read(chunk.offset, chunk.length)


def _short(file: str, size: int) -> SourceError:
    return SourceError(f"{shown(file)} ends at byte {size}: it is shorter than its index says", hint=DAMAGED)
