"""NumPy's `.npz`: one zip archive of `.npy` files, as `np.savez` and `np.savez_compressed` write it.

Members that are not compressed are read by their places, deflated ones as streams. Archives are written
without compression. Source of the format: `zip.members`, `npy`, and NumPy 2.4's `savez` and `load`.
"""

import json
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, ravelled
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.chunk_reading import read_elements
from ckpt_surgery.formats.registry import Format, Listing, Names, Selection
from ckpt_surgery.formats.shared import npy
from ckpt_surgery.formats.shared.zip.members import Inflated, ZipMember, check_crc, first_name, read_archive
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened

PARKED = 8
"""Limit on the streams that are kept where reading stopped, so that the next region does not start over."""


def _begins(file: OpenFile) -> bool | None:
    first = first_name(file)
    return None if first is None else first.endswith(npy.NPY_SUFFIX)


NAMES = Names(".npz files", _begins, (".npz",), alone=True)

FORMAT = Format(
    name="npz",
    detect=NAMES.detect,
    module=__name__,
    writable=True,
    suffixes=NAMES.suffixes,
    is_file=lambda name: True,
    flat=True,
    holds_empty=False,
    holds_lists=False,
)


def read(path: str, selection: Selection) -> Listing:
    """Open an `.npz` file, or the only one in a directory."""
    name = os.path.join(*NAMES.file_of(path))
    leaves, checks, readers, streams = {}, {}, {}, Streams()
    with opened(name) as file:
        archive = read_archive(file)
        for member in archive.values():
            text = member.name.removesuffix(npy.NPY_SUFFIX)
            if text == member.name:
                what = f"{shown(name)}: `{shown(member.name[:200])}` is not a .npy file"
                raise SourceError(what, hint="An .npz file holds nothing else; remove it from the archive.")
            with with_path(f"{name}: {member.name[:200]}"):
                array = _array_in(file, member)
            leaf = leaves[text] = npy.leaf_of(text, array, name, None if member.deflated else member.offset)
            for chunk in leaf.manifest.chunks.values() if leaf.manifest is not None else ():
                checks[chunk] = partial(_check, member, array.header_crc)
            if member.deflated:
                readers[text] = Deflated(name, member, array, streams)
    metadata = metadata_of(archive.comment)
    return Listing(leaves, {name: file.stat}, metadata, readers=readers, checks=checks)


def _array_in(file: OpenFile, member: ZipMember) -> npy.NpyArray:
    if member.deflated:
        return npy.read_npy(Inflated(member).within(file).read, member.size)
    return npy.read_npy(lambda offset, length: file.read(member.offset + offset, length), member.size)


def metadata_of(comment: bytes) -> Mapping[str, Any]:
    """The user's metadata: the comment of the archive where that is a JSON object, as the sink writes it."""
    try:
        metadata = json.loads(comment)
    except (ValueError, RecursionError):
        return {}  # a comment for people
    return metadata if isinstance(metadata, dict) else {}


def _check(member: ZipMember, header_crc: int, chunk: Chunk, stored: np.ndarray) -> None:
    """Compare the elements of a member that is stored as it is with its CRC-32."""
    check_crc(chunk.file, member, zlib.crc32(stored.data, header_crc))


class Streams:
    """Partly read streams, so that reading can continue where it stopped. Thread-safe."""

    def __init__(self) -> None:
        self._parked: list[Inflated] = []
        """The streams in the order in which they were parked."""
        self._lock = threading.Lock()

    def take(self, member: ZipMember, offset: int) -> Inflated:
        """A stream of that member that has not passed `offset`; no other caller gets it."""
        with self._lock:
            usable = [s for s in self._parked if s.member == member and s.position <= offset]
            nearest = max(usable, key=lambda stream: stream.position, default=None)
            if nearest is not None:
                self._parked.remove(nearest)
        return Inflated(member) if nearest is None else nearest

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
    member: ZipMember
    array: npy.NpyArray
    streams: Streams

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        member, array = self.member, self.array
        if not region.size:
            return np.empty(region.shape, array.spec.dtype)
        order = array.codec.permutation
        start = (region.starts[axis] for axis in order)
        index = ravelled(start, tuple(array.spec.shape[axis] for axis in order))
        first_byte = array.data + index * array.spec.dtype.itemsize  # of the region, in the member
        with opened(self.file, files[self.file]) as file:
            stream = self.streams.take(member, first_byte)
            block = read_elements(stream.within(file), array.data, array.spec, array.codec, region)
            if stream.position == member.size:
                stream.finish(file)
            else:
                self.streams.park(stream)
        return block
