"""Locks that name their owner: a file beside the destination, and how to tell that its run has ended."""

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
"""Attempts to get the guard of a directory that another run holds, a hundredth of a second apart."""


_PROC = Path("/proc")
"""Directory in which Linux describes processes."""
_RUNNING = "running"
"""Stands for a start time where the system tells only that a process exists."""


class _Guard(enum.Enum):
    """Whether this run has a directory's guard, so that no other run examines the locks in it."""

    HELD = enum.auto()
    BUSY = enum.auto()
    """Another process holds the guard."""
    UNKNOWN = enum.auto()
    """The file system cannot lock directories; some network file systems cannot."""


@dataclass(frozen=True)
class _Owner:
    """The process that holds a lock. A later process with the same number has another description."""

    pid: int
    host: str
    boot: str
    """Linux's boot id; empty on other systems."""
    namespace: str
    """Linux's process namespace of `pid`, as containers have their own; empty on other systems."""
    started: str
    """Start time of the process: on Linux in clock ticks since boot, elsewhere as a date."""


def _this_process() -> _Owner:
    pid, namespace = os.getpid(), _PROC / "self/ns/pid"
    return _Owner(
        pid=pid,
        host=socket.gethostname(),
        boot=_line(_PROC / "sys/kernel/random/boot_id"),
        namespace=os.readlink(namespace) if os.path.lexists(namespace) else "",
        started=_start_time(pid),
    )


def _line(path: Path) -> str:
    """The text of a small file of the kernel; empty where there is no such file."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _start_time(pid: int) -> str:
    """When a process started; empty where there is none, or where it has ended and waits to be reaped."""
    if (_PROC / "self/stat").exists():
        return _start_time_of_proc(pid)
    return _start_time_of_ps(pid)


def _start_time_of_proc(pid: int) -> str:
    """Field 22 of /proc/PID/stat, see proc(5).

    The name in parentheses can contain anything, so fields are counted from its end; the state follows it.
    """
    state, *fields = _line(_PROC / f"{pid}/stat").rpartition(")")[2].split() or ["X"]
    return "" if state in "ZX" else fields[18]


def _start_time_of_ps(pid: int) -> str:
    """The date that ps(1) prints, for systems without /proc; `running` where there is no ps either."""
    import subprocess

    if not _exists(pid):
        return ""
    try:
        done = subprocess.run(
            ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],
            capture_output=True, text=True, check=False, timeout=10,
            env=os.environ | {"LC_ALL": "C", "TZ": "UTC"},  # so that every run reads the same date
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return _RUNNING
    state, _, started = done.stdout.strip().partition(" ")
    if not started:
        return _RUNNING if _exists(pid) else ""
    return "" if state.startswith("Z") else started.strip()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to somebody else
        return True
    return True


def _is_dead(owner: _Owner) -> bool:
    """Whether the process has certainly ended; False if this process cannot find that out."""
    here = _this_process()
    if owner.host != here.host:
        return False
    if owner.boot != here.boot:
        return True
    if owner.namespace != here.namespace:
        return False
    started = _start_time(owner.pid)
    return started == "" or (_RUNNING not in (started, owner.started) and started != owner.started)


def acquire(lock: Path) -> tuple[str, ...]:
    """Create the lock, or take over the lock of a dead run. Raises DestinationError where a run is alive.

    Returns one sentence for what was taken over, for the user.
    """
    with _guarded(lock.parent) as guard:
        if _create_lock(lock):
            return ()
        notice = _judge(lock, guard)
        if guard is _Guard.BUSY:
            raise DestinationError(
                f"{shown(str(lock))}: a run left this lock behind, and it cannot be taken over while "
                "another process has locked the directory, as flock(1) does",
                hint="Try again once that process is done, or remove the lock file.",
            )
        lock.unlink(missing_ok=True)
        if not _create_lock(lock):
            raise DestinationError(f"{shown(str(lock))}: another run has just taken this lock")
    return (notice,)


def check(lock: Path) -> None:
    """Raise DestinationError where `acquire` would; change nothing."""
    if os.path.lexists(lock):
        with _guarded(lock.parent) as guarded:
            _judge(lock, guarded)


@contextlib.contextmanager
def _guarded(parent: Path) -> Iterator[_Guard]:
    """Lock the directory itself, so that only one run at a time takes over locks in it.

    Two runs that both find a dead lock would otherwise each remove the other's new one. The kernel
    releases this guard when its process ends, whatever the reason.
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
    """A sentence that says how the lock's run ended. Raises DestinationError where it is or may be alive."""
    try:
        owner = _Owner(**json.loads(lock.read_bytes()))
    except FileNotFoundError:
        return "another run has just ended"
    except (ValueError, TypeError):
        if guard is _Guard.HELD:
            # No living run is between creating the lock and writing it, so the run that created it has died.
            return f"took over {shown(str(lock))}, which a run left behind unfinished"
        raise _locked(lock, "another run") from None
    who = f"process {owner.pid} on {shown(str(owner.host))}"
    if not _is_dead(owner):
        raise _locked(lock, who)
    return f"took over the lock of {who}, which has ended without finishing"


def _locked(lock: Path, who: str) -> DestinationError:
    return DestinationError(
        f"{shown(str(lock))}: {who} is writing this destination",
        hint="Wait until it is done. If you are sure that it has ended, remove the lock file.",
    )
