"""Reading `.npz` files: members that are stored as they are, and deflated ones as streams."""

import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.chunk_reading import read_elements
from ckpt_surgery.formats.npz.detect import NAMES
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX, NpyArray, leaf_of, read_npy
from ckpt_surgery.formats.shared.zip.inflating import Inflated, InflatedFile, check_crc
from ckpt_surgery.formats.shared.zip.members import Archive, Member, read_archive
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened

PARKED = 8
"""Limit on the streams that are kept where reading stopped, so that the next region does not start over."""


class MemberArray(NamedTuple):
    """A member of an archive and the array in it."""

    member: Member
    array: NpyArray


# --- listing ----------------------------------------------------------------------------------------------


def read_parts(file: OpenFile, archive: Archive) -> dict[str, MemberArray]:
    """The arrays of an archive by their names, without `.npy`."""
    parts = {}
    for member in archive.members:
        if not member.name.endswith(NPY_SUFFIX):
            raise SourceError(
                f"{shown(file.path)}: `{shown(member.name[:200])}` is not a .npy file",
                hint="An .npz file holds nothing else; remove it from the archive.",
            )
        with with_path(f"{file.path}: {member.name[:200]}"):
            parts[member.name.removesuffix(NPY_SUFFIX)] = MemberArray(member, _array_in(file, member))
    return parts


def _array_in(file: OpenFile, member: Member) -> NpyArray:
    stream = Inflated(member) if member.deflated else None

    def read(offset: int, length: int) -> bytes:
        if stream is None:
            return file.read(member.offset + offset, length)
        buffer = bytearray(length)
        stream.read_into(file, offset, memoryview(buffer))
        return bytes(buffer)

    return read_npy(read, member.size)


# --- what is not read as plain bytes ----------------------------------------------------------------------


def _check(member: Member, header_crc: int, chunk: Chunk, stored: np.ndarray) -> None:
    """Compare the elements of a member that is stored as it is with its CRC-32."""
    check_crc(chunk.file, member, zlib.crc32(stored.data, header_crc))


class Streams:
    """Partly read streams, so that reading can continue where it stopped. Thread-safe."""

    def __init__(self) -> None:
        self._parked: list[Inflated] = []
        """The streams in the order in which they were parked."""
        self._lock = threading.Lock()

    def take(self, member: Member, offset: int) -> Inflated:
        """A stream of that member that has not passed `offset`; no other caller gets it."""
        with self._lock:
            usable = [s for s in self._parked if s.member == member and s.position <= offset]
            if not usable:
                return Inflated(member)
            nearest = max(usable, key=lambda stream: stream.position)
            self._parked.remove(nearest)
            return nearest

    def park(self, stream: Inflated) -> None:
        """Keep a stream for later; beyond PARKED of them the oldest is dropped."""
        with self._lock:
            self._parked.append(stream)
            del self._parked[:-PARKED]


@dataclass(frozen=True)
class Deflated:
    """Reads an array in a deflated member, as a stream. Reading to its end checks its length and CRC-32."""

    file: str
    """Path of the archive."""
    part: MemberArray
    streams: Streams

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region."""
        member, array = self.part.member, self.part.array
        if not region.size:
            return np.empty(region.shape, array.spec.dtype)
        with opened(self.file, files[self.file]) as file:
            stream = self.streams.take(member, _first_byte(array, region))
            block = read_elements(InflatedFile(file, stream), array.data, array.spec, array.codec, region)
            if stream.position == member.size:
                stream.finish(file)
            else:
                self.streams.park(stream)
        return block


def _first_byte(array: NpyArray, region: Region) -> int:
    """Offset in the `.npy` file of the first element of a region, which is not empty."""
    order = array.codec.permutation
    lengths = [array.spec.shape[axis] for axis in order]
    index = sum(region.starts[axis] * prod(lengths[i + 1 :]) for i, axis in enumerate(order))
    return array.data + index * array.spec.dtype.itemsize


# --- opening ----------------------------------------------------------------------------------------------


def metadata_of(comment: bytes) -> Mapping[str, Any]:
    """The user's metadata: the comment of the archive where that is a JSON object, as the sink writes it."""
    try:
        found = json.loads(comment)
    except (ValueError, RecursionError):
        return {}  # a comment for people
    return found if isinstance(found, dict) else {}


def read(path: str, selection: Selection) -> Listing:
    """Open an `.npz` file, or the only one in a directory.

    Raises SourceError where it is not whole, UsageError for a step or an item.
    """
    name = os.path.join(*NAMES.file_of(path))
    with opened(name) as file:
        archive = read_archive(file)
        parts = read_parts(file, archive)
    return _listing(name, file.stat, parts, metadata_of(archive.comment))


def _listing(
    file: str, stat: FileStat, parts: Mapping[str, MemberArray], metadata: Mapping[str, Any]
) -> Listing:
    leaves, checks = {}, {}
    for text, (member, array) in parts.items():
        leaf = leaves[text] = leaf_of(text, array, file, None if member.deflated else member.offset)
        for chunk in leaf.manifest.chunks.values() if leaf.manifest is not None else ():
            checks[chunk] = partial(_check, member, array.header_crc)
    streams = Streams()
    readers = {text: Deflated(file, part, streams) for text, part in parts.items() if part.member.deflated}
    return Listing(leaves, {file: stat}, metadata, readers=readers, checks=checks)
