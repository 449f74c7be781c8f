"""Whether bytes are whole zstd frames, found from the headers of frames and blocks alone.

Source: RFC 8878, section 3.1. Nothing is decompressed: only the bytes between two headers are skipped, so a
frame that is cut anywhere is noticed, and a damaged block is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[int, int], bytes]
"""The bytes from an offset on, as many as are asked for; the caller asks for no byte after the end."""

MAGIC = 0xFD2FB528
SKIPPABLE = 0x184D2A50
"""The magic number of frames that decoders skip; its last four bits can have any value."""
MAGIC_BYTES, SIZE_BYTES, BLOCK_HEADER, CHECKSUM = 4, 4, 3, 4
MOST_HEADER = 18
"""Bytes of the longest frame header, with its magic number."""
MOST_BLOCK = 1 << 17
"""Limit of the format on the decoded bytes of a block."""
RAW, RUN, RESERVED = 0, 1, 3
"""Types of blocks: stored as they are, one byte repeated, not defined. The other one is compressed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The header of a frame."""

    length: int
    """Bytes of the header, with the magic number."""
    content: int | None
    """Decoded bytes of the frame; None where the header does not say."""
    checksum: bool
    """Whether four bytes of checksum follow the last block."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the headers of a frame and of its blocks say."""

    stop: int
    """Offset after the frame."""
    least: int
    """Decoded bytes at least."""
    most: int
    """Decoded bytes at most."""


def frames_flaw(read: Read, length: int, nbytes: int | None) -> str | None:
    """Why `length` bytes are not whole zstd frames that decode to `nbytes` bytes; None where they are.

    `nbytes` is None where that is not known.
    """
    at = least = most = 0
    if not length:
        return "it is empty"
    while at < length:
        found = _frame(read, at, length)
        if isinstance(found, str):
            return found
        at, least, most = found.stop, least + found.least, most + found.most
    if nbytes is not None and not least <= nbytes <= most:
        size = str(least) if least == most else f"{least} to {most}"
        return f"its zstd frames decode to {size} bytes, not to {nbytes}"
    return None


def _frame(read: Read, at: int, length: int) -> Extent | str:
    """The extent of the frame at an offset, or what is wrong with it."""
    cut = f"it is cut short: the zstd frame at byte {at} does not end within its {length} bytes"
    if at + MAGIC_BYTES + SIZE_BYTES > length:
        return cut
    head = read(at, min(MOST_HEADER, length - at))
    magic = int.from_bytes(head[:MAGIC_BYTES], "little")
    if magic & 0xFFFFFFF0 == SKIPPABLE:
        size = int.from_bytes(head[MAGIC_BYTES : MAGIC_BYTES + SIZE_BYTES], "little")
        stop = at + MAGIC_BYTES + SIZE_BYTES + size
        return cut if stop > length else Extent(stop, 0, 0)
    if magic != MAGIC:
        return f"no zstd frame begins at its byte {at}"
    if head[MAGIC_BYTES] & 8:
        return f"the zstd frame at byte {at} has a reserved bit set"
    frame = _header(head)
    if frame is None:
        return cut
    return _blocks(read, at, frame, length, cut)


def _header(head: bytes) -> Frame | None:
    """The header of a frame; None where it is longer than `head`."""
    about = head[MAGIC_BYTES]
    single = about >> 5 & 1
    size_bytes = (single, 2, 4, 8)[about >> 6]
    start = MAGIC_BYTES + 1 + (1 - single) + (0, 1, 2, 4)[about & 3]
    if start + size_bytes > len(head):
        return None
    content = int.from_bytes(head[start : start + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    return Frame(start + size_bytes, content if size_bytes else None, bool(about & 4))


def _blocks(read: Read, at: int, frame: Frame, length: int, cut: str) -> Extent | str:
    """Follow the blocks of a frame that begins at `at` to its end."""
    position, least, most, last = at + frame.length, 0, 0, False
    while not last:
        if position + BLOCK_HEADER > length:
            return cut
        header = int.from_bytes(read(position, BLOCK_HEADER), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == RESERVED or size > MOST_BLOCK:
            return f"it has no zstd block at byte {position}, where one belongs"
        position += BLOCK_HEADER + (1 if kind == RUN else size)
        least += size if kind in (RAW, RUN) else 0
        most += size if kind in (RAW, RUN) else MOST_BLOCK
    position += CHECKSUM if frame.checksum else 0
    if position > length:
        return cut
    if frame.content is None:
        return Extent(position, least, most)
    if not least <= frame.content <= most:
        return f"the zstd frame at byte {at} cannot decode to the {frame.content} bytes that its header says"
    return Extent(position, frame.content, frame.content)
