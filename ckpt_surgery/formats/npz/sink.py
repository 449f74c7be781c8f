"""Writing `.npz`: one archive of `.npy` files that are not compressed, whose places are known beforehand."""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.npz.archive import PlannedMember, comment_of, members_of
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zip.writing import CRC_AT, PlacedMember, archive_end, written_crc
from ckpt_surgery.storage.adopting import preallocate
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.regions import PreallocatedArray, PreallocatedWriter

DEFAULT_NAME = "checkpoint.npz"


class NpzSink:
    """Writes one file into a directory. The file is not a valid archive before `finish`."""

    def __init__(self, path: Path, comment: bytes, outputs: Sequence[Output]):
        self.outputs = outputs
        self._path = path
        self._comment = comment

    @cached_property
    def _members(self) -> Sequence[PlannedMember]:
        return members_of([output.leaf for output in self.outputs])

    @cached_property
    def _places(self) -> Sequence[PlacedMember]:
        return [member.place for member in self._members]

    @property
    def _end(self) -> int:
        """Offset of the archive's directory."""
        return self._places[-1].stop if self._places else 0

    def create(self) -> None:
        """Make the file in its full size, with all headers but no directory. Raises StorageError."""
        end = archive_end(self._places, [0] * len(self._places), self._comment)
        preallocate(self._path, self._end + len(end))
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for member in self._members:
                file.seek(member.place.header)
                file.write(member.place.local_header(0) + member.begin)

    def attach(self, worker: str) -> PreallocatedWriter:
        """A writer of arrays. All workers write to the same file."""
        return PreallocatedWriter(
            {
                member.text: PreallocatedArray(
                    self._path, member.place.start + len(member.begin), member.spec
                )
                for member in self._members
                if member.spec is not None
            }
        )

    def finish(self, workers: Sequence[str]) -> None:
        """Read everything back for its CRC-32, and make the file an archive. Raises StorageError."""
        with opened(os.fspath(self._path)) as written:
            crcs = [written_crc(written, place) for place in self._places]
        with storage_errors(self._path), open(self._path, "r+b") as file:
            for place, crc in zip(self._places, crcs, strict=True):
                file.seek(place.header + CRC_AT)
                file.write(crc.to_bytes(4, "little"))
            file.seek(self._end)
            file.write(archive_end(self._places, crcs, self._comment))

    def record(self, text: str) -> bool:
        """Do nothing: an archive has no place for it."""
        return False


def open_npz_sink(directory: Path, options: SinkOptions, outputs: Sequence[Output]) -> NpzSink:
    """A sink that writes one file: `checkpoint.npz`, or `options.file_name`.

    The metadata is the archive's comment, as JSON.
    """
    return NpzSink(directory / (options.file_name or DEFAULT_NAME), comment_of(options.metadata), outputs)
