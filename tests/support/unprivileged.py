"""The command line as a user whom the permissions of files bind, also where the tests run as root.

On Linux, root reads everything by two capabilities. A process without them is bound like anybody else.
"""

import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DROP_FROM_BOUNDING_SET = 24
"""PR_CAPBSET_DROP of prctl(2), from <linux/prctl.h>."""
READS_EVERYTHING = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, from <linux/capability.h>."""

BOUND = "bound"
"""Argument of the program that has given them up."""


@dataclass(frozen=True)
class Case:
    """A command, and a file or directory that nobody may read or enter while it runs."""

    closed: Path | None
    command: Sequence[object]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str


def run_all(cases: Sequence[Case]) -> list[Outcome]:
    """Run commands one after another in one process that permissions bind."""
    asked = [(case.closed and str(case.closed), list(map(str, case.command))) for case in cases]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.support.unprivileged"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Outcome(*outcome) for outcome in json.loads(done.stdout)]


def give_up() -> None:
    """Start this program again as one that permissions bind: it gets only what is in the bounding set."""
    for capability in READS_EVERYTHING:
        if ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
            sys.exit("root keeps its capabilities here: run the tests as another user")
    os.execv(sys.executable, [*sys.orig_argv, BOUND])


@contextmanager
def closed(path: str | None) -> Iterator[None]:
    """Take all permissions from a file or directory, and give them back."""
    before = None if path is None else stat.S_IMODE(os.stat(path).st_mode)
    try:
        if path is not None:
            os.chmod(path, 0)
        yield
    finally:
        if path is not None and before is not None:
            os.chmod(path, before)


def main() -> None:
    """Run the commands on stdin, and print what they did, as JSON."""
    if os.geteuid() == 0 and sys.platform == "linux" and BOUND not in sys.argv:
        give_up()
    from tests.support.command_line import run

    outcomes = []
    for path, command in json.load(sys.stdin):
        with closed(path):
            outcomes.append(run(*command))
    json.dump([(o.exit_code, o.stdout, o.stderr) for o in outcomes], sys.stdout)


if __name__ == "__main__":
    main()
