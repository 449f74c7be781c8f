"""Reading `.npz`: members stored as they are, in place; deflated ones as streams."""

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
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import raw_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.npz.detect import MEMBER_SUFFIX, chosen
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.npy import NpyArray, read_npy
from ckpt_surgery.formats.shared.raw_arrays import Opaque, StretchesSource, read_elements, stretch
from ckpt_surgery.formats.shared.zip_inflating import Inflated, InflatedFile, check_crc
from ckpt_surgery.formats.shared.zip_members import Archive, Member, read_archive
from ckpt_surgery.storage.listing import FileStat, about, check_no_choice, file_of, named
from ckpt_surgery.storage.reading import OpenFile, opened

PARKED = 8
"""Streams that are kept where they stopped, so that the next region does not begin at the beginning."""


@dataclass(frozen=True, slots=True)
class Part:
    """A member and the array in it."""

    member: Member
    array: NpyArray


# --- listing ----------------------------------------------------------------------------------------------


def read_parts(file: OpenFile, archive: Archive) -> dict[str, Part]:
    """The arrays of an archive by their names, without `.npy`. Raises SourceError with the member's name."""
    parts = {}
    for member in archive.members:
        if not member.name.endswith(MEMBER_SUFFIX):
            raise SourceError(
                f"{shown(file.path)}: `{shown(member.name[:200])}` is no .npy file",
                hint="An .npz file holds nothing else; take it out of the archive.",
            )
        with about(f"{file.path}: {member.name[:200]}"):
            parts[member.name.removesuffix(MEMBER_SUFFIX)] = Part(member, _array_in(file, member))
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


def leaf_of(text: str, array: NpyArray, file: str, offset: int | None) -> Leaf:
    """The leaf of an array in a file; `offset`: of the `.npy` file in it, None where it is deflated."""
    if array.text is not None:
        return Leaf(Key.parse(text), LeafKind.STRING, string=array.text)
    manifest = None
    if offset is not None and array.unusable is None:
        manifest = stretch(array.spec, file, offset + array.data, array.codec)
    return Leaf(Key.parse(text), LeafKind.ARRAY, array.spec, manifest)


def opaque_of(array: NpyArray, file: str, offset: int | None) -> Opaque | None:
    """What there is of an array that can only be listed; None for others. `offset`: as for `leaf_of`."""
    if array.unusable is None:
        return None
    stored = None
    if offset is not None and array.stored is not None:
        stored = stretch(array.laid, file, offset + array.data, array.codec)
    return Opaque(array.unusable.why, array.unusable.hint, stored, array.stored)


# --- the source -------------------------------------------------------------------------------------------


class NpzSource(StretchesSource):
    """An `.npz` file, opened for reading. Safe to use from several threads.

    A member's CRC-32 is checked when it is read to its end as a stream, or as a whole.
    """

    def __init__(
        self, path: str, file: str, stat: FileStat, parts: Mapping[str, Part], metadata: Mapping[str, Any]
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
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        part = self._parts[leaf.key.text]
        if part.array.unusable is not None:
            raise self._opaque[leaf.key.text].refused(leaf)
        try:
            return self._inflated(part, region) if part.member.deflated else self._stored(leaf, part, region)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use. Raises SourceError where they cannot be had."""
        part, opaque = self._parts[leaf.key.text], self._opaque[leaf.key.text]
        if not part.member.deflated or part.array.stored is None:
            return super().opaque_elements(leaf, region)
        try:
            return opaque.typed(self._inflated(part, region), part.array.spec.dtype)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def _stored(self, leaf: Leaf, part: Part, region: Region) -> np.ndarray:
        block = super().read(leaf, region)
        spec = part.array.spec
        if region == Region.whole(spec.shape) and part.array.codec == raw_codec(spec.ndim):
            with opened(self._file, self._stat) as file:
                check_crc(file, part.member, zlib.crc32(_bytes(block).data, part.array.header_crc))
        return block

    def _inflated(self, part: Part, region: Region) -> np.ndarray:
        """A region of a stream. Reading to the end of it checks that it ends there, and its CRC-32."""
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


def _leaf(text: str, part: Part, file: str) -> Leaf:
    return leaf_of(text, part.array, file, None if part.member.deflated else part.member.offset)


def _opaque(part: Part, file: str) -> Opaque | None:
    return opaque_of(part.array, file, None if part.member.deflated else part.member.offset)


def _bytes(block: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8)


def _first_byte(array: NpyArray, region: Region) -> int:
    """Offset in the `.npy` file of the first element of a region that has some."""
    order = array.codec.permutation
    lengths = [array.spec.shape[axis] for axis in order]
    index = sum(region.starts[axis] * prod(lengths[i + 1 :]) for i, axis in enumerate(order))
    return array.data + index * array.laid.dtype.itemsize


class _Streams:
    """Streams that were read up to somewhere, so that who goes on from there need not begin again.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._parked: list[Inflated] = []
        """The one that was parked last is last."""
        self._lock = threading.Lock()

    def take(self, member: Member, offset: int) -> Inflated:
        """A stream of that member that is not beyond `offset`; nobody else has it."""
        with self._lock:
            usable = [s for s in self._parked if s.member == member and s.position <= offset]
            if not usable:
                return Inflated(member)
            nearest = max(usable, key=lambda stream: stream.position)
            self._parked.remove(nearest)
            return nearest

    def park(self, stream: Inflated) -> None:
        with self._lock:
            self._parked.append(stream)
            del self._parked[:-PARKED]


def metadata_of(comment: bytes) -> Mapping[str, Any]:
    """The user's metadata: the archive's comment where that is a JSON object, as the sink writes it."""
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
    name = os.path.join(*file_of(path, chosen))
    with opened(name) as file:
        archive = read_archive(file)
        return NpzSource(path, name, file.stat, read_parts(file, archive), metadata_of(archive.comment))
