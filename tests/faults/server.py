"""Runs of the program, each in a fork of a process that has imported everything already.

A run then takes as long as its work, and thousands of them are possible. `python -m tests.faults.server`
reads one request per line from its standard input, and answers each with a line: see `tests.faults.runs`.
"""

import contextlib
import fcntl
import importlib
import json
import mmap
import os
import pkgutil
import resource
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tests.faults import kernel, key_value_runs, patching
from tests.faults.calls import ERRORS, Counter, Fault

_SHARED_BYTES = 1 << 14


def main() -> None:
    """Answer requests until the standard input ends."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    _import_everything()
    in_kernel = kernel.available() and "FAULTS_IN_PYTHON" not in os.environ
    for line in sys.stdin:
        print(json.dumps(_carry_out(json.loads(line), in_kernel)), flush=True)


def _import_everything() -> None:
    """Import the package and what it imports when it is needed. None of that starts a thread."""
    import ckpt_surgery

    for module in pkgutil.walk_packages(ckpt_surgery.__path__, "ckpt_surgery."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in (
        "tensorstore",
        "obstore.store",
        "obstore.exceptions",
        "rich.console",
        "rich.text",
        "rich.progress",
        "yaml",
        "msgspec",
        "numpy.random",
    ):
        importlib.import_module(name)


def _carry_out(request: Mapping[str, Any], in_kernel: bool) -> dict[str, Any]:
    counter = Counter(Fault(**request["fault"]), request["watched"]) if request["watched"] else None
    ours, theirs = socket.socketpair()
    shared = mmap.mmap(-1, _SHARED_BYTES)
    # Pipes, because limits on files hold for them too. They hold what a run prints until it has ended.
    (out, into_out), (err, into_err) = _pipe(), _pipe()
    started = time.monotonic()
    until = started + request["seconds"]
    process = os.fork()
    if process == 0:
        _run(request, counter, in_kernel, theirs, shared, into_out, into_err)
    for descriptor in (into_out, into_err):
        os.close(descriptor)
    theirs.close()
    if counter is not None and in_kernel:
        kernel.answer(process, ours, counter, until)
    status, used, in_time = _wait(process, until)
    if counter is not None and not in_kernel:
        counter.counted, counter.hit = json.loads(shared[:].rstrip(b"\0") or b'[{}, ""]')
    ours.close()
    shared.close()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "out": _drained(out).decode(errors="replace"),
        "err": _drained(err).decode(errors="replace"),
        "in_time": in_time,
        "seconds": time.monotonic() - started,
        "resident": used.ru_maxrss,
        "counted": counter.counted if counter else {},
        "hit": counter.hit if counter else "",
    }


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << 20)
    return ends


def _drained(descriptor: int) -> bytes:
    """All that can be read now; closes the descriptor."""
    os.set_blocking(descriptor, False)
    found = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(descriptor, 1 << 20):
            found += piece
    os.close(descriptor)
    return found


def _wait(process: int, until: float) -> tuple[int, resource.struct_rusage, bool]:
    """The exit status, what was used, and whether the process ended by itself in time."""
    while time.monotonic() < until:
        found, status, used = os.wait4(process, os.WNOHANG)
        if found:
            return status, used, True
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    _, status, used = os.wait4(process, 0)
    return status, used, False


def _run(
    request: Mapping[str, Any],
    counter: Counter | None,
    in_kernel: bool,
    server: socket.socket,
    shared: mmap.mmap,
    out: int,
    err: int,
) -> NoReturn:
    """Become the program, with the limits and the faults of the request."""
    code = 120
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        # Python's own files remember that what the server had there can be rewound; pipes cannot.
        sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
        os.closerange(3, server.fileno())
        os.closerange(server.fileno() + 1, 256)
        os.chdir(request["directory"])
        os.environ.update(request["environment"])
        _limit(request["limits"])
        key_value_runs.install()
        sys.argv = ["ckpt-surgery", *request["arguments"]]
        if counter is not None and in_kernel:
            kernel.install_and_send(_kinds(counter.fault), server)
        elif counter is not None:
            patching.install(_Telling(counter, shared))
        from ckpt_surgery.cli import main as program

        program()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1 if leaving.code else 0
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001  (nothing may return into the server's loop)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _kinds(fault: Fault) -> list[str]:
    """The kinds of calls that the kernel has to ask about."""
    if not fault.kind:
        return [kind for kind in ERRORS if kind != "read"]
    return [fault.kind]


def _limit(limits: Mapping[str, int]) -> None:
    for name, value in limits.items():
        if name == "RLIMIT_DATA":  # more than the server has now, of which the run has a copy
            value += _data_bytes()
        number = getattr(resource, name)
        resource.setrlimit(number, (value, resource.getrlimit(number)[1]))


def _data_bytes() -> int:
    """Memory of this process that counts for RLIMIT_DATA; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmData"].split()[0]) * 1024


class _Telling(Counter):
    """Counts in the run itself, and writes the counts into memory that the server shares."""

    def __init__(self, counter: Counter, shared: mmap.mmap):
        super().__init__(counter.fault, counter.directory)
        self._shared = shared
        self._lock = threading.Lock()

    def decide(self, kind: str, name: str, path: str) -> int:
        with self._lock:
            decision = super().decide(kind, name, path)
            self._shared[:] = json.dumps([self.counted, self.hit]).encode().ljust(_SHARED_BYTES, b"\0")
        return decision


if __name__ == "__main__":
    main()
