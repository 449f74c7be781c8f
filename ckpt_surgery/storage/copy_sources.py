"""What stored bytes are copied from: files, and objects of stores that are read like files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.storage.failures import changed, storage_errors
from ckpt_surgery.storage.reading import OpenFile, opened, stat_file
from ckpt_surgery.storage.store import Store
from ckpt_surgery.storage.stores import store_of

PIECE = 16 << 20
"""Bytes of a large chunk that are in memory at a time. From a store, each piece is a request."""


def read_pieces(file: OpenFile, offset: int, length: int, piece: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes of a range, `piece` bytes at a time in one buffer; with the offset of each in the range."""
    buffer = memoryview(bytearray(min(piece, length)))
    for at in range(0, length, piece):
        raise_if_cancelled()
        part = buffer[: length - at]
        file.read_into(offset + at, part)
        yield at, part


def upload_chunk(chunk: Chunk, store: Store, name: str) -> int:
    """Copy the stored bytes of a chunk to an object, through a temporary file. Returns their CRC-32C."""
    crc = 0
    with tempfile.NamedTemporaryFile(prefix="ckpt-surgery-") as written, storage_errors(Path(written.name)):
        with opened(chunk.file) as file:
            for _, part in read_pieces(file, chunk.offset, chunk.length, PIECE):
                crc = bytes_crc(part, crc)
                written.write(part)
        written.flush()
        store.upload(name, Path(written.name))
    return crc


def copy_object(source: str, store: Store, name: str) -> None:
    """Have a store copy one of its objects, in the version that was listed."""
    listed = stat_file(source)
    store.copy(source, name)
    origin, key = store_of(source)
    now = origin.stat(key)
    if now is None or now.version != listed.version:
        raise changed(source)


def read_chunk(chunk: Chunk) -> bytes:
    """The stored bytes of a chunk."""
    if chunk.inline is not None:
        return chunk.inline
    with opened(chunk.file) as file:
        return file.read(chunk.offset, chunk.length)
