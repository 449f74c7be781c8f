"""The directory of parts on a file system that all machines see."""

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ckpt_surgery.engine.parts import HEAD, Head, head_bytes
from ckpt_surgery.engine.staging.renaming import rename_atomically
from ckpt_surgery.engine.staging.syncing import interruptibly, sync_directory, sync_file, sync_tree
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists

RESULT = "result"
COMPLETE = "complete"


def directory_for(destination: Path) -> Path:
    """The directory of parts of a destination."""
    destination = absolute(destination)
    return destination.with_name(f".{destination.name}.ckpt-surgery-parts")


class LocalParts:
    """Parts on a file system: documents are files that are renamed into place once they are whole."""

    def __init__(self, destination: Path):
        self.directory = directory_for(destination)
        self.place = os.fspath(self.directory)
        self.work = os.path.join(self.place, RESULT)
        self.complete = self.directory / COMPLETE
        """Name of `work` once `take` has renamed it."""

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Create the directory under a temporary name and rename it once it is complete."""
        temporary = self._other_name()
        try:
            with storage_errors(temporary):
                os.mkdir(temporary)
                os.mkdir(temporary / RESULT)
                _write(temporary / head.plan, plan)
                _write(temporary / HEAD, head_bytes(head))
            create(os.fspath(temporary / RESULT))
            with storage_errors(self.directory):
                interruptibly(partial(sync_tree, temporary))
                self._remove_headless()
                with contextlib.suppress(FileExistsError):
                    _rename(temporary, self.directory)
                sync_directory(self.directory.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _other_name(self) -> Path:
        """New temporary name beside the directory; `clear` removes what has one."""
        return self.directory.with_name(f"{self.directory.name}-{secrets.token_hex(8)}")

    def _remove_headless(self) -> None:
        """Remove a directory without a head, which a late attempt re-created by writing after `clear`."""
        if exists(self.directory / HEAD) or not self.directory.is_dir():
            return
        aside = self._other_name()
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.directory, aside)
            if exists(aside / HEAD):  # another process began in between
                _rename(aside, self.directory)
            shutil.rmtree(aside, ignore_errors=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file."""
        path = self.directory / name
        with storage_errors(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put(self, name: str, document: bytes) -> bool:
        """Write a file under a temporary name, and rename it."""
        path = self.directory / name
        unfinished = path.with_name(f"{name}.{secrets.token_hex(8)}")
        with storage_errors(path):
            try:
                _write(unfinished, document)
                _rename(unfinished, path)
            except FileExistsError:
                return False
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
            sync_directory(self.directory)
        return True

    def sync(self, written: Iterable[str]) -> None:
        """Flush files and their directories to the disk, or to the file server."""
        paths = sorted(set(map(Path, written)))
        above = {parent for path in paths for parent in path.parents if parent.is_relative_to(self.work)}

        def sync() -> None:
            for path in paths:
                (sync_tree if path.is_dir() else sync_file)(path)
            for directory in sorted(above, reverse=True):
                sync_directory(directory)

        with storage_errors(self.directory):
            interruptibly(sync)

    def take(self) -> None:
        """Move what all shards wrote out of reach of redundant attempts that are still writing."""
        with storage_errors(self.complete):
            if not exists(self.complete) and exists(Path(self.work)):
                os.rename(self.work, self.complete)

    def clear(self) -> None:
        """Remove the directory, and temporary ones that killed processes left."""
        with storage_errors(self.directory):
            aside = self._other_name()
            if exists(self.directory):
                os.rename(self.directory, aside)
            for path in self.directory.parent.glob(f"{glob.escape(self.directory.name)}-*"):
                shutil.rmtree(path, ignore_errors=True)  # another process may be removing it, too
                if exists(path):
                    shutil.rmtree(path)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
    sync_file(path)


def _rename(source: Path, target: Path) -> None:
    """Rename if the target does not exist. Raises FileExistsError, OSError."""
    try:
        rename_atomically(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if not source.is_dir():
            raise
        try:
            os.rename(source, target)  # fails where somebody was faster: a directory of parts is never empty
        except OSError:
            raise FileExistsError(str(target)) if exists(target) else error from None
