"""What a few bytes of a stored chunk tell: whether it is whole, and decodes to the right number of bytes.

A chunk that was cut short is found in every encoding that says anywhere how long it is. What only reading all
of a chunk would tell, such as a flipped bit, is not found.
"""

import bz2
import functools
import json
import math
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import numpy as np

from ckpt_surgery.core.arrays import Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.shared.zarr.shards import (
    ABSENT,
    CRC_BYTES,
    ENTRY_BYTES,
    SHARDS,
    ShardLayout,
    shard_layout,
)
from ckpt_surgery.formats.shared.zarr.zstd_frames import Read, frames_flaw
from ckpt_surgery.storage.reading import OpenFile

PIECE = 1 << 18
"""Bytes of a gzip stream that are decompressed at a time."""
GZIP_HEADER, GZIP_LEAST, SIZE_BYTES = b"\x1f\x8b\x08", 18, 4
BLOSC_HEADER = 16


@dataclass(frozen=True)
class Encoding:
    """How chunks are encoded, as far as it matters here."""

    wrappers: tuple[str, ...]
    """Names of the codecs that turn bytes into bytes, the first one first."""
    inner: "Encoding | None" = None
    """Encoding of the chunks inside, where chunks are shards."""
    layout: ShardLayout | None = None
    """Where the index of a shard is; None where chunks are no shards, and where that is unknown."""


@functools.lru_cache(maxsize=1024)
def encoding(text: str) -> Encoding:
    """The encoding that `Codec.encoding` describes."""
    found = _chain(json.loads(text))
    return found if found.inner is None else replace(found, layout=shard_layout(text))


def _chain(codecs: Sequence[Mapping[str, Any]]) -> Encoding:
    names = [str(codec.get("name", codec.get("id", "packed"))) for codec in codecs]
    if SHARDS in names:
        at = names.index(SHARDS)
        return Encoding(tuple(names[at + 1 :]), _chain(codecs[at]["configuration"]["codecs"]))
    return Encoding(tuple(name for name in names if name not in ("bytes", "transpose")))


def chunk_flaw(manifest: Manifest, chunk: Chunk, file: OpenFile | None) -> str | None:
    """What is wrong with the stored bytes of a chunk, as far as a few of them tell; None: nothing.

    `file` is the open file of the chunk; None where its bytes are inline.
    """
    how = encoding(manifest.codec.encoding)
    if not how.wrappers and how.inner is None:
        stored, wanted = chunk.length, manifest.chunk_nbytes
        return None if stored == wanted else f"it has {stored} stored bytes instead of {wanted}"
    read = _reading(chunk, file)
    if how.inner is None:
        return _wrapped_flaw(read, chunk.length, how.wrappers, manifest.chunk_nbytes)
    if how.wrappers:
        return _wrapped_flaw(read, chunk.length, how.wrappers, None)
    if how.layout is None:
        return None  # shards in shards: only reading them tells
    counts = grid_counts(tuple(manifest.chunk_shape[a] for a in manifest.codec.permutation), how.layout.inner)
    nbytes = math.prod(how.layout.inner) * manifest.spec.dtype.itemsize
    return _shard_flaw(read, chunk.length, how.layout, counts, how.inner, nbytes)


def _reading(chunk: Chunk, file: OpenFile | None) -> Read:
    """A function that reads bytes of a chunk; those of small chunks are read at once."""
    if chunk.inline is not None:
        whole = chunk.inline[chunk.offset :]
        return lambda at, count: whole[at : at + count]
    assert file is not None
    if chunk.length <= SMALL:
        data = file.read(chunk.offset, chunk.length)
        return lambda at, count: data[at : at + count]
    return lambda at, count: file.read(chunk.offset + at, count)


SMALL = 4096
"""Chunks of at most this many bytes are read at once: the system reads that much anyway."""


def _wrapped_flaw(read: Read, length: int, wrappers: Sequence[str], nbytes: int | None) -> str | None:
    """What is wrong with bytes that went through these codecs; `nbytes`: their number before, if known."""
    wrappers = list(wrappers)
    while wrappers and wrappers[-1] == "crc32c":
        wrappers.pop()
        length -= CRC_BYTES
        if length < 0:
            return "it is cut short: it is shorter than its checksum"
    compressors = [name for name in wrappers if name != "crc32c"]
    if not compressors:
        fits = nbytes is None or length == nbytes
        return None if fits else f"it has {length} stored bytes besides its checksum instead of {nbytes}"
    if len(compressors) > 1:
        nbytes = None  # what the outermost one decodes to is compressed again
    elif nbytes is not None:
        nbytes += CRC_BYTES * (len(wrappers) - 1)
    return _compressed_flaw(read, length, compressors[-1], nbytes)


def _compressed_flaw(read: Read, length: int, codec: str, nbytes: int | None) -> str | None:
    match codec:
        case "zstd":
            return frames_flaw(read, length, nbytes)
        case "gzip":
            return _gzip_flaw(read, length, nbytes)
        case "blosc":
            return _blosc_flaw(read, length, nbytes)
        case "zlib" | "bz2":
            # Nothing short tells where they end, so they are decompressed, piece by piece.
            return _stream_flaw(read, length, codec, nbytes)
        case _:
            return None


def _blosc_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """Blosc's header, of blosc 1: `README_CHUNK_FORMAT.rst` of c-blosc 1.21."""
    if length < BLOSC_HEADER:
        return f"it is cut short: its {length} bytes are fewer than a header of blosc"
    head = read(0, BLOSC_HEADER)
    decoded, stored = (int.from_bytes(head[at : at + SIZE_BYTES], "little") for at in (4, 12))
    if stored != length:
        return f"it has {length} stored bytes, and its blosc header says {stored}"
    if nbytes is not None and decoded != nbytes:
        return f"its blosc header says that it decodes to {decoded} bytes, not to {nbytes}"
    return None


def _gzip_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """The header of gzip, and the decoded size at its end: RFC 1952."""
    if length < GZIP_LEAST or read(0, len(GZIP_HEADER)) != GZIP_HEADER:
        return "it is cut short, or no gzip stream"
    size = int.from_bytes(read(length - SIZE_BYTES, SIZE_BYTES), "little")
    if nbytes is None or size == nbytes % 2**32:
        return None
    # A stream of several members ends with the size of the last one: only decompressing tells.
    return _stream_flaw(read, length, "gzip", nbytes)


DECODERS: Mapping[str, Callable[[], Any]] = {
    "gzip": functools.partial(zlib.decompressobj, 31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
}


def _stream_flaw(read: Read, length: int, codec: str, nbytes: int | None) -> str | None:
    """What is wrong with a compressed stream; all of it is decompressed, in pieces."""
    try:
        found = _decoded_bytes(read, length, DECODERS[codec], sys.maxsize if nbytes is None else nbytes)
    except (zlib.error, OSError, EOFError):
        found = -1
    whole = found >= 0 and nbytes in (None, found)
    return None if whole else f"it is cut short or damaged: its {codec} stream does not end as it should"


def _decoded_bytes(read: Read, length: int, decoder: Callable[[], Any], most: int) -> int:
    """Decoded bytes of streams one after another; -1 where the last one has no end, or there are too many.

    Raises what the decoder raises.
    """
    stream, total, at, data, decoded = decoder(), 0, 0, b"", b""
    while True:
        more = bool(decoded) and not stream.eof  # the decoder may hold back what exceeds a piece
        if not data and not more:
            if at == length:
                return total if stream.eof else -1
            data = read(at, min(PIECE, length - at))
            at += len(data)
        if stream.eof:
            stream = decoder()
        decoded = stream.decompress(data, PIECE)
        data = stream.unused_data if stream.eof else getattr(stream, "unconsumed_tail", b"")
        total += len(decoded)
        if total > most:
            return -1


def _shard_flaw(
    read: Read, length: int, layout: ShardLayout, counts: Shape, inner: Encoding, nbytes: int
) -> str | None:
    """The index of a shard, and each chunk inside that it names."""
    size = layout.index_bytes(math.prod(counts))
    if size > length:
        return f"it is cut short: its {length} bytes are fewer than the {size} of a shard's index"
    index = read(length - size if layout.at_end else 0, size)
    entries = index[: math.prod(counts) * ENTRY_BYTES]
    if layout.checked and google_crc32c.value(entries) != int.from_bytes(index[len(entries) :], "little"):
        return "it is cut short or damaged: its shard index does not have its checksum"
    found = np.frombuffer(entries, "<u8" if layout.endian == "little" else ">u8").reshape(-1, 2)
    for number, (offset, count) in enumerate(found.tolist()):
        if offset == count == int(ABSENT):
            continue
        if offset + count > length:
            return f"the chunk {number} inside this shard ends after its {length} bytes"
        flaw = _wrapped_flaw(functools.partial(_read_within, read, offset), count, inner.wrappers, nbytes)
        if flaw is not None:
            return f"the chunk {number} inside this shard: {flaw}"
    return None


def _read_within(read: Read, offset: int, at: int, count: int) -> bytes:
    return read(offset + at, count)
