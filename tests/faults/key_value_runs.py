"""What a forked run finds where it writes to stores, as the environment says: see `tests.faults.stores`.

`kv://` is a key-value store in a directory. Each of its requests is logged, and at one of them the process
gets a signal, before the request or right after it.
"""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.engine import worker as journal
from ckpt_surgery.formats.orbax import writer
from ckpt_surgery.storage import store
from tests.support.key_value import KeyValueStore

DIRECTORY = "FAULTS_KEY_VALUE"
"""Variable: the directory of the store."""
SIGNAL = "FAULTS_SIGNAL"
"""Variable: the number of the request, `before` or `after`, and the name of the signal."""
LOG = "FAULTS_LOG"
"""Variable: the file that requests are written to, one on a line."""
PROCESS = "FAULTS_PROCESS"
"""Variable: the file that the number of the process is written to."""
SMALL = "FAULTS_SMALL"
"""Variable: anything, where each value is to be an object of its own, and each task is noted at once."""


def install() -> None:
    """Do what the environment says, in a process that will do nothing but one run."""
    if SMALL in os.environ:
        writer.FILE_BYTES = 1
        journal.FLUSH_BYTES = 1
    if PROCESS in os.environ:
        Path(os.environ[PROCESS]).write_text(str(os.getpid()))
    if DIRECTORY in os.environ:
        opened = Disturbed("kv://bucket", Path(os.environ[DIRECTORY]), os.environ)
        store._REGISTERED["kv"] = lambda root: opened
        urls.REGISTERED.add("kv")


class Disturbed(KeyValueStore):
    """A key-value store that logs its requests, and sends this process a signal at one of them."""

    def __init__(self, url: str, directory: Path, told: Mapping[str, str]):
        super().__init__(url, directory)
        number, when, name = told.get(SIGNAL, "0 before SIGKILL").split()
        self._left = int(number)
        self._after = when == "after"
        self._signal = signal.Signals[name]
        self._log = Path(told[LOG]) if LOG in told else None
        self._counting = threading.Lock()

    @contextmanager
    def _request(self, *what: str) -> Iterator[None]:
        with self._counting:
            self._left -= 1
            now = self._left == 0
            if self._log is not None:
                with self._log.open("a") as log:
                    log.write(f"{' '.join(what) or 'read '}\n")  # no range of no object
        if now and not self._after:
            os.kill(os.getpid(), self._signal)
        yield
        if now and self._after:
            os.kill(os.getpid(), self._signal)


def environment(directory: Path, **told: Any) -> dict[str, str]:
    """The environment of a run: `signal`, `log` and `process` are the variables above."""
    names = {"signal": SIGNAL, "log": LOG, "process": PROCESS}
    return {DIRECTORY: str(directory), SMALL: "1"} | {names[name]: str(value) for name, value in told.items()}
