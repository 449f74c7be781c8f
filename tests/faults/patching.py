"""System calls that fail on command in functions of Python: for systems without the kernel's help.

Calls of libraries that are not written in Python are not seen.
"""

import builtins
import ctypes
import fcntl
import io
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.faults.calls import FICLONE, KILL, Counter

_PATHS = {
    "open": ("open", 0),
    "rename": ("rename", 1),
    "replace": ("rename", 1),
    "link": ("link", 1),
    "symlink": ("link", 1),
    "mkdir": ("mkdir", 0),
    "unlink": ("remove", 0),
    "remove": ("remove", 0),
    "rmdir": ("remove", 0),
}
_FILES = {
    "write": ("write", 0),
    "pwrite": ("write", 0),
    "ftruncate": ("write", 0),
    "copy_file_range": ("write", 1),
    "fsync": ("sync", 0),
    "fdatasync": ("sync", 0),
    "pread": ("read", 0),
    "preadv": ("read", 0),
}


def install(counter: Counter) -> None:
    """Let the functions of this process ask the counter before they act."""
    for name, (kind, position) in _PATHS.items():
        _replace(os, name, kind, position, lambda value: os.path.abspath(os.fsdecode(value)), counter)
    for name, (kind, position) in _FILES.items():
        if hasattr(os, name):
            _replace(os, name, kind, position, _path_of, counter)
    real_open, real_ioctl = builtins.open, fcntl.ioctl

    def opening(file: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(file, int):
            _ask(counter, "open", "open", os.path.abspath(os.fsdecode(file)))
        return real_open(file, *rest, **named)

    def controlling(file: Any, request: int, *rest: Any) -> Any:
        if request == FICLONE:
            _ask(counter, "link", "ioctl", _path_of(file))
        return real_ioctl(file, request, *rest)

    builtins.open = io.open = opening  # type: ignore[assignment]
    fcntl.ioctl = controlling  # type: ignore[assignment]
    from ckpt_surgery.storage import system_calls

    called = system_calls.call

    def calling(name: str, *arguments: Any, path: Any) -> None:
        kind = "link" if name == "clonefile" else "rename"
        _ask(counter, kind, name, os.path.abspath(path))
        called(name, *arguments, path=path)

    system_calls.call = calling


def _replace(
    module: Any, name: str, kind: str, position: int, path: Callable[[Any], str], counter: Counter
) -> None:
    real = getattr(module, name)

    def asking(*arguments: Any, **named: Any) -> Any:
        _ask(counter, kind, name, path(arguments[position]))
        return real(*arguments, **named)

    setattr(module, name, asking)


def _path_of(descriptor: Any) -> str:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    if os.path.exists("/proc/self/fd"):
        return os.readlink(f"/proc/self/fd/{number}")
    found = fcntl.fcntl(number, getattr(fcntl, "F_GETPATH", 50), bytes(1024))
    return os.fsdecode(found.split(b"\0")[0])


def _ask(counter: Counter, kind: str, name: str, path: str) -> None:
    decision = counter.decide(kind, name, path)
    if decision == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if decision:
        ctypes.set_errno(decision)
        raise OSError(decision, os.strerror(decision), path)
