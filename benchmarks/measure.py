"""Run commands as processes of their own: wall seconds, and peak resident memory as the kernel counts it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

LONG = 20.0
"""Seconds; a first run that takes longer is no warm-up: it counts."""
ENOUGH = 60.0
"""Seconds; once the runs of a command have taken this long together, there are no more."""


@dataclass(frozen=True)
class Run:
    """One process, from start to end."""

    seconds: float
    """Wall time."""
    peak: int
    """Largest resident set of the process and of those that it waited for, in bytes."""
    output: str = ""
    """What the process printed."""
    processor: float = 0.0
    """Seconds of processor time, in all its threads."""


@dataclass(frozen=True)
class Measured:
    """One command over several runs."""

    seconds: float
    """Median wall time."""
    least: float
    most: float
    peak: int
    """Largest resident set of any run, in bytes."""
    runs: int
    processor: float = 0.0
    """Median processor time, in seconds."""


def run_once(command: Sequence[str]) -> Run:
    """Run a command to its end. Raises CalledProcessError, after its output, where it fails.

    The kernel hands the resident set of this process down to the one that it starts: a caller that wants
    small numbers has to be small itself, and imports no array library.
    """
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        started = time.monotonic()
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.stderr.write(output.decode(errors="replace"))
        raise subprocess.CalledProcessError(process.returncode, command)
    processor = usage.ru_utime + usage.ru_stime
    return Run(seconds, usage.ru_maxrss << 10, output.decode(errors="replace"), processor)


def measure(command: Sequence[str], runs: int, before: Callable[[], None] = lambda: None) -> Measured:
    """A warm-up run and `runs` more; fewer where they take long. `before` runs before each, unmeasured."""

    def once() -> Run:
        before()
        os.sync()  # what others wrote goes to the disk now, so that it costs this command nothing
        return run_once(command)

    return summary(_repeated(once, runs))


def measure_in_turns(
    commands: Sequence[Sequence[str]], runs: int, before: Callable[[], None] = lambda: None
) -> list[Measured]:
    """A warm-up run and `runs` more of each command, in turns, so that what else the machine does is shared.

    `before` runs before each, unmeasured.
    """
    found: list[list[Run]] = [[] for _ in commands]
    for number in range(1 + runs):
        for command, told in zip(commands, found, strict=True):
            before()
            os.sync()
            one = run_once(command)
            if number:
                told.append(one)
    return [summary(told) for told in found]


def measure_inside(command: Sequence[str], runs: int) -> tuple[Measured, list[dict[str, Any]]]:
    """The same for what a command measures of itself, and everything that it says, run by run.

    The last line that it prints is JSON with `seconds` and `peak`, the bytes above those at its start.
    """
    told: list[dict[str, Any]] = []

    def once() -> Run:
        os.sync()
        told.append(json.loads(run_once(command).output.splitlines()[-1]))
        return Run(told[-1]["seconds"], told[-1]["peak"])

    return summary(_repeated(once, runs)), told


def _repeated(once: Callable[[], Run], runs: int) -> list[Run]:
    """A warm-up, which counts if it takes long, and then so many runs."""
    first = once()
    found = [first] if first.seconds > LONG else []
    while not found or (len(found) < runs and sum(run.seconds for run in found) < ENOUGH):
        found.append(once())
    return found


def summary(found: Sequence[Run]) -> Measured:
    """Median and range of the times, maximum of the peaks."""
    seconds = [run.seconds for run in found]
    peak, processor = max(run.peak for run in found), median(run.processor for run in found)
    return Measured(median(seconds), min(seconds), max(seconds), peak, len(found), processor)


def was_killed(error: subprocess.CalledProcessError) -> bool:
    """Whether the kernel ended a process, as it does where memory runs out."""
    return error.returncode == -signal.SIGKILL
