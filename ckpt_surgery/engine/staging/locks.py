"""Locks that say whose they are: a file beside the destination, and how to tell that its run is dead."""

import contextlib
import enum
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.text import shown

_GUARD_TRIES = 100
"""How often to ask for the guard of a directory while another run has it; a hundredth of a second apart."""


class _Guard(enum.Enum):
    """Whether this run alone looks at the locks of a directory."""

    HELD = enum.auto()
    BUSY = enum.auto()
    """Another process has it."""
    UNKNOWN = enum.auto()
    """Directories cannot be guarded there: some network file systems refuse it."""


@dataclass(frozen=True)
class _Owner:
    """Which process holds a lock, so that a later one with the same number is not taken for it."""

    pid: int
    host: str
    boot: str
    """Linux's boot id; empty where there is none."""
    namespace: str
    """The process namespace that `pid` counts in: containers have their own."""
    started: str
    """When the process started, in clock ticks since boot."""


def _this_process() -> _Owner:
    pid = os.getpid()
    return _Owner(
        pid=pid,
        host=socket.gethostname(),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        namespace=os.readlink("/proc/self/ns/pid") if os.path.lexists("/proc/self/ns/pid") else "",
        started=_start_time(pid),
    )


def _line(path: str) -> str:
    """The first line of a small file of the kernel's, empty where there is no such file."""
    try:
        return Path(path).read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _start_time(pid: int) -> str:
    """When a process started; empty where there is none, or one that only waits to be reaped.

    Fields of /proc/PID/stat as in proc(5): the name in parentheses may hold anything, the state comes
    after it, the start time is field 22.
    """
    if not os.path.isdir("/proc/self"):
        return _runs(pid)
    state, *fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split() or ["X"]
    return "" if state in "ZX" else fields[18]


def _runs(pid: int) -> str:
    """Where there is no /proc: `running`, or empty."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "running"
    return "running"


def _is_dead(owner: _Owner) -> bool:
    """Whether the process is surely gone; False where it cannot be seen from here."""
    here = _this_process()
    if owner.host != here.host:
        return False
    if owner.boot != here.boot:
        return True
    return owner.namespace == here.namespace and _start_time(owner.pid) != owner.started


def acquire(lock: Path) -> tuple[str, ...]:
    """Create the lock, or take a dead run's over and say so. Raises DestinationError for a living one's."""
    with _guarded(lock.parent) as guard:
        if _create_lock(lock):
            return ()
        notice = _judge(lock, guard)
        if guard is _Guard.BUSY:
            raise DestinationError(
                f"{shown(str(lock))}: a run left this lock behind, and another process keeps this one from "
                "taking it over: it has locked the directory, as flock(1) does",
                hint="Try again once it is done, or remove the lock file.",
            )
        lock.unlink(missing_ok=True)
        if not _create_lock(lock):
            raise DestinationError(f"{shown(str(lock))}: another run has just taken this lock")
    return (notice,)


def check(lock: Path) -> None:
    """Raises DestinationError where `acquire` would. Takes nothing over."""
    if os.path.lexists(lock):
        with _guarded(lock.parent) as guarded:
            _judge(lock, guarded)


@contextlib.contextmanager
def _guarded(parent: Path) -> Iterator[_Guard]:
    """Only one run at a time takes over the locks of a directory.

    Two runs that both find a dead lock would otherwise each remove the other's new one. The kernel
    releases this guard when its process dies, whatever the reason.
    """
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _flock(handle)
    finally:
        os.close(handle)


def _flock(handle: int) -> _Guard:
    for _ in range(_GUARD_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                return _Guard.UNKNOWN
            time.sleep(0.01)
        else:
            return _Guard.HELD
    return _Guard.BUSY


def _create_lock(lock: Path) -> bool:
    """Create the lock file with this process's identity in it; False where it exists."""
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    try:
        os.write(handle, json.dumps(asdict(_this_process())).encode())
    except BaseException:
        lock.unlink()
        raise
    finally:
        os.close(handle)
    return True


def _judge(lock: Path, guard: _Guard) -> str:
    """A notice that the lock's run is dead. Raises DestinationError where it lives, or nobody knows."""
    try:
        owner = _Owner(**json.loads(lock.read_bytes()))
    except FileNotFoundError:
        return "another run has just ended"
    except (ValueError, TypeError):
        if guard is _Guard.HELD:  # nobody is between creating it and writing to it: it died there
            return f"took over {shown(str(lock))}, which a run left behind unfinished"
        raise _locked(lock, "another run") from None
    who = f"process {owner.pid} on {shown(str(owner.host))}"
    if not _is_dead(owner):
        raise _locked(lock, who)
    return f"took over the lock of {who}, which has ended without finishing"


def _locked(lock: Path, who: str) -> DestinationError:
    return DestinationError(
        f"{shown(str(lock))}: {who} is writing this destination",
        hint="Wait until it is done. If you are sure that it no longer runs, remove the lock file.",
    )
