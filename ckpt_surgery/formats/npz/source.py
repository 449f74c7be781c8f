"""Reading `.npz` files: members that are stored as they are, and deflated ones as streams."""

import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import raw_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.npz.detect import NAMES
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.chunk_reading import read_elements
from ckpt_surgery.formats.shared.npy import NpyArray, leaf_of, opaque_of, read_npy
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.raw_arrays import Opaque, RawArraysSource
from ckpt_surgery.formats.shared.steps import check_no_choice
from ckpt_surgery.formats.shared.zip.inflating import Inflated, InflatedFile, check_crc
from ckpt_surgery.formats.shared.zip.members import Archive, Member, read_archive
from ckpt_surgery.storage.failures import about, named
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened

PARKED = 8
"""Limit on the streams that are kept where reading stopped, so that the next region does not start over."""


@dataclass(frozen=True, slots=True)
class MemberArray:
    """A member of an archive and the array in it."""

    member: Member
    array: NpyArray


# --- listing ----------------------------------------------------------------------------------------------


def read_parts(file: OpenFile, archive: Archive) -> dict[str, MemberArray]:
    """The arrays of an archive by their names, without `.npy`. Raises SourceError with the member's name."""
    parts = {}
    for member in archive.members:
        if not member.name.endswith(NPY_SUFFIX):
            raise SourceError(
                f"{shown(file.path)}: `{shown(member.name[:200])}` is not a .npy file",
                hint="An .npz file holds nothing else; remove it from the archive.",
            )
        with about(f"{file.path}: {member.name[:200]}"):
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


# --- the source -------------------------------------------------------------------------------------------


class NpzSource(RawArraysSource):
    """An `.npz` file, opened for reading. Safe to use from several threads.

    A member's CRC-32 is checked when it is read to its end as a stream, or as a whole.
    """

    def __init__(
        self,
        path: str,
        file: str,
        stat: FileStat,
        parts: Mapping[str, MemberArray],
        metadata: Mapping[str, Any],
    ):
        leaves = {text: _leaf(text, part, file) for text, part in parts.items()}
        opaque = {text: _opaque(part, file) for text, part in parts.items()}
        super().__init__(
            path,
            "npz",
            leaves,
            {file: stat},
            metadata,
            opaque={text: found for text, found in opaque.items() if found is not None},
        )
        self._file = file
        self._stat = stat
        self._parts = parts
        self._streams = _Streams()

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        part = self._parts[leaf.key.text]
        if part.array.unusable is not None:
            raise self._opaque[leaf.key.text].refused(leaf)
        try:
            return self._inflated(part, region) if part.member.deflated else self._stored(leaf, part, region)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use. Raises SourceError where they cannot be read."""
        part, opaque = self._parts[leaf.key.text], self._opaque[leaf.key.text]
        if not part.member.deflated or part.array.stored is None:
            return super().opaque_elements(leaf, region)
        try:
            return opaque.typed(self._inflated(part, region), part.array.spec.dtype)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def _stored(self, leaf: Leaf, part: MemberArray, region: Region) -> np.ndarray:
        block = super().read(leaf, region)
        spec = part.array.spec
        if region == Region.whole(spec.shape) and part.array.codec == raw_codec(spec.ndim):
            with opened(self._file, self._stat) as file:
                check_crc(file, part.member, zlib.crc32(_bytes(block).data, part.array.header_crc))
        return block

    def _inflated(self, part: MemberArray, region: Region) -> np.ndarray:
        """A region of a stream. Reading to the end of the stream also checks its length and its CRC-32."""
        spec = part.array.laid
        if not region.size:
            return np.empty(region.shape, spec.dtype)
        with opened(self._file, self._stat) as file:
            stream = self._streams.take(part.member, _first_byte(part.array, region))
            block = read_elements(InflatedFile(file, stream), part.array.data, spec, part.array.codec, region)
            if stream.position == part.member.size:
                stream.finish(file)
            else:
                self._streams.park(stream)
        return block


def _leaf(text: str, part: MemberArray, file: str) -> Leaf:
    return leaf_of(text, part.array, file, None if part.member.deflated else part.member.offset)


def _opaque(part: MemberArray, file: str) -> Opaque | None:
    return opaque_of(part.array, file, None if part.member.deflated else part.member.offset)


def _bytes(block: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def _first_byte(array: NpyArray, region: Region) -> int:
    """Offset in the `.npy` file of the first element of a region, which is not empty."""
    order = array.codec.permutation
    lengths = [array.spec.shape[axis] for axis in order]
    index = sum(region.starts[axis] * prod(lengths[i + 1 :]) for i, axis in enumerate(order))
    return array.data + index * array.laid.dtype.itemsize


class _Streams:
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


def metadata_of(comment: bytes) -> Mapping[str, Any]:
    """The user's metadata: the comment of the archive where that is a JSON object, as the sink writes it."""
    try:
        found = json.loads(comment)
    except (ValueError, RecursionError):
        return {}  # a comment for people
    return found if isinstance(found, dict) else {}


def open_npz(path: str, selection: Selection) -> NpzSource:
    """Open an `.npz` file, or the only one in a directory.

    Raises SourceError where it is not whole, UsageError for a step or an item.
    """
    check_no_choice(f"{shown(path)} is an .npz file, which has", selection.step, selection.item)
    name = os.path.join(*NAMES.file_of(path))
    with opened(name) as file:
        archive = read_archive(file)
        return NpzSource(path, name, file.stat, read_parts(file, archive), metadata_of(archive.comment))
