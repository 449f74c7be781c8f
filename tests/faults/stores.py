"""Conversions whose destination is an object store, and what must hold there after each fault.

At every moment the destination is not committed, and then is refused by readers; or it is the whole old
checkpoint, bit for bit; or the whole new one. The next run succeeds, and leaves the same as one that nothing
has disturbed.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import numpy as np

import ckpt_surgery
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.formats.shared.ocdbt.reader import begin_reading
from ckpt_surgery.formats.shared.orbax_layout import COMMIT_FILE
from ckpt_surgery.storage import views
from ckpt_surgery.storage.store import store_of
from tests.emulators.disturbing import Asked
from tests.emulators.fixtures import Bucket
from tests.faults import key_value_runs
from tests.faults.runs import Run, Runner
from tests.faults.scenarios import check_message
from tests.support.directories import state_of
from tests.support.libraries import ORIGINS

KILLED = -9
OWN = ".ckpt-surgery/"
_random = np.random.default_rng(3)
ARRAYS = {
    f"params/{part}": _random.standard_normal((40, 30)).astype(np.float32) for part in ("a", "b", "c", "d")
} | {"params/small": np.arange(5, dtype=np.float32)}
OLD = {"params/a": ARRAYS["params/a"] + 1, "old": _random.standard_normal((40, 30))}
RULES = (
    "version: 1\nrules: [{match: 'params/a', value: \"cast(x, 'float16')\"}, "
    "{match: 'params/b', value: 'x * 2'}, {match: 'params/small', value: 'x + 1'}]\n"
)


@dataclass(frozen=True)
class Request:
    """A request of a run, as its store saw it."""

    method: str
    """`put`, `delete`, or another word for what changes nothing."""
    name: str

    @property
    def phase(self) -> str:
        """The part of the run that it belongs to."""
        if self.name.endswith("-lock") or "-clock-" in self.name:
            return "lock"
        if self.method not in ("put", "delete"):
            return "looking"
        if self.method == "delete":
            return "marker" if self.name.endswith(COMMIT_FILE) else "clean-up"
        if OWN in self.name:
            return "journal"
        if self.name.endswith(COMMIT_FILE):
            return "marker"
        return "data" if "ocdbt.process_" in self.name or "/d/" in self.name else "documents"


@dataclass(frozen=True)
class Hit:
    """A signal that a run gets at one of its requests."""

    number: int = 0
    """Number of the request, from 1 on; 0: the run is not disturbed."""
    after: bool = False
    """Whether the request is carried out, so that only its answer does not arrive."""
    what: signal.Signals = signal.SIGKILL


NONE = Hit()
Start = Callable[[Mapping[str, str]], Run]
"""Carries out a run with an environment."""


class Place(Protocol):
    """A store that a run in another process can be disturbed at."""

    url: str
    """URL of the bucket."""

    def run(self, start: Start, hit: Hit) -> Run:
        """A run that gets a signal."""
        ...

    @property
    def requests(self) -> Sequence[Request]:
        """The requests of the last run."""
        ...


class KeyValues:
    """A key-value store in a directory."""

    def __init__(self, url: str, directory: Path):
        self.url = url
        self._directory = directory
        self._log = directory.parent / "requests"

    def run(self, start: Start, hit: Hit) -> Run:
        """The process sends the signal to itself."""
        self._log.unlink(missing_ok=True)
        when = f"{hit.number} {'after' if hit.after else 'before'} {hit.what.name}"
        return start(key_value_runs.environment(self._directory, signal=when, log=self._log))

    @property
    def requests(self) -> Sequence[Request]:
        """As the process has logged them."""
        return [Request(*line.split(" ", 1)) for line in self._log.read_text().splitlines()]


class OfS3:
    """A bucket of the emulator of S3, which runs in this process."""

    def __init__(self, bucket: Bucket, directory: Path):
        self.url = bucket.url
        self._server = bucket.server
        self._process = directory / "process"
        self._asked: Sequence[Asked] = ()

    def run(self, start: Start, hit: Hit) -> Run:
        """The emulator sends the signal: the request is lost, or its answer."""
        server = self._server

        def end(asked: Asked, now: int) -> bool:
            if now != hit.number:
                return False
            process = int(self._process.read_text())
            os.kill(process, hit.what)
            if hit.what != signal.SIGKILL:
                return False
            _await_end(process)
            return True

        server.clear()
        if hit.after:
            server.lose = end
        else:
            server.refuse = lambda asked, now: 503 if end(asked, now) else None
        more = {key_value_runs.PROCESS: str(self._process), key_value_runs.SMALL: "1"}
        found = start(dict(os.environ) | more)
        server.settle()
        self._asked = list(server.asked)
        server.clear()
        return found

    @property
    def requests(self) -> Sequence[Request]:
        """As the emulator has counted them."""
        words = {"PUT": "put", "DELETE": "delete"}
        return [Request(words.get(one.method, "read"), one.path) for one in self._asked]


def _await_end(process: int) -> None:
    """Return when a process that was killed is gone: its parent asks for it all the time."""
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.001)


class StoreBench:
    """A source on the disk, a recipe, and a destination in a store."""

    def __init__(self, place: Place, runner: Runner, directory: Path, kind: str):
        """`kind`: `fresh`, `overwrite`, or `step` for a step beside another one."""
        directory.mkdir()
        self.place = place
        self.kind = kind
        self._runner = runner
        self._directory = directory
        self._source = ORIGINS["orbax"].save(ARRAYS, directory / "source")
        self._source_state = state_of(self._source)
        self._old_source = ORIGINS["orbax"].save(OLD, directory / "older")
        self.recipe = directory / "recipe.yaml"
        self.recipe.write_text(RULES)
        self.root = f"{place.url}/runs/out"
        self._step = ["--dst-step", "7"] if kind == "step" else []
        self.url = f"{self.root}/7" if kind == "step" else self.root
        self.wanted = str(directory / "wanted")
        ckpt_surgery.apply(self.recipe, self._source, dst=self.wanted)
        self._before: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self.prepare()
        undisturbed = self.run()
        assert undisturbed.code == 0, undisturbed
        self.requests = self.place.requests
        """What a run asks that nothing disturbs."""
        self._names = _like(self.objects())
        self.check_new()

    def prepare(self) -> None:
        """Empty the bucket, and put there what is to be there before the run."""
        store = store_of(self.url)[0]
        store.delete(list(store.walk()))
        if not self._before and self.kind == "overwrite":
            ckpt_surgery.apply(None, self._old_source, dst=self.url)
            self._old = self.objects()
        if not self._before and self.kind == "step":
            ckpt_surgery.apply(None, self._old_source, dst=self.root, dst_step=3)
        if not self._before:
            self._before = {name: store.read(name) for name in store.walk()}
        for name, data in self._before.items():
            store.put(name, data)
        views.forget()

    def run(self, *options: str, hit: Hit = NONE) -> Run:
        """The command, which may get a signal at one of its requests."""
        wanted = [*(["--overwrite"] if self.kind == "overwrite" else []), *self._step, *options]
        arguments = ["apply", self.recipe, self._source, self.root, "--workers", "2", *dict.fromkeys(wanted)]

        def start(environment: Mapping[str, str]) -> Run:
            return self._runner.run(*arguments, directory=self._directory, environment=environment)

        return self.place.run(start, hit)

    def run_from_before(self, *options: str, hit: Hit = NONE) -> Run:
        """The command, where everything is as it was before any run."""
        self.prepare()
        return self.run(*options, hit=hit)

    def objects(self) -> dict[str, bytes]:
        """Every object below the destination, by its name there."""
        store, name = store_of(self.url)
        return {one[len(name) + 1 :]: store.read(one) for one in store.walk(f"{name}/")}

    # --- what must hold ---------------------------------------------------------------------------------

    def state(self) -> str:
        """What the destination holds: `uncommitted`, `old` or `new`. Fails where that is none of these."""
        assert state_of(self._source) == self._source_state
        self.check_others()
        found = self.objects()
        if COMMIT_FILE not in found:
            self.check_refused(found)
            return "uncommitted"
        if found.get("manifest.ocdbt") == self._old.get("manifest.ocdbt") and self._old:
            for name, data in self._old.items():
                claimed = name == COMMIT_FILE and found[name].startswith(b"replaced by ")
                assert found.get(name) == data or claimed, f"{name} of the old checkpoint has changed"
            return "old"
        self.check_new()
        return "new"

    def check_refused(self, found: Mapping[str, bytes]) -> None:
        """Nobody takes for a checkpoint what is not committed."""
        try:
            read = ckpt_surgery.inspect(self.url)
        except SurgeryError:
            return
        raise AssertionError(f"{len(read.leaves)} leaves are read of {sorted(found)}")

    def check_new(self) -> None:
        """The destination is the new checkpoint, value by value."""
        found = ckpt_surgery.diff(self.wanted, self.url, values=True)
        assert not found.different, found
        assert ckpt_surgery.verify(self.url, mode="full").flaws == ()

    def check_others(self) -> None:
        """What lies beside the destination is as it was."""
        store, name = store_of(self.url)
        there = store.walk()
        for other, data in self._before.items():
            if not other.startswith(f"{name}/"):
                assert other in there, f"{other} is gone"
                assert store.read(other) == data, f"{other} has changed"

    def check_clean(self, resumed: bool = False) -> None:
        """Nothing is there but the new checkpoint and what was there before it, as after any other run."""
        assert self.state() == "new"
        store, name = store_of(self.url)
        beside = {one for one in store.walk() if not one.startswith(f"{name}/")}
        assert beside == {one for one in self._before if not one.startswith(f"{name}/")}
        found = self.objects()
        assert not [one for one in found if one.startswith(OWN)]
        assert self.unreferenced(found) == []
        if not resumed:
            assert _like(found) == self._names

    def unreferenced(self, found: Mapping[str, bytes]) -> list[str]:
        """Data that no index names, and indexes besides one."""
        below = "default/" if self.kind == "step" else ""
        database = begin_reading(f"{self.url}/{below}".rstrip("/"))()
        places = [entry.split(":")[1:3] for entry in database.entries.values() if isinstance(entry, str)]
        used = {f"{below}{unquote(base)}{unquote(path)}" for base, path in places}
        data = sorted(one for one in found if "/d/" in one.removeprefix(f"{below}d/"))
        indexes = sorted(one for one in found if one.startswith(f"{below}d/"))
        return [one for one in data if one not in used] + indexes[1:]

    def check_next_run(self, killed: Run, *options: str) -> None:
        """The next run succeeds, or says that the one before has been completed; either way all is well."""
        next_run = self.run(*options)
        assert next_run.in_time
        if next_run.code == 4 and "--overwrite" not in (*options, *next_run.arguments):
            check_message(next_run)
            assert "exists already" in " ".join(next_run.err.split()), f"{killed}\nand then: {next_run}"
        else:
            assert next_run.code == 0, f"{killed}\nand then: {next_run}"
        self.check_clean(resumed="--resume" in options)


def _like(names: Mapping[str, bytes]) -> Counter[str]:
    """Names without what is random in them."""
    return Counter(re.sub(r"[0-9a-f]{32}|(?<=-)[0-9a-f]{16}$", "*", name) for name in names)
