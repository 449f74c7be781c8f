"""System calls of a process that fail on command, whichever library makes them. Linux only.

The process installs a filter (seccomp(2)) by which the kernel asks another process, before each call of
certain numbers, whether to carry it out. Nothing has to be compiled or installed, and no privilege is needed.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable

from tests.faults.calls import FICLONE, KILL, Call, Counter, numbers

_NO_NEW_PRIVILEGES = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_REQUEST_BYTES = 80
_PATH_BYTES = 4096
_HERE = -100
"""AT_FDCWD."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def available() -> bool:
    """Whether this system can do it: a process of its own tries."""
    if sys.platform != "linux" or not numbers():
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if install(()) >= 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def install(kinds: Iterable[str]) -> int:
    """Let the kernel ask before each call of these kinds of this thread, and of threads and processes that it
    starts. Returns the descriptor on which it asks, or -1 where the system refuses."""
    machine = os.uname().machine
    library = ctypes.CDLL(None, use_errno=True)
    asked = [number for number, call in numbers().items() if call.kind in set(kinds)]
    steps = [(_LOAD, 0, 0, 0)]
    for i, number in enumerate(asked):
        steps.append((_JUMP_IF_EQUAL, len(asked) - i, 0, number))
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    text = b"".join(struct.pack("HBBI", code, yes, no, value) for code, yes, no, value in steps)
    buffer = ctypes.create_string_buffer(text, len(text))
    program = _Program(len(steps), ctypes.cast(buffer, ctypes.c_void_p))
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return int(library.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program)))


def install_and_send(kinds: Iterable[str], to: socket.socket) -> None:
    """Install the filter, and hand the descriptor to the process that `answer`s."""
    descriptor = install(kinds)
    if descriptor < 0:
        raise OSError("this system has no seccomp(2)")
    socket.send_fds(to, [b"x"], [descriptor])
    os.close(descriptor)


def answer(process: int, from_: socket.socket, counter: Counter, until: float) -> None:
    """Decide about every call of a child process until it ends, or the monotonic clock reaches `until`."""
    _, descriptors, _, _ = socket.recv_fds(from_, 1, 1)
    listener = descriptors[0]
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    calls, state = numbers(), _Process(process)
    while (left := until - time.monotonic()) > 0:
        ready = waiting.poll(1000 * left)
        if not ready or not ready[0][1] & select.POLLIN:  # time is up, or no process has the filter any more
            break
        request = bytearray(_REQUEST_BYTES)
        try:
            fcntl.ioctl(listener, _RECEIVE, request)
            number, *arguments = _parsed(request)
            decision = state.decide(calls[number], arguments, counter)
            if decision == KILL:
                os.kill(process, signal.SIGKILL)
                decision = errno.EINTR  # which nobody sees; otherwise the call would still be carried out
            fcntl.ioctl(listener, _SEND, _response(request, decision))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESRCH):  # the thread that asked has ended
                raise
    os.close(listener)


def _parsed(request: bytearray) -> tuple[int, ...]:
    """The number of the call, and its six arguments: struct seccomp_notif of <linux/seccomp.h>."""
    number = struct.unpack_from("i", request, 16)[0]
    return (number, *struct.unpack_from("6Q", request, 32))


def _response(request: bytearray, error: int) -> bytearray:
    identity = struct.unpack_from("Q", request)[0]
    return bytearray(struct.pack("QqiI", identity, 0, -error, 0 if error else _CONTINUE))


class _Process:
    """What the arguments of a process's calls mean."""

    def __init__(self, number: int):
        self._directory = f"/proc/{number}"
        self._memory = os.open(f"{self._directory}/mem", os.O_RDONLY)

    def decide(self, call: Call, arguments: list[int], counter: Counter) -> int:
        if call.name == "ioctl" and arguments[1] != FICLONE:
            return 0
        return counter.decide(call.kind, call.name, self._path(call, arguments))

    def _path(self, call: Call, arguments: list[int]) -> str:
        if call.path is None:
            return self._link(f"fd/{arguments[call.file]}")
        path = self._text(arguments[call.path])
        folder = _HERE if call.folder is None else ctypes.c_int(arguments[call.folder]).value
        relative_to = self._link("cwd" if folder == _HERE else f"fd/{folder}")
        return os.path.normpath(os.path.join(relative_to, path))

    def _link(self, name: str) -> str:
        try:
            return os.readlink(f"{self._directory}/{name}")
        except OSError:
            return ""

    def _text(self, address: int) -> str:
        """The string at an address, which ends with a zero byte."""
        try:
            # A read across the end of what is mapped gives what there is.
            return os.fsdecode(os.pread(self._memory, _PATH_BYTES, address).split(b"\0")[0])
        except OSError:
            return ""
