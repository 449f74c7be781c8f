"""Stored bytes of other checkpoints, brought into a new one: whole files by link, ranges of files by copy.

Nothing is decoded. A linked file does not depend on its source, which can be deleted.
"""

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import LinkMode, Output
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.failures import DAMAGED, storage_error, storage_errors
from ckpt_surgery.storage.listing import data_file

FICLONE = 0x40049409
"""Linux's request to share a whole file's blocks, from <linux/fs.h>: see ioctl_ficlonerange(2)."""
UNSUPPORTED = (
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOTTY,
    errno.EINVAL,
    errno.EXDEV,
    errno.ENOSYS,
    errno.EPERM,
    errno.EMLINK,
)
"""Errors by which a file system says that it cannot link at all, or cannot link these two files."""
PIECE = 16 << 20
"""Bytes that one request copies at most. Between requests, the copy ends if the run was cancelled."""


class AdoptedFiles:
    """The files of a new checkpoint that take stored bytes of others: linked files, and one of copied ranges.

    Which file holds which bytes follows from the outputs alone, so every process that opens the same
    checkpoint finds the same. Safe to use from several threads.
    """

    def __init__(self, directory: Path, mode: LinkMode, outputs: Iterable[Output]):
        self._directory = directory
        """Directory that the paths of the new chunks are relative to."""
        self._mode = mode
        self._copied = [o.stored for o in outputs if o.stored is not None and o.copied]
        self._real: dict[str, str] = {}
        """Resolved paths by the paths that were asked for."""
        self._linked: set[str] = set()
        """Resolved paths of the files that are linked already."""
        self._done: set[Chunk] = set()
        """The copied ranges, by their locations in the new checkpoint."""
        self._lock = threading.Lock()

    def create(self) -> None:
        """Make the file of copied ranges, in its full size. Raises StorageError, SourceError."""
        offsets, size = self._layout
        if offsets:
            path = self._directory / PACKED
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:
                    file.truncate(size)

    def located(self, chunk: Chunk, copied: bool) -> Chunk:
        """Where the bytes of a stored chunk are in the new checkpoint. SourceError where its file is gone."""
        real = self._resolved(chunk.file)
        if not copied:
            return Chunk(_name_for(real), chunk.offset, chunk.length)
        offsets, _ = self._layout
        return Chunk(PACKED, offsets[real, chunk.offset, chunk.length], chunk.length)

    def bring(self, chunk: Chunk, copied: bool, worker: int) -> None:
        """Copy the bytes of a chunk, or link the file that holds them, unless that was done before.

        Workers with different numbers may bring the same file at the same time. Raises StorageError, and
        SourceError where the source's file is gone or too short.
        """
        if copied:
            place = self.located(chunk, copied)
            if place not in self._done:
                copy_chunk(chunk, self._directory / PACKED, place.offset)
                self._done.add(place)
            return
        real = self._resolved(chunk.file)
        with self._lock:
            if real not in self._linked:
                with _errors(chunk.file):
                    self._link(Path(real), self._directory / _name_for(real), worker)
                self._linked.add(real)

    def _link(self, real: Path, path: Path, worker: int) -> None:
        """Link under a temporary name first: a file with its final name is complete, even after a crash."""
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.worker-{worker}")
        unfinished.unlink(missing_ok=True)
        link(real, unfinished, self._mode)
        unfinished.rename(path)
        # Renaming does nothing where another worker has made a hard link to the same file meanwhile.
        unfinished.unlink(missing_ok=True)

    @cached_property
    def _layout(self) -> tuple[Mapping[tuple[str, int, int], int], int]:
        """Offsets in the file of copied ranges, by resolved path, offset and length; and the file's size.

        Bytes that several outputs share, as tied weights do, are there once.
        """
        offsets: dict[tuple[str, int, int], int] = {}
        size = 0
        for manifest in self._copied:
            for chunk in manifest.chunks.values():
                if chunk.inline is None:
                    range_ = (self._resolved(chunk.file), chunk.offset, chunk.length)
                    if range_ not in offsets:
                        offsets[range_] = size
                        size += chunk.length
        return offsets, size

    def _resolved(self, path: str) -> str:
        """The file itself: a hard link to one of a Hugging Face cache's symbolic links would lead nowhere.

        Raises SourceError where it is gone.
        """
        if path not in self._real:
            self._real[path] = data_file(path).path
        return self._real[path]


def _name_for(real: str) -> str:
    """The name of a linked file in the new checkpoint."""
    return f"d/{hashlib.blake2b(os.fsencode(real), digest_size=16).hexdigest()}"


PACKED = _name_for("")
"""The name of the file of copied ranges."""


def copy_chunk(chunk: Chunk, destination: Path, at: int) -> None:
    """Copy the stored bytes of a chunk into a file that exists. Raises SourceError, StorageError."""
    with _errors(chunk.file):
        if chunk.inline is None:
            copy_range(Path(chunk.file), chunk.offset, chunk.length, destination, at)
        else:
            with destination.open("r+b") as writer:
                os.pwrite(writer.fileno(), chunk.inline, at)


def link(source: Path, destination: Path, mode: LinkMode) -> None:
    """Make `destination` a file with the bytes of `source`, in the way that the mode names.

    `auto` takes the first that the file system supports: reflink, hard link, copy. Raises OSError.
    """
    ways = {
        LinkMode.AUTO: (_reflink, os.link, _copy_file),
        LinkMode.REFLINK: (_reflink,),
        LinkMode.HARDLINK: (os.link,),
        LinkMode.COPY: (_copy_file,),
    }[mode]
    for way in ways:
        try:
            way(source, destination)
            return
        except OSError as error:
            if error.errno not in UNSUPPORTED or way is ways[-1]:
                raise


def _reflink(source: Path, destination: Path) -> None:
    """Create a file that shares all blocks with the source. Raises OSError where that is not supported."""
    if system_calls.has("clonefile"):  # macOS
        system_calls.call("clonefile", os.fsencode(source), os.fsencode(destination), 0, path=destination)
    else:
        _ficlone(source, destination)


def _ficlone(source: Path, destination: Path) -> None:
    with source.open("rb") as reader, destination.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
        except OSError:
            destination.unlink()
            raise


def _copy_file(source: Path, destination: Path) -> None:
    length = source.stat().st_size
    destination.touch(exist_ok=False)
    copy_range(source, 0, length, destination, 0)


def copy_range(source: Path, offset: int, length: int, destination: Path, at: int) -> None:
    """Copy bytes between files, inside the kernel where it can.

    Raises OSError, and EOFError where the source is too short.
    """
    with source.open("rb") as reader, destination.open("r+b") as writer:
        done = 0
        while done < length:
            raise_if_cancelled()
            piece = min(PIECE, length - done)
            moved = _move(reader.fileno(), writer.fileno(), piece, offset + done, at + done)
            if hasattr(os, "posix_fadvise"):
                # Starts writing to the disk now rather than when everything is synchronized at the end.
                os.posix_fadvise(writer.fileno(), at + done, moved, os.POSIX_FADV_DONTNEED)
            if moved == 0:
                raise EOFError(f"{source} ends at byte {offset + done}")
            done += moved


def _move(reader: int, writer: int, count: int, offset: int, at: int) -> int:
    """Copy at most `count` bytes, inside the kernel where it can; returns how many were copied."""
    if hasattr(os, "copy_file_range"):
        try:
            return os.copy_file_range(reader, writer, count, offset, at)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    block = os.pread(reader, count, offset)
    return os.pwrite(writer, block, at)


@contextmanager
def _errors(source: str) -> Iterator[None]:
    """Turns what the system refuses into StorageError, or SourceError where the source's file is at fault."""
    try:
        yield
    except EOFError as error:
        raise SourceError(f"{shown(str(error))}: it is shorter than its index says", hint=DAMAGED) from error
    except OSError as error:
        if source:
            data_file(source)  # raises an error that says more if the file is gone
        raise storage_error(
            f"{shown(source) or 'Stored bytes'} could not be linked or copied", error
        ) from error
