"""Stored bytes of other checkpoints, brought into a new one: whole files by link, ranges of files by copy.

Nothing is decoded. A linked file does not depend on its source, which can be deleted.
"""

import errno
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.storage import linking
from ckpt_surgery.storage.failures import storage_error, unreadable
from ckpt_surgery.storage.linking import SafeToHardlink
from ckpt_surgery.storage.listing import data_file
from ckpt_surgery.storage.paths import path_text
from ckpt_surgery.storage.reading import OpenFile, opened, range_crc, read_pieces, write_at
from ckpt_surgery.storage.samples import state_of


class FileLinks:
    """Files of a new checkpoint that share their bytes with files of others, or are copies where need be.

    Safe to use from several threads. Processes that link the same file give it the same name.
    """

    def __init__(self, directory: Path, mode: LinkMode, replaced: SafeToHardlink):
        self._directory = directory
        """Directory that the names of the new files are relative to."""
        self._mode = mode
        self._replaced = replaced
        """The files that may be hard-linked where the mode is `auto`."""
        self._real: dict[str, str] = {}
        """Resolved paths by the paths that were asked for."""
        self._linked: set[str] = set()
        """Resolved paths of the files that are linked already."""
        self._lock = threading.Lock()

    def link(self, file: str) -> tuple[str, AdoptedFile | None]:
        """Link a file; returns its new name, and what was done unless it was done before."""
        if file not in self._real:
            # A hard link to one of a Hugging Face cache's symbolic links would lead nowhere.
            self._real[file] = data_file(file).path
        real = self._real[file]
        name = name_for(real)
        with self._lock:
            if real in self._linked:
                return name, None
            with _errors(file, self._directory / name):
                brought = self._link(real, name)
            self._linked.add(real)
        return name, brought

    def _link(self, real: str, name: str) -> AdoptedFile:
        """Link under a temporary name first: a file with its final name is complete, even after a crash.

        What cannot be linked is copied, unless only reflinks are asked for. Raises OSError besides.
        """
        status, path = os.stat(real), self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        how, reason = self._linked_as(Path(real), unfinished)
        crc = None
        if how is LinkMode.COPY:
            free = shutil.disk_usage(path.parent).free
            if free < status.st_size:
                sizes = f"it has {bytes_text(status.st_size)}, {bytes_text(free)} are free"
                why = f"{shown(real)} cannot be linked ({reason}), and a copy of it does not fit"
                raise storage_error(why, OSError(errno.ENOSPC, sizes))
            with opened(real) as reader, unfinished.open("xb", buffering=0) as writer:
                crc = _copy_bytes(reader, 0, reader.stat.size, writer, 0, 0)
        unfinished.rename(path)
        # Renaming does nothing where another worker has made a hard link to the same file meanwhile.
        unfinished.unlink(missing_ok=True)
        sample = state_of(os.fspath(path)).sample
        return AdoptedFile(name, real, how, status.st_size, status.st_mtime_ns, crc, reason, sample)

    def _linked_as(self, source: Path, destination: Path) -> tuple[LinkMode, str]:
        """Kind of link that was made, and ""; or `copy` and the reason why none was made. Raises OSError."""
        ways, reason = [self._mode], ""  # the best one first
        if self._mode is LinkMode.AUTO:
            safe = self._replaced.allows(os.fspath(source))
            ways = [LinkMode.REFLINK, LinkMode.HARDLINK] if safe else [LinkMode.REFLINK]
        for way in ways if self._mode is not LinkMode.COPY else ():
            try:
                (linking.reflink if way is LinkMode.REFLINK else os.link)(source, destination)
            except OSError as error:
                if error.errno not in linking.UNSUPPORTED or self._mode is LinkMode.REFLINK:
                    raise
                reason = error.strerror or str(error)
            else:
                return way, ""
        return LinkMode.COPY, reason


def name_for(file: str) -> str:
    """The name in the new checkpoint of a linked file, given by its real path, or of a copied object."""
    return f"d/{hashlib.blake2b(os.fsencode(file), digest_size=16).hexdigest()}"


def copy_chunk(
    chunk: Chunk, destination: Path, places: Sequence[tuple[int, int]], known: int | None = None
) -> int:
    """Copy the stored bytes of a chunk into a file that exists; returns their CRC-32C.

    `places`: offsets in that file, and lengths, of the pieces that the bytes are dealt to, in order. If the
    bytes that are there have the checksum `known`, they are not copied.
    """
    with _errors(chunk.file, destination), destination.open("r+b", buffering=0) as writer:
        if known is not None:
            with opened(os.fspath(destination)) as file:
                there = 0
                for offset, length in places:
                    there = range_crc(file, offset, length, there)
            if there == known:
                return known
        crc, at = 0, 0
        if chunk.inline is not None:
            for offset, length in places:
                write_at(writer.fileno(), offset, memoryview(chunk.inline)[at : at + length])
                at += length
            return bytes_crc(chunk.inline)
        with opened(chunk.file) as reader:
            for offset, length in places:
                crc = _copy_bytes(reader, chunk.offset + at, length, writer, offset, crc)
                at += length
        return crc


def _copy_bytes(reader: OpenFile, offset: int, length: int, writer: FileIO, at: int, crc: int) -> int:
    """Copy bytes between files; returns the CRC-32C of what was before and of them."""
    for done, part in read_pieces(reader, offset, length):
        crc = bytes_crc(part, crc)
        write_at(writer.fileno(), at + done, part)
        if hasattr(os, "posix_fadvise"):
            # Starts writing to the disk now rather than when everything is synchronized at the end.
            os.posix_fadvise(writer.fileno(), at + done, len(part), os.POSIX_FADV_DONTNEED)
    return crc


@contextmanager
def _errors(source: str, destination: Path) -> Iterator[None]:
    """Turns what the system refuses into StorageError, or SourceError where the source's file is at fault."""
    try:
        yield
    except OSError as error:
        if source:
            data_file(source)  # raises an error that says more if the file is gone
            if isinstance(error, PermissionError) and not os.access(source, os.R_OK):
                raise unreadable(source, error) from error
        # Where bytes are copied, these are errors of the file that is written.
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            raise storage_error(path_text(destination), error) from error
        raise storage_error(
            f"{shown(source) or 'Stored bytes'} could not be linked or copied", error
        ) from error
