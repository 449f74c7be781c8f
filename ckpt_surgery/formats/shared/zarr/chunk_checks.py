"""Check by a few bytes whether a stored chunk is whole, and decodes to the right number of bytes.

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
from typing import Any

import zstandard

from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.shared.zarr import shards
from ckpt_surgery.storage.reading import OpenFile

Read = Callable[[int, int], bytes]
"""The bytes from an offset on, as many as are asked for; the caller asks for no byte after the end."""

PIECE = 1 << 18
"""Bytes of a gzip stream that are decompressed at a time."""
SMALL = 4096
"""Chunks of at most this many bytes are read at once: the system reads that much anyway."""
GZIP_HEADER, GZIP_LEAST, BLOSC_HEADER = b"\x1f\x8b\x08", 18, 16


@functools.lru_cache(maxsize=1024)
def wrappers_of(encoding: str) -> tuple[Sequence[str], Sequence[str] | None]:
    """Names of the codecs around a chunk that turn bytes into bytes, the first one first.

    Besides, of those around the chunks inside; None where chunks are not shards.
    """
    codecs = json.loads(encoding)
    at = next((i for i, codec in enumerate(codecs) if codec.get("name") == shards.SHARDS), None)
    if at is None:
        return _wrappers(codecs), None
    return _wrappers(codecs[at + 1 :]), _wrappers(codecs[at]["configuration"]["codecs"])


def _wrappers(codecs: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    names = [str(codec.get("name", codec.get("id", "packed"))) for codec in codecs]
    return [name for name in names if name not in ("bytes", "transpose")]


def chunk_flaw(manifest: Manifest, chunk: Chunk, file: OpenFile | None) -> str | None:
    """Problem of the stored bytes of a chunk, as far as a few of them show it; None without one.

    `file` is the open file of the chunk; None where its bytes are inline.
    """
    wrappers, inner = wrappers_of(manifest.codec.encoding)
    nbytes = manifest.chunk_nbytes if inner is None else None
    if not wrappers and inner is None:
        return None if chunk.length == nbytes else f"it has {chunk.length} stored bytes instead of {nbytes}"
    read = _reading(chunk, file)
    if wrappers or inner is None:
        return _wrapped_flaw(read, chunk.length, wrappers, nbytes)
    layout = shards.shard_layout(manifest.codec.encoding)
    if layout is None:
        return None  # shards in shards: only reading them tells
    return _shard_flaw(manifest, chunk, read, layout, inner)


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


def _wrapped_flaw(read: Read, length: int, wrappers: Sequence[str], nbytes: int | None) -> str | None:
    """Problem of bytes that went through these codecs; `nbytes`: their number before, if known."""
    wrappers = list(wrappers)
    while wrappers and wrappers[-1] == "crc32c":
        wrappers.pop()
        length -= shards.CRC_BYTES
        if length < 0:
            return "it is cut short: it is shorter than its checksum"
    compressors = [name for name in wrappers if name != "crc32c"]
    if not compressors:
        what = f"it has {length} stored bytes besides its checksum instead of {nbytes}"
        return None if nbytes in (None, length) else what
    if len(compressors) > 1:
        nbytes = None  # what the outermost one decodes to is compressed again
    elif nbytes is not None:
        nbytes += shards.CRC_BYTES * (len(wrappers) - 1)
    flaw = FLAWS.get(compressors[-1])
    return None if flaw is None else flaw(read, length, nbytes)


def _blosc_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """Blosc's header, of blosc 1: `README_CHUNK_FORMAT.rst` of c-blosc 1.21."""
    if length < BLOSC_HEADER:
        return f"it is cut short: its {length} bytes are fewer than a header of blosc"
    head = read(0, BLOSC_HEADER)
    decoded, stored = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
    if stored != length:
        return f"it has {length} stored bytes, and its blosc header says {stored}"
    if nbytes is not None and decoded != nbytes:
        return f"its blosc header says that it decodes to {decoded} bytes, not to {nbytes}"
    return None


def _gzip_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """The header of gzip, and the decoded size at its end: RFC 1952."""
    if length < GZIP_LEAST or read(0, len(GZIP_HEADER)) != GZIP_HEADER:
        return "it is cut short, or no gzip stream"
    size = int.from_bytes(read(length - 4, 4), "little")
    if nbytes is None or size == nbytes % 2**32:
        return None
    # A stream of several members ends with the size of the last one: only decompressing tells.
    return _stream_flaw("gzip", read, length, nbytes)


DECODERS: Mapping[str, Callable[[], Any]] = {
    "gzip": functools.partial(zlib.decompressobj, 31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
}


def _stream_flaw(codec: str, read: Read, length: int, nbytes: int | None) -> str | None:
    """Problem of a compressed stream; all of it is decompressed, in pieces."""
    try:
        count = _decoded_bytes(read, length, DECODERS[codec], sys.maxsize if nbytes is None else nbytes)
    except (zlib.error, OSError, EOFError):
        count = -1
    whole = count >= 0 and nbytes in (None, count)
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
    manifest: Manifest, chunk: Chunk, read: Read, layout: shards.ShardLayout, wrappers: Sequence[str]
) -> str | None:
    """The index of a shard, and each chunk inside that it names."""
    at = shards.index_range(manifest, layout, chunk)
    if at is None:
        return f"it is cut short: its {chunk.length} bytes are fewer than those of a shard's index"
    entries = shards.index_entries(manifest, layout, chunk, read(at.offset - chunk.offset, at.length))
    if entries is None:
        return "it is cut short or damaged: its shard index has another checksum, or leads out of it"
    nbytes = math.prod(layout.inner) * manifest.spec.dtype.itemsize
    for number, (offset, count) in enumerate(zip(*(part.ravel().tolist() for part in entries), strict=True)):
        if offset == count == int(shards.ABSENT):
            continue
        inner = functools.partial(_read_within, read, offset)
        flaw = _wrapped_flaw(inner, count, wrappers, nbytes)
        if flaw is not None:
            return f"the chunk {number} inside this shard: {flaw}"
    return None


def _read_within(read: Read, offset: int, at: int, count: int) -> bytes:
    return read(offset + at, count)


# --- zstd -------------------------------------------------------------------------------------------------

ZSTD_MAGIC, SKIPPABLE = 0xFD2FB528, 0x184D2A50
"""Magic numbers of frames, and of those that decoders skip, whose last four bits can have any value."""
MAGIC_BYTES, BLOCK_HEADER, CHECKSUM = 4, 3, 4
MOST_HEADER = 18
"""Bytes of the longest frame header, with its magic number."""
MOST_BLOCK = 1 << 17
"""Limit of the format on the decoded bytes of a block."""
RAW, RUN, RESERVED = 0, 1, 3
"""Types of blocks: stored as they are, one byte repeated, not defined. The other one is compressed."""
Extent = tuple[int, int, int]
"""End of a frame, and the least and the largest number of bytes that it can decode to."""


def zstd_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """Reason why `length` bytes are not whole zstd frames of `nbytes` decoded bytes; None if they are.

    Told from the headers of frames and blocks alone: RFC 8878, section 3.1. `nbytes` is None where that is
    not known.
    """
    at = least = most = 0
    if not length:
        return "it is empty"
    while at < length:
        extent = _frame(read, at, length)
        if isinstance(extent, str):
            return extent
        at, fewest, largest = extent
        least, most = least + fewest, most + largest
    if nbytes is not None and not least <= nbytes <= most:
        size = str(least) if least == most else f"{least} to {most}"
        return f"its zstd frames decode to {size} bytes, not to {nbytes}"
    return None


def _frame(read: Read, at: int, length: int) -> Extent | str:
    """The extent of the frame at an offset, or what is wrong with it."""
    cut = f"it is cut short: the zstd frame at byte {at} does not end within its {length} bytes"
    if at + 2 * MAGIC_BYTES > length:
        return cut
    head = read(at, min(MOST_HEADER, length - at))
    magic, size = (int.from_bytes(head[i : i + MAGIC_BYTES], "little") for i in (0, MAGIC_BYTES))
    if magic & 0xFFFFFFF0 == SKIPPABLE:
        stop = at + 2 * MAGIC_BYTES + size
        return cut if stop > length else (stop, 0, 0)
    if magic != ZSTD_MAGIC:
        return f"no zstd frame begins at its byte {at}"
    try:
        frame, begin = zstandard.get_frame_parameters(head), at + zstandard.frame_header_size(head)
    except zstandard.ZstdError:
        return cut if len(head) < MOST_HEADER else f"the zstd frame at byte {at} has an invalid header"
    blocks = _blocks(read, begin, length)
    if blocks is None or isinstance(blocks, str):
        return blocks or cut
    stop, least, most = blocks
    stop += CHECKSUM if frame.has_checksum else 0
    if stop > length:
        return cut
    if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        return stop, least, most
    if not least <= frame.content_size <= most:
        said = f"the {frame.content_size} bytes that its header says"
        return f"the zstd frame at byte {at} cannot decode to {said}"
    return stop, frame.content_size, frame.content_size


def _blocks(read: Read, at: int, length: int) -> Extent | str | None:
    """The extent of the blocks from an offset on, or what is wrong with one; None if they are cut short."""
    least, most, last = 0, 0, False
    while not last:
        if at + BLOCK_HEADER > length:
            return None
        header = int.from_bytes(read(at, BLOCK_HEADER), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == RESERVED or size > MOST_BLOCK:
            return f"it has no zstd block at byte {at}, where one belongs"
        at += BLOCK_HEADER + (1 if kind == RUN else size)
        least += size if kind in (RAW, RUN) else 0
        most += size if kind in (RAW, RUN) else MOST_BLOCK
    return at, least, most


FLAWS: Mapping[str, Callable[[Read, int, int | None], str | None]] = {
    "zstd": zstd_flaw,
    "gzip": _gzip_flaw,
    "blosc": _blosc_flaw,
    # Nothing short tells where these end, so they are decompressed, piece by piece.
    "zlib": functools.partial(_stream_flaw, "zlib"),
    "bz2": functools.partial(_stream_flaw, "bz2"),
}
"""Problem of a compressed chunk, given its length and the number of its decoded bytes, if known; by codec."""
