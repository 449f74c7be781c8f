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
    """Documents are files, which take their names in one step once they are whole."""

    def __init__(self, destination: Path):
        self.directory = directory_for(destination)
        self.place = os.fspath(self.directory)
        self.work = os.path.join(self.place, RESULT)
        self.complete = self.directory / COMPLETE
        """Name of `work` once `take` has renamed it."""

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Make the directory under another name, and give it its own when it is complete."""
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
        """A name beside the directory's that `clear` removes, too."""
        return self.directory.with_name(f"{self.directory.name}-{secrets.token_hex(8)}")

    def _remove_headless(self) -> None:
        """Remove a directory without a head: a late attempt made it again by writing after `clear`."""
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
        """Write a file of another name, and rename it."""
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
        """Synchronize files with the disk, or the server that has them, and the directories they are in."""
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
        """Take what all shards have written away from attempts that still write, though nobody needs them."""
        with storage_errors(self.complete):
            if not exists(self.complete) and exists(Path(self.work)):
                os.rename(self.work, self.complete)

    def clear(self) -> None:
        """Remove the directory, and what killed processes have left of theirs."""
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
    """Rename where the target does not exist. Raises FileExistsError, OSError."""
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
