"""Writing `.npz`: one archive of `.npy` files that are not compressed, whose places are known beforehand."""

import os
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.npz.archive import CRC_AT, PlannedMember, archive_end, comment_of, members_of
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import OpenFile, opened
from ckpt_surgery.storage.regions import PreallocatedArray, PreallocatedWriter

DEFAULT_NAME = "checkpoint.npz"
PIECE = 1 << 18
"""Bytes that are read back in one go."""


class NpzSink:
    """Writes one file into a directory. The file is not a valid archive before `finish`."""

    def __init__(self, path: Path, comment: bytes, outputs: Sequence[Output]):
        self.outputs = outputs
        self._path = path
        self._comment = comment

    @cached_property
    def _members(self) -> Sequence[PlannedMember]:
        return members_of([output.leaf for output in self.outputs])

    @property
    def _end(self) -> int:
        """Offset of the archive's directory."""
        return self._members[-1].stop if self._members else 0

    def create(self) -> None:
        """Make the file in its full size, with all headers but no directory. Raises StorageError."""
        end = archive_end(self._members, dict.fromkeys((m.text for m in self._members), 0), self._comment)
        preallocate(self._path, self._end + len(end))
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for member in self._members:
                file.seek(member.header)
                file.write(member.local_header(0) + member.begin)

    def attach(self, worker: str) -> PreallocatedWriter:
        """A writer of arrays. All workers write to the same file."""
        return PreallocatedWriter(
            {
                member.text: PreallocatedArray(self._path, member.start + len(member.begin), member.spec)
                for member in self._members
                if member.spec is not None
            }
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Read everything back for its CRC-32, and make the file an archive. Raises StorageError."""
        with opened(os.fspath(self._path)) as written:
            crcs = {member.text: _crc(written, member) for member in self._members}
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for member in self._members:
                file.seek(member.header + CRC_AT)
                file.write(crcs[member.text].to_bytes(4, "little"))
            file.seek(self._end)
            file.write(archive_end(self._members, crcs, self._comment))

    def record(self, text: str) -> bool:
        """Do nothing: an archive has no place for it."""
        return False


def _crc(file: OpenFile, member: PlannedMember) -> int:
    """CRC-32 of a whole `.npy` file, header included."""
    crc, buffer = 0, memoryview(bytearray(min(PIECE, member.size)))
    for at in range(member.start, member.stop, PIECE):
        part = buffer[: member.stop - at]
        file.read_into(at, part)
        crc = zlib.crc32(part, crc)
    return crc


def open_npz_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> NpzSink:
    """A sink that writes one file: `checkpoint.npz`, or `options.file_name`.

    The metadata is the archive's comment, as JSON.
    """
    return NpzSink(directory / (options.file_name or DEFAULT_NAME), comment_of(options.metadata), outputs)
