"""Owners of checkpoints in the making: run and process, and how other processes see whether they ended."""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

_PROC = Path("/proc")
"""Directory with Linux's descriptions of processes."""
_RUNNING = "running"
"""Start time of a process of which the system tells only that it exists."""


@dataclass(frozen=True)
class Owner:
    """A run and its process; a later process with the same number is a different owner."""

    run: str
    """Random name of the run, 16 hexadecimal digits."""
    pid: Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
    host: str
    """Name of the machine, for messages: machines and containers can share one."""
    boot: str
    """Identity of the current boot: Linux's boot id, macOS's boot session; empty elsewhere."""
    namespace: str
    """Linux's process namespace of `pid`, as containers have their own; empty if unknown."""
    started: str
    """Start time of the process: on Linux in clock ticks since boot, elsewhere as a date."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True)
class Note:
    """Content of a lock, or of the file that describes a temporary directory."""

    owner: Owner | None = None
    """None if the file does not say, as after a power cut."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """Identity of the run, for `resume`."""
    sign: int = 0
    """Number of renewals, in a lock that is rewritten for each."""


def this_process(run: str) -> Owner:
    """Describe this process as the owner of a run."""
    pid = os.getpid()
    return Owner(run, pid, socket.gethostname(), *_system(), _start_time(pid))


def note_bytes(note: Note) -> bytes:
    """Serialize a note as JSON, in ASCII."""
    return json.dumps(asdict(note)).encode("ascii")


def parse_note(content: bytes) -> Note:
    """Parse a note; an empty one if the content is damaged."""
    try:
        return msgspec.json.decode(content, type=Note)
    except (ValueError, RecursionError):
        return Note()


def has_ended(owner: Owner) -> bool | None:
    """True if the owner's process has ended; None if this process cannot know that.

    Process numbers mean the same only within one start of a system and one process namespace. Nothing else
    tells two machines apart: their names can be equal, and so can the boot ids of containers.
    """
    boot, namespace = _system()
    if not (boot and namespace) or (owner.boot, owner.namespace) != (boot, namespace):
        return None
    started = _start_time(owner.pid)
    return started == "" or (_RUNNING not in (started, owner.started) and started != owner.started)


def _system() -> tuple[str, str]:
    """Boot id and process namespace of this process; empty if the system has none."""
    if sys.platform == "darwin":
        return _boot_session(), "macos"  # which has one namespace for each boot
    try:
        if os.readlink(_PROC / "self") != str(os.getpid()):  # it describes another namespace's processes
            return "", ""
        return _line(_PROC / "sys/kernel/random/boot_id"), os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return "", ""


def _boot_session() -> str:
    """macOS's `kern.bootsessionuuid`, new with each boot; empty if unknown."""
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    failed = ask is None or ask(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0))
    return "" if failed else text.value.decode("ascii", "replace")


def _line(path: Path) -> str:
    """Read a small file of the kernel; empty if there is no such file."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _start_time(pid: int) -> str:
    """Start time of a process; empty if there is none, or if it is a zombie.

    On Linux it is field 22 of /proc/PID/stat, see proc(5). The name in parentheses can contain anything, so
    fields are counted from its end; the state follows it.
    """
    if not (_PROC / "self/stat").exists():
        return _start_time_of_ps(pid)
    fields = _line(_PROC / f"{pid}/stat").rpartition(")")[2].split()
    if not fields:  # it has ended, or is hidden: it belongs to somebody else, see `hidepid` in proc(5)
        return _RUNNING if _exists(pid) else ""
    return "" if fields[0] in "ZX" else fields[19]


def _start_time_of_ps(pid: int) -> str:
    """The date that ps(1) prints, for systems without /proc; `running` if there is no ps either."""
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
    except PermissionError:
        pass  # it belongs to somebody else
    return True
