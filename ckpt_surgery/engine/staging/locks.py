"""Locks that name their run: a file beside the destination that its run renews, see `heartbeat`.

They hold across machines and containers. Nothing that a lock says proves by itself that its run has ended;
see `owners.has_ended` for what does, and `heartbeat` for what counts where nothing can be proved.
"""

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.heartbeat import Life, Sign, judge, new_beside, read, remove_file
from ckpt_surgery.engine.staging.owners import Owner, to_json
from ckpt_surgery.engine.staging.renaming import UNSUPPORTED, rename_atomically

_GUARD_TRIES = 100
"""Attempts to get the guard of a directory that another run holds, a hundredth of a second apart."""
_TRIES = 10
"""Attempts to take a lock that other runs take and release at the same time."""


@dataclass(frozen=True)
class Taken:
    """How a lock was taken."""

    notices: tuple[str, ...] = ()
    """A sentence for the user where it was a dead run's."""
    ended: str = ""
    """The dead run's name."""


def acquire(lock: Path, owner: Owner) -> Taken:
    """Create the lock, or take over the lock of a dead run. Raises DestinationError where a run is alive."""
    taken = Taken()
    with _guarded(lock.parent):
        for _ in range(_TRIES):
            if _create(lock, owner):
                return taken
            sign = read(lock)
            if sign is None:  # its run has just ended
                continue
            if sign.owner == owner:
                # The answer to the request that created it was lost, as network file systems can lose one.
                return taken
            life = judge(sign, lock)
            if not life.ended:
                raise _locked(lock, sign, life)
            if _take_away(lock, sign):
                taken = Taken((_took_over(lock, sign),), sign.owner.run if sign.owner else "")
    raise DestinationError(f"{shown(str(lock))}: other runs are just taking this lock", hint="Try again.")


def check(lock: Path) -> None:
    """Raise DestinationError where `acquire` would; change nothing."""
    sign = read(lock)
    if sign is not None:
        life = judge(sign, lock)
        if not life.ended:
            raise _locked(lock, sign, life)


def confirm(lock: Path, owner: Owner) -> None:
    """Make sure that the lock is still this run's, right before it publishes.

    A lock that a person has removed is created again. Raises DestinationError where another run has it,
    OSError where it cannot be read.
    """
    for _ in range(_TRIES):
        sign = read(lock, own=True)
        if sign is not None:
            if sign.owner is not None and sign.owner.run == owner.run:
                return
            raise _lost(lock, sign)
        if _create(lock, owner):
            return
    raise DestinationError(f"{shown(str(lock))}: other runs are taking this lock; nothing was published")


def release(lock: Path, owner: Owner) -> None:
    """Remove the lock if it is this run's. Raises OSError."""
    sign = read(lock)
    if sign is not None and sign.owner is not None and sign.owner.run == owner.run:
        remove_file(lock)


# --- the file -------------------------------------------------------------------------------------


def _create(lock: Path, owner: Owner) -> bool:
    """Create the lock with its owner in it; False where it exists. Raises OSError."""
    written = new_beside(lock)
    try:
        _write(written, owner)
        return _name(written, lock, owner)
    except FileNotFoundError:  # another run has just tidied up
        return False
    finally:
        remove_file(written)


def _write(path: Path, owner: Owner) -> None:
    """Make a file with the owner in it: all of it, or there is no file. Raises OSError."""
    with open(path, "x", encoding="ascii") as file:
        try:
            file.write(json.dumps(to_json(owner)))
            file.flush()
        except OSError:
            remove_file(path)
            raise


def _name(written: Path, lock: Path, owner: Owner) -> bool:
    """Give a file that names the owner the lock's name; False where that is taken. Raises OSError.

    The lock is whole at once. Only on file systems that have neither call nor hard links for it, a run that
    dies between creating the lock and writing it leaves one that names nobody.
    """
    try:
        rename_atomically(written, lock)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        try:
            _write(lock, owner)
        except FileExistsError:
            return False
    return True


def _take_away(lock: Path, sign: Sign) -> bool:
    """Remove a dead run's lock; False where it has changed meanwhile. Raises OSError.

    It is moved first and looked at again: another run may have taken it over since it was read, and must not
    lose it.
    """
    moved = new_beside(lock)
    try:
        os.rename(lock, moved)
    except FileNotFoundError:
        return False
    try:
        now = read(moved)
        same = now is not None and _same(now.found, sign.found)
        if now is not None and now.owner is not None and not same:
            _name(moved, lock, now.owner)
        return same
    finally:
        remove_file(moved)


def _same(now: os.stat_result, before: os.stat_result) -> bool:
    """Whether it is the same file, and was not renewed."""
    return os.path.samestat(now, before) and now.st_mtime_ns == before.st_mtime_ns


@contextlib.contextmanager
def _guarded(parent: Path) -> Iterator[None]:
    """Lock the directory itself where the file system can, so that one run at a time takes over locks in it.

    Without it, or where another process holds it for long, two runs that take over a dead lock at the same
    time can both be refused; never do both go on. The kernel releases it when the process ends.
    """
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _flock(handle)
        yield
    finally:
        os.close(handle)


def _flock(handle: int) -> None:
    for _ in range(_GUARD_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                return  # some network file systems cannot lock directories
            time.sleep(0.01)
        else:
            return


# --- messages -------------------------------------------------------------------------------------


def who(owner: Owner | None) -> str:
    """The run in messages."""
    return "another run" if owner is None else shown(str(owner))


def last_sign(life: Life) -> str:
    """When a run has given its last sign of life."""
    return f"last sign of life {life.age:.0f} s ago"


def _took_over(lock: Path, sign: Sign) -> str:
    if sign.owner is None:
        return f"took over {shown(str(lock))}, which a run left behind unfinished"
    return f"took over the lock of {who(sign.owner)}, which has ended without finishing"


def _locked(lock: Path, sign: Sign, life: Life) -> DestinationError:
    if life.known:
        hint = "Wait until it is done. If you are sure that it has ended, remove the lock file."
    else:
        hint = (
            "Wait until it is done. If it has ended, which cannot be seen from here, its lock will be taken "
            f"over {life.left:.0f} s from now; if you are sure of it, remove the lock file."
        )
    return DestinationError(
        f"{shown(str(lock))}: {who(sign.owner)} is writing this destination ({last_sign(life)})", hint=hint
    )


def _lost(lock: Path, sign: Sign) -> DestinationError:
    return DestinationError(
        f"{shown(str(lock))}: {who(sign.owner)} has taken over this destination during this run",
        hint="Nothing was published. A run counts as dead after two minutes without a sign of life, "
        "or when its lock was removed.",
    )
