"""Signs of life: a run renews the times of its files, and others see by them that it has not ended.

The rule: a run has ended at once where its process has, if that can be known (`owners.has_ended`), and
otherwise where it has given no sign of life for `LIMIT` seconds. Ages are differences of times that the
destination's file system gave, so that the clocks of two machines are never compared. A run that ends by
itself but leaves files sets their time to 0.
"""

import contextlib
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.engine.staging.owners import Owner, from_json, has_ended, parsed

INTERVAL = 10.0
"""Seconds between two signs of life."""
LIMIT = 120.0
"""Seconds without a sign of life after which a run counts as ended."""
_MOST_BYTES = 1 << 16
"""Limit on the bytes that are read of a file that describes a run."""
_LONGEST_JOIN = 1.0
"""Seconds to wait for the thread at the end: it may hang in a network file system."""


@dataclass(frozen=True)
class Sign:
    """What a file tells of the run that made it."""

    owner: Owner | None
    """The run; None where the file does not tell, as after a power cut."""
    document: object
    """The whole JSON in the file; None where it is none."""
    found: os.stat_result
    """Time and identity of the file when it was read."""


def read(file: Path, own: bool = False) -> Sign | None:
    """What a file tells of its run; None where there is no such file. Raises OSError.

    The JSON in the file is the owner, or has it as its member `owner`. A file of another run that may not be
    read has a time at least; `own` says that it should be this run's.
    """
    try:
        with _opened(file) as handle:
            return _sign(handle)
    except FileNotFoundError:
        return None
    except PermissionError:
        if own:
            raise
        return Sign(None, None, os.lstat(file))


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[int]:
    handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield handle
    finally:
        os.close(handle)


def _sign(handle: int) -> Sign:
    found = os.fstat(handle)
    document = parsed(os.read(handle, _MOST_BYTES)) if stat.S_ISREG(found.st_mode) else None
    nested = document.get("owner") if isinstance(document, dict) else None
    return Sign(from_json(nested) or from_json(document), document, found)


# --- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    """Whether a run has ended."""

    ended: bool
    known: bool
    """Whether its process can be seen from here; otherwise its signs of life alone count."""
    age: float
    """Seconds since the last sign of life."""

    @property
    def left(self) -> float:
        """Seconds until it counts as ended if it gives no sign of life."""
        return max(0.0, LIMIT - self.age)


def judge(sign: Sign, lock: Path) -> Life:
    """Whether the run has ended that made a file beside the lock, or in a directory there. Raises OSError."""
    if sign.found.st_mtime == 0:
        return Life(ended=True, known=True, age=LIMIT)
    ended = None if sign.owner is None else has_ended(sign.owner)
    age = max(0.0, _now(lock) - sign.found.st_mtime)
    return Life(age > LIMIT if ended is None else ended, ended is not None, age)


def _now(lock: Path) -> float:
    """The time by the clock of the lock's file system: that of a file which is made for this."""
    probe = new_beside(lock)
    handle = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        os.utime(handle)
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        remove_file(probe)


def new_beside(lock: Path) -> Path:
    """A new name for a short-lived file, which any run that holds the lock may remove."""
    return lock.with_name(f"{lock.name}-{secrets.token_hex(4)}")


def remove_file(file: Path) -> None:
    """Remove a file that another run may have removed. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)


# --- giving signs ---------------------------------------------------------------------------------


@contextlib.contextmanager
def beating(files: Sequence[Path], run: str) -> Iterator[None]:
    """Within this context, a thread renews the times of those of the files that name the run.

    A file that is missing, or cannot be renewed, is no error: before publication, the run looks whether the
    destination is still its own.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(INTERVAL):
            for file in files:
                with contextlib.suppress(OSError):
                    renew(file, run)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LONGEST_JOIN)


def renew(file: Path, run: str) -> None:
    """Set the file's time to the present if it names this run. Raises OSError.

    The handle stands between reading and renewing, so that the file of another run that has replaced it
    meanwhile is not renewed. No space is needed, also where the disk is full.
    """
    with _opened(file) as handle:
        owner = _sign(handle).owner
        if owner is not None and owner.run == run:
            os.utime(handle)


def say_ended(path: Path) -> None:
    """Tell others that the run which made this file or directory has ended. Raises OSError."""
    os.utime(path, (0, 0))
