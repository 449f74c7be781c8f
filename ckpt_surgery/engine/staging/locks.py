"""Locks: a file or an object beside the destination, which its run renews.

A file's modification time is renewed. It holds across machines and containers. A file system has no
compare-and-swap: a dead run's lock is renamed away, and looked at again, before another run creates its own.

An object is rewritten. Whoever writes it names the version that has to be there, so that of two runs one
always loses. It holds for `LEASE` seconds by the store's own clock.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.heartbeat import TRIES, Lock, Sign
from ckpt_surgery.engine.staging.owners import Note, Owner, note_bytes, parse_note
from ckpt_surgery.engine.staging.syncing import UNSUPPORTED, rename_atomically
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.store import Condition, ConditionFailed, Only, Store

_GUARD_TRIES = 100
"""Attempts at the guard of a directory that another run holds, a hundredth of a second apart."""


class FileLock(Lock):
    """A lock file, created atomically with its content."""

    interval = 10.0
    limit = 120.0

    def __init__(self, path: Path):
        super().__init__(os.fspath(path))
        self._path = path

    def acquire(self) -> tuple[str, ...]:
        """Acquire as `Lock` does, one run at a time. Raises DestinationError, StorageError."""
        with storage_errors(self._path), _guarded(self._path.parent):
            return super().acquire()

    def read(self) -> Sign | None:
        return read_sign(self._path)

    def renew(self) -> None:
        """Set the file's time to the present if it names this run. Raises OSError.

        The handle stands between reading and renewing, so that the lock of another run that has replaced it
        meanwhile is not renewed. No space is needed, so that a full disk does no harm.
        """
        with _opened(self._path) as handle:
            if self._is_own(_sign(*_read(handle))):
                os.utime(handle)

    def confirm(self) -> None:
        for _ in range(TRIES):
            sign = read_sign(self._path, own=True)
            if sign is not None:
                if self._is_own(sign):
                    return
                raise self._taken(sign.owner)
            if self._create():
                return
        raise self._contended()

    def _create(self) -> bool:
        written = self._new_beside()
        try:
            _write(written, self.owner)
            return self._name(written, self.owner)
        except FileNotFoundError:  # another run has just tidied up
            return False
        finally:
            written.unlink(missing_ok=True)

    def _name(self, written: Path, owner: Owner) -> bool:
        """Link a file that names the owner to the lock's name; False if that exists. Raises OSError.

        Only on file systems that have neither call nor hard links for it, a run that dies between creating
        the lock and writing it leaves one that names nobody.
        """
        with contextlib.suppress(FileExistsError):
            try:
                rename_atomically(written, self._path)
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                _write(self._path, owner)
            return True
        return False

    def _replace(self, sign: Sign) -> bool:
        return self._take_away(sign) and self._create()

    def _take_away(self, sign: Sign) -> bool:
        """Remove a dead run's lock; False if it changed meanwhile. Raises OSError.

        It is moved, and looked at again: another run may have taken it over meanwhile, and must not lose it.
        """
        moved = self._new_beside()
        try:
            os.rename(self._path, moved)
        except FileNotFoundError:
            return False
        try:
            now = read_sign(moved)
            same = now is not None and now.version == sign.version
            if now is not None and now.owner is not None and not same:
                self._name(moved, now.owner)
            return same
        finally:
            moved.unlink(missing_ok=True)

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _now(self) -> float:
        """Time of a newly created file: on network file systems the server's clock counts."""
        probe = self._new_beside()
        handle = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            os.utime(handle)
            return os.fstat(handle).st_mtime
        finally:
            os.close(handle)
            probe.unlink(missing_ok=True)

    def _new_beside(self) -> Path:
        """New name for a short-lived file, which any run that holds the lock may remove."""
        return self._path.with_name(f"{self._path.name}-{secrets.token_hex(4)}")


def read_sign(file: Path, own: bool = False) -> Sign | None:
    """Read a lock file, or one meant to become a lock; None if there is none. Raises OSError.

    A file that may not be read has a time at least; `own` says that it should be this run's.
    """
    try:
        with _opened(file) as handle:
            return _sign(*_read(handle))
    except FileNotFoundError:
        return None
    except PermissionError:
        if own:
            raise
        return _sign(Note(), os.lstat(file))


def read_note(file: Path) -> Note:
    """Read the note in a file; empty if the file is missing or must not be read. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, PermissionError), _opened(file) as handle:
        return _read(handle)[0]
    return Note()


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield handle
    finally:
        os.close(handle)


def _read(handle: int) -> tuple[Note, os.stat_result]:
    """Read note and status of an open file; the note is empty for a pipe, whose reading would never end."""
    status = os.fstat(handle)
    return parse_note(os.read(handle, 1 << 16)) if stat.S_ISREG(status.st_mode) else Note(), status


def _sign(note: Note, status: os.stat_result) -> Sign:
    return Sign(note.owner, status.st_mtime, (status.st_dev, status.st_ino, status.st_mtime_ns))


def _write(path: Path, owner: Owner) -> None:
    """Write a file with the owner, completely or not at all. Raises OSError."""
    with open(path, "xb") as file:
        try:
            file.write(note_bytes(Note(owner)))
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _guarded(parent: Path) -> Iterator[None]:
    """Lock the directory itself, if the file system can, so that runs take over its locks one at a time.

    Without it, or if another process holds it for long, two runs that take over a dead lock at the same
    time can both be refused; never do both go on. The kernel releases it when the process ends.
    """
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(_GUARD_TRIES):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                    break  # some network file systems cannot lock directories
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)


# --- in object stores -------------------------------------------------------------------------------------


LEASE = 60.0
"""Seconds without a renewal after which a run counts as ended."""


def lock_name(name: str) -> str:
    """Name of the lock object of a destination."""
    parent, slash, last = name.rpartition("/")
    return f"{parent}{slash}.{last}.ckpt-surgery-lock"


class ObjectLock(Lock):
    """A lock object. Safe to use from several threads. Methods raise StorageError."""

    interval = 20.0
    limit = LEASE

    def __init__(self, store: Store, name: str):
        super().__init__(f"{store.url}/{name}")
        self._store = store
        self._name = name
        self._version = ""
        self._signs = 0
        self._taker: Owner | None = None
        self._released = False
        self._guard = threading.Lock()

    def read(self) -> Sign | None:
        """Read the lock; None if there is none. Notes the version if it is this run's."""
        for _ in range(TRIES):
            stat = self._store.stat(self._name)
            if stat is None:
                return None
            with contextlib.suppress(SourceError):  # it has just been renewed or released: look again
                note = parse_note(self._store.read(self._name, version=stat.version))
                sign = Sign(note.owner, stat.modified / 1e9, stat.version, note.sign)
                if self._is_own(sign):
                    self._version = stat.version
                return sign
        raise self._contended()

    def renew(self) -> None:
        """Rewrite the lock. If another run took it, it is marked as lost."""
        with self._guard:
            for _ in range(TRIES):
                if self.lost or self._released or self._put(self._version):
                    return
                sign = self.read()
                if sign is None:
                    if self._put(Only.ABSENT):  # a person has removed it
                        return
                elif self._is_own(sign):
                    if sign.number == self._signs:
                        return  # the answer to this request was lost; else, to an earlier one: try again
                else:
                    self.lost, self._taker = True, sign.owner
            if not self.lost:
                raise self._contended()

    def check_held(self) -> None:
        """Raise DestinationError if the lock is known to be lost; sends no request."""
        if self.lost:
            raise self._taken(self._taker)

    def confirm(self) -> None:
        """Check that this run holds the lock, and renew it. Raises DestinationError."""
        self.renew()
        self.check_held()

    def release(self) -> None:
        """Remove the lock if it is this run's, and stop renewing it."""
        with self._guard:
            self._released = True
            super().release()

    def _create(self) -> bool:
        if not self._put(Only.ABSENT):
            return False
        if self._put(Only.ABSENT):  # it takes no notice of conditions, without which a lock is useless
            self._remove()
            raise StorageError(
                f"{shown(self._store.url)} replaces objects that are to be written only where there are none",
                hint="Nothing can be published safely there. Write to a local directory, and upload it.",
            )
        return True

    def _replace(self, sign: Sign) -> bool:
        return self._put(str(sign.version))

    def _put(self, only: Condition) -> bool:
        """Write the lock conditionally; False if the condition does not hold.

        The content is new each time: if versions are digests, equal bytes would have the same version.
        """
        self._signs += 1
        content = note_bytes(Note(self.owner, sign=self._signs))
        with contextlib.suppress(ConditionFailed):
            self._version = self._store.put(self._name, content, only).version
            return True
        return False

    def _remove(self) -> None:
        self._store.delete([self._name])

    def _now(self) -> float:
        return self._store.now() / 1e9
