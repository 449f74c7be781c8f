"""Starting runs of the program that are disturbed, and what became of them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.calls import Fault

ROOT = Path(__file__).parents[2]
SECONDS = 60.0
"""After this time a run hangs: it takes less than a second."""


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    arguments: tuple[str, ...]
    code: int
    """The exit code; the negative number of the signal where one ended it."""
    out: str
    err: str
    in_time: bool
    """Whether it ended by itself."""
    seconds: float
    resident: int
    """The most memory that it had, in the system's unit: KiB on Linux, bytes on macOS."""
    counted: Mapping[str, int]
    """How many system calls of each kind it made in the watched directory."""
    hit: str
    """The call that the fault hit; empty where the run did not get as far."""

    def __str__(self) -> str:
        return f"{' '.join(self.arguments)}\nhit: {self.hit}\ncode: {self.code}\n{self.out}{self.err}"


class Runner:
    """A process that carries out runs one after another. To be closed."""

    def __init__(self, in_python: bool = False) -> None:
        """With `in_python`, only calls of functions of Python fail, as on systems without seccomp(2)."""
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}
        if in_python:
            environment |= {"FAULTS_IN_PYTHON": "1"}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
        )  # fmt: skip

    def run(
        self,
        *arguments: object,
        directory: Path,
        fault: Fault | None = None,
        limits: Mapping[str, int] | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> Run:
        """`ckpt-surgery ARGUMENTS` in a working directory, in which system calls are counted and may fail.

        `limits` are names of RLIMIT constants; RLIMIT_DATA counts from what the program needs to start.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        texts = tuple(map(str, arguments))
        request: dict[str, Any] = {
            "arguments": texts,
            "directory": str(directory),
            "watched": os.path.realpath(directory) if fault else "",
            "fault": (fault or Fault()).document(),
            "limits": dict(limits or {}),
            "environment": dict(environment or {}),
            "seconds": seconds,
        }
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the server of runs has died"
        return Run(arguments=texts, **json.loads(answer))

    def close(self) -> None:
        """End the process."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()
        assert self._server.stdout is not None
        self._server.stdout.close()
