"""Many runs of the program at the same time, each in a process of its own.

`python -m tests.faults.crowd` reads one request from its standard input: the arguments of each run, their
directory, and the environment of all. It forks a process for each, lets them go together, and prints what
became of them.
"""

import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import server
from tests.faults.runs import ROOT


@dataclass(frozen=True)
class Ended:
    """What became of a run."""

    code: int
    told: str
    """What it printed, errors too."""


def together(
    arguments: Sequence[Sequence[object]], directory: Path, environment: Mapping[str, str]
) -> list[Ended]:
    """Carry out `ckpt-surgery ARGUMENTS` for each of the arguments, all at the same time."""
    request = {
        "arguments": [[str(one) for one in of_run] for of_run in arguments],
        "directory": str(directory),
        "environment": dict(environment),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.crowd"],
        input=json.dumps(request), capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Ended(*found) for found in json.loads(done.stdout)]


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.read())
    server._import_everything()
    gate, opener = os.pipe()
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, str(number)) for number in range(len(request["arguments"]))]
        processes = []
        for arguments, file in zip(request["arguments"], files, strict=True):
            file.touch()
            process = os.fork()
            if process == 0:
                os.close(opener)
                _run({**request, "arguments": arguments}, file, gate)
            processes.append(process)
        os.close(opener)  # all go on now
        codes = {}
        while len(codes) < len(processes):  # whichever ends first: another one may ask whether it has ended
            process, status = os.wait()
            codes[process] = os.waitstatus_to_exitcode(status)
        ended = [[codes[process], file.read_text()] for process, file in zip(processes, files, strict=True)]
    print(json.dumps(ended))


def _run(request: Mapping[str, Any], file: Path, gate: int) -> None:
    """Become the program once the gate is open."""
    os.read(gate, 1)
    told = os.open(file, os.O_WRONLY | os.O_APPEND)
    ours, _ = socket.socketpair()
    server._run({**request, "limits": {}}, None, False, ours, mmap.mmap(-1, 1), told, told)


if __name__ == "__main__":
    main()
