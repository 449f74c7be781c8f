"""Run a command as a process of its own: wall seconds and peak resident memory, from the operating system."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Measured:
    """One command over several runs."""

    seconds: float
    """Median wall time."""
    peak: int
    """Largest resident set of any run, in bytes."""


def run_once(command: Sequence[str]) -> Measured:
    """Run the command to its end. Raises CalledProcessError, after its output, where it fails."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ)
    ) as process:
        started = time.monotonic()
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.stderr.write(output.decode(errors="replace"))
        raise subprocess.CalledProcessError(process.returncode, command)
    return Measured(seconds, usage.ru_maxrss << 10)


def measure(command: Sequence[str], runs: int = 3, before: Callable[[], None] = lambda: None) -> Measured:
    """The median of several runs; `before` runs before each, unmeasured."""
    found = []
    for _ in range(runs):
        before()
        found.append(run_once(command))
    return Measured(median(m.seconds for m in found), max(m.peak for m in found))
