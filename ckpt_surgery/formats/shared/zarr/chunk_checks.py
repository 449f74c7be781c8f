"""Check by a few bytes whether a stored chunk is whole, and decodes to the right number of bytes.

A chunk that was cut short is found in every encoding that says anywhere how long it is. What only reading all
of a chunk would tell, such as a flipped bit, is not found.
"""

import bz2
import contextlib
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


class Flaw(Exception):
    """A flaw of a chunk's bytes."""


def chunk_flaw(manifest: Manifest, chunk: Chunk, file: OpenFile | None) -> str | None:
    """Problem of a chunk's stored bytes, as far as a few show it. `file`: None where they are inline."""
    wrappers, inner = wrappers_of(manifest.codec.encoding)
    nbytes = manifest.chunk_nbytes if inner is None else None
    if not wrappers and inner is None:
        return None if chunk.length == nbytes else f"it has {chunk.length} stored bytes instead of {nbytes}"
    layout = shards.shard_layout(manifest.codec.encoding)
    try:
        if wrappers or inner is None:
            _check_wrapped(_reading(chunk, file), chunk.length, wrappers, nbytes)
        elif layout is not None:  # of shards in shards only reading them tells
            _check_shard(manifest, chunk, _reading(chunk, file), layout, inner)
    except Flaw as flaw:
        return str(flaw)
    return None


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


def _check_wrapped(read: Read, length: int, wrappers: Sequence[str], nbytes: int | None) -> None:
    """Check bytes that went through these codecs; `nbytes`: their number before, if known."""
    wrappers = list(wrappers)
    while wrappers and wrappers[-1] == "crc32c":
        wrappers.pop()
        length -= shards.CRC_BYTES
    if length < 0:
        raise Flaw("it is cut short: it is shorter than its checksum")
    if not wrappers and nbytes not in (None, length):
        raise Flaw(f"it has {length} stored bytes besides its checksum instead of {nbytes}")
    if not set(wrappers[:-1]) <= {"crc32c"}:
        nbytes = None  # what the outermost one decodes to is compressed again
    elif nbytes is not None:
        nbytes += shards.CRC_BYTES * len(wrappers[:-1])
    check = CHECKS.get(wrappers[-1]) if wrappers else None
    if check is not None:
        check(read, length, nbytes)


def _check_blosc(read: Read, length: int, nbytes: int | None) -> None:
    """Blosc's header, of blosc 1: `README_CHUNK_FORMAT.rst` of c-blosc 1.21."""
    if length < BLOSC_HEADER:
        raise Flaw(f"it is cut short: its {length} bytes are fewer than a header of blosc")
    head = read(0, BLOSC_HEADER)
    decoded, stored = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
    if stored != length:
        raise Flaw(f"it has {length} stored bytes, and its blosc header says {stored}")
    if nbytes not in (None, decoded):
        raise Flaw(f"its blosc header says that it decodes to {decoded} bytes, not to {nbytes}")


def _check_gzip(read: Read, length: int, nbytes: int | None) -> None:
    """The header of gzip, and the decoded size at its end: RFC 1952."""
    if length < GZIP_LEAST or read(0, len(GZIP_HEADER)) != GZIP_HEADER:
        raise Flaw("it is cut short, or no gzip stream")
    size = int.from_bytes(read(length - 4, 4), "little")
    if nbytes is not None and size != nbytes % 2**32:
        # A stream of several members ends with the size of the last one: only decompressing tells.
        _check_stream("gzip", read, length, nbytes)


DECODERS: Mapping[str, Callable[[], Any]] = {
    "gzip": functools.partial(zlib.decompressobj, 31),
    "zlib": zlib.decompressobj,
    "bz2": bz2.BZ2Decompressor,
}


def _check_stream(codec: str, read: Read, length: int, nbytes: int | None) -> None:
    """Decompress streams one after another, in pieces: the last must end, after so many bytes in all."""
    stream, total, at, data, held = DECODERS[codec](), 0, 0, b"", False
    most = sys.maxsize if nbytes is None else nbytes
    with contextlib.suppress(zlib.error, OSError, EOFError):
        while (data or held or at < length) and total <= most:
            if not data and not held:
                data = read(at, min(PIECE, length - at))
                at += len(data)
            stream = DECODERS[codec]() if stream.eof else stream
            decoded = stream.decompress(data, PIECE)
            data = stream.unused_data if stream.eof else getattr(stream, "unconsumed_tail", b"")
            held = bool(decoded) and not stream.eof  # the decoder may hold back what exceeds a piece
            total += len(decoded)
        if stream.eof and nbytes in (None, total):
            return
    raise Flaw(f"it is cut short or damaged: its {codec} stream does not end as it should")


def _check_shard(
    manifest: Manifest, chunk: Chunk, read: Read, layout: shards.ShardLayout, wrappers: Sequence[str]
) -> None:
    """The index of a shard, and each chunk inside that it names."""
    at = shards.index_range(manifest, layout, chunk)
    if at is None:
        raise Flaw(f"it is cut short: its {chunk.length} bytes are fewer than those of a shard's index")
    entries = shards.index_entries(manifest, layout, chunk, read(at.offset - chunk.offset, at.length))
    if entries is None:
        raise Flaw("it is cut short or damaged: its shard index has another checksum, or leads out of it")
    nbytes = math.prod(layout.inner) * manifest.spec.dtype.itemsize
    for number, (offset, count) in enumerate(zip(*(part.ravel().tolist() for part in entries), strict=True)):
        if offset == count == int(shards.ABSENT):
            continue
        try:
            _check_wrapped(functools.partial(_read_within, read, offset), count, wrappers, nbytes)
        except Flaw as flaw:
            raise Flaw(f"the chunk {number} inside this shard: {flaw}") from flaw


def _read_within(read: Read, offset: int, at: int, count: int) -> bytes:
    return read(offset + at, count)


ZSTD_MAGIC, SKIPPABLE = 0xFD2FB528, 0x184D2A50
"""Magic numbers of frames, and of those that decoders skip, whose last four bits can have any value."""
MAGIC_BYTES, BLOCK_HEADER, CHECKSUM = 4, 3, 4
MOST_HEADER = 18
"""Bytes of the longest frame header, with its magic number."""
MOST_BLOCK = 1 << 17
"""Limit of the format on the decoded bytes of a block."""
RAW, RUN, RESERVED = 0, 1, 3
"""Types of blocks: stored as they are, one byte repeated, not defined. The other one is compressed."""


def check_zstd(read: Read, length: int, nbytes: int | None) -> None:
    """Check that `length` bytes are whole zstd frames of `nbytes` decoded bytes; None: of any number.

    The headers of frames and blocks alone tell: RFC 8878, section 3.1.
    """
    at = least = most = 0
    if not length:
        raise Flaw("it is empty")
    while at < length:
        at, fewest, largest = _frame(read, at, length)
        least, most = least + fewest, most + largest
    if nbytes is not None and not least <= nbytes <= most:
        size = str(least) if least == most else f"{least} to {most}"
        raise Flaw(f"its zstd frames decode to {size} bytes, not to {nbytes}")


def _frame(read: Read, at: int, length: int) -> tuple[int, int, int]:
    """End of the frame at an offset, and the least and the largest number of bytes it can decode to."""
    cut = Flaw(f"it is cut short: the zstd frame at byte {at} does not end within its {length} bytes")
    if at + 2 * MAGIC_BYTES > length:
        raise cut
    head = read(at, min(MOST_HEADER, length - at))
    magic, size = (int.from_bytes(head[i : i + MAGIC_BYTES], "little") for i in (0, MAGIC_BYTES))
    if magic & 0xFFFFFFF0 == SKIPPABLE:
        stop = at + 2 * MAGIC_BYTES + size
        if stop > length:
            raise cut
        return stop, 0, 0
    if magic != ZSTD_MAGIC:
        raise Flaw(f"no zstd frame begins at its byte {at}")
    try:
        frame, stop = zstandard.get_frame_parameters(head), at + zstandard.frame_header_size(head)
    except zstandard.ZstdError as error:
        invalid = Flaw(f"the zstd frame at byte {at} has an invalid header")
        raise (cut if len(head) < MOST_HEADER else invalid) from error
    least, most, last = 0, 0, False
    while not last:
        if stop + BLOCK_HEADER > length:
            raise cut
        header = int.from_bytes(read(stop, BLOCK_HEADER), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == RESERVED or size > MOST_BLOCK:
            raise Flaw(f"it has no zstd block at byte {stop}, where one belongs")
        stop += BLOCK_HEADER + (1 if kind == RUN else size)
        least += size if kind in (RAW, RUN) else 0
        most += size if kind in (RAW, RUN) else MOST_BLOCK
    stop += CHECKSUM if frame.has_checksum else 0
    if stop > length:
        raise cut
    if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        return stop, least, most
    if not least <= frame.content_size <= most:
        said = f"the {frame.content_size} bytes that its header says"
        raise Flaw(f"the zstd frame at byte {at} cannot decode to {said}")
    return stop, frame.content_size, frame.content_size


CHECKS: Mapping[str, Callable[[Read, int, int | None], None]] = {
    "zstd": check_zstd,
    "gzip": _check_gzip,
    "blosc": _check_blosc,
    # Nothing short tells where these end, so they are decompressed, piece by piece.
    "zlib": functools.partial(_check_stream, "zlib"),
    "bz2": functools.partial(_check_stream, "bz2"),
}
"""Checks of a compressed chunk, given its length and the number of its decoded bytes, if known; by codec."""
