"""Bytes that exist already, brought into a new checkpoint: whole files by link, ranges of them by copy.

Nothing is decoded. A linked file is complete on its own: the source may be deleted.
"""

import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ckpt_surgery.core.cancellation import check_wanted
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage import system_calls
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
"""What a file system says that cannot link, or cannot link these two."""
PIECE = 16 << 20
"""Bytes that one request copies at most: between requests a run that is stopped is noticed."""


class DataFiles:
    """The data files of a new checkpoint that come from others. Thread-safe."""

    def __init__(self, directory: Path, mode: LinkMode):
        self._directory = directory
        """Where the paths of our chunks are relative to."""
        self._mode = mode
        self._real: dict[str, str] = {}
        """The files themselves, by the paths that were asked for."""
        self._linked: dict[str, str] = {}
        self._copied: dict[tuple[str, int, int], Chunk] = {}
        self._packed: Path | None = None
        self._packed_size = 0
        self._lock = threading.Lock()

    def linked(self, chunk: Chunk) -> Chunk:
        """The same bytes in a file of ours, which shares its blocks or its inode with the source's file."""
        with self._lock:
            real = self._resolved(chunk.file)
            if real not in self._linked:
                name = self._new_name()
                with _errors(chunk.file):
                    link(Path(real), self._directory / name, self._mode)
                self._linked[real] = name
            return Chunk(self._linked[real], chunk.offset, chunk.length)

    def copied(self, chunk: Chunk) -> Chunk:
        """The same bytes in a file of ours, as they are stored."""
        with self._lock:
            place = (self._resolved(chunk.file), chunk.offset, chunk.length)
            if place in self._copied:  # tied weights, say
                return self._copied[place]
            if self._packed is None:
                self._packed = self._directory / self._new_name()
                self._packed.touch()
            offset = self._packed_size
            self._packed_size += chunk.length
            name = os.fspath(self._packed.relative_to(self._directory))
            self._copied[place] = Chunk(name, offset, chunk.length)
        copy_chunk(chunk, self._packed, offset)
        return self._copied[place]

    def _resolved(self, path: str) -> str:
        """The file itself: a hard link to a link, as a Hugging Face cache has them, would hang in the air.

        Raises SourceError where it is gone.
        """
        if path not in self._real:
            self._real[path] = data_file(path).path
        return self._real[path]

    def _new_name(self) -> str:
        (self._directory / "d").mkdir(parents=True, exist_ok=True)
        return f"d/{secrets.token_hex(16)}"


def copy_chunk(chunk: Chunk, destination: Path, at: int) -> None:
    """Copy the stored bytes of a chunk into a file that exists. Raises SourceError, StorageError."""
    with _errors(chunk.file):
        if chunk.inline is None:
            copy_range(Path(chunk.file), chunk.offset, chunk.length, destination, at)
        else:
            with destination.open("r+b") as writer:
                os.pwrite(writer.fileno(), chunk.inline, at)


def link(source: Path, destination: Path, mode: LinkMode) -> None:
    """Make `destination` a file with the bytes of `source`, without copying where the mode allows.

    `auto` takes what the file system can: reflink, hard link, copy. Raises OSError.
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
    """Copy bytes between files, inside the kernel where it can. OSError; EOFError for a short source."""
    with source.open("rb") as reader, destination.open("r+b") as writer:
        done = 0
        while done < length:
            check_wanted()
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
        raise SourceError(f"{shown(str(error))}: it is shorter than its index says") from error
    except OSError as error:
        if source:
            data_file(source)  # where it is gone, that is what to tell
        raise StorageError(
            f"{shown(source)} could not be linked or copied: {error.strerror or error}",
            hint='Check the free space and the file systems; `link_mode="copy"` works between any two.',
        ) from error
