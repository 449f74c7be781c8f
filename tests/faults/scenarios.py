"""Conversions that are disturbed, and what must hold after each fault: the promises of docs/reliability.md.

- P1: the destination is absent, or the complete old one, or the complete new one with exact values.
- P2: the source is untouched, byte for byte and with its times.
- P3: the exit code is one that is documented, the message is a short paragraph that says what to do next.
- P4: nothing is left besides temporary files that the next run recognizes.
- P5: no wrong value is ever written silently, which P1 contains.
"""

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.faults.runs import Run, Runner
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same
from tests.support.directories import names, state_of
from tests.support.libraries import DESTINATIONS, ORIGINS

Arrays = Mapping[str, np.ndarray]
State = Mapping[str, Any]

_random = np.random.default_rng(5)
ARRAYS: Arrays = {
    "params/w": _random.standard_normal((48, 20)).astype(np.float32),
    "params/b": _random.standard_normal((7,)).astype(np.float32),
    "params/ids": np.arange(-40, 40, dtype=np.int32).reshape(8, 10),
}
OLD: Arrays = {"old": np.arange(600, dtype=np.float32)}
"""What is at the destination before a run with `--overwrite`."""

RENAME = "rules: [{match: 'params/(?P<all>.*)', to: 'model/${all}'}]"
RENAMED = {key.replace("params", "model"): value for key, value in ARRAYS.items()}
CAST = (
    "rules: [{match: 'params/w', value: \"cast(x, 'bfloat16')\"}, {match: 'params/b', value: 'x * 2'}, "
    "{match: 'params/ids'}]"
)
CASTED = {
    "params/w": ARRAYS["params/w"].astype(ml_dtypes.bfloat16),
    "params/b": ARRAYS["params/b"] * np.float32(2),
    "params/ids": ARRAYS["params/ids"],
}
DOUBLE = "rules: [{match: '.*', value: 'x + x'}]"
DOUBLED = {key: value + value for key, value in ARRAYS.items()}
HALVED = CASTED | {"params/w": ARRAYS["params/w"].astype(np.float16)}
"""For zarr-python, which knows no bfloat16."""

RECORD = ".ckpt_surgery.json"


@dataclass(frozen=True)
class Scenario:
    """A command, and what it must make."""

    origin: str
    """One of `libraries.ORIGINS`."""
    destination: str
    """One of `libraries.DESTINATIONS`."""
    rules: str
    wanted: Arrays
    options: tuple[str, ...] = ()
    name: str = ""
    """Name of the destination; empty for the format's usual one."""
    metadata: str = field(default="version: 1")

    @property
    def out(self) -> str:
        return self.name or DESTINATIONS[self.destination][0]

    @property
    def source(self) -> str:
        return f"origin{ORIGINS[self.origin].suffix}"

    def command(self, *options: str) -> tuple[str, ...]:
        """The arguments of the program in the directory of a `Bench`."""
        return ("apply", "recipe.yaml", f"source/{self.source}", self.out, *self.options, *options)


SCENARIOS: Mapping[str, Scenario] = {
    "orbax-links": Scenario("orbax", "orbax", RENAME, RENAMED),
    "orbax-copies": Scenario("orbax", "orbax", RENAME, RENAMED, ("--link-mode", "copy")),
    "orbax-cast": Scenario("orbax", "orbax", CAST, CASTED),
    "computed": Scenario("orbax", "orbax", DOUBLE, DOUBLED),
    "orbax-zarr2": Scenario("orbax", "orbax", CAST, CASTED, metadata="version: 1\noutput: {zarr: 2}"),
    "safetensors-orbax": Scenario("safetensors", "orbax", RENAME, RENAMED),
    "orbax-safetensors": Scenario("orbax", "safetensors", CAST, CASTED),
    "orbax-shards": Scenario(
        "orbax", "safetensors", RENAME, RENAMED, ("--format", "safetensors", "--shard-size", "2000"), "shards"
    ),
    "npz-npz": Scenario("npz", "npz", CAST, CASTED),
    "flax-flax": Scenario("flax", "flax", CAST, CASTED),
    "zarr-zarr": Scenario("zarr3", "zarr", CAST.replace("bfloat16", "float16"), HALVED),
}


def load(scenario: Scenario, path: Path) -> Arrays:
    """What the destination's own library reads."""
    if scenario.out == "shards":
        from safetensors.numpy import load_file

        parts = [load_file(file) for file in sorted(path.glob("*.safetensors"))]
        return {key: value for part in parts for key, value in part.items()}
    with quiet():
        return DESTINATIONS[scenario.destination][1](path)


class Bench:
    """A directory with a source, a recipe, and perhaps an old checkpoint, in which one scenario is run."""

    def __init__(self, name: str, directory: Path, runner: Runner, cache: Path):
        scenario = SCENARIOS[name]
        self.name = name
        self.scenario = scenario
        self.directory = directory
        self.runner = runner
        self._cache = cache
        self._built: dict[str, State] = {}
        (directory / "source").mkdir(parents=True)
        ORIGINS[scenario.origin].save(ARRAYS, directory / "source" / scenario.source)
        (directory / "recipe.yaml").write_text(f"{scenario.metadata}\n{scenario.rules}\n")
        self._source = state_of(directory / "source")
        self._old = self._old_checkpoint()
        self._kept = {*names(directory), scenario.out, f"{scenario.out}{RECORD}"}

    @property
    def out(self) -> Path:
        """The destination."""
        return self.directory / self.scenario.out

    def _old_checkpoint(self) -> Path:
        """A checkpoint of the same format as the destination, outside the directory."""
        self._cache.mkdir()
        origin = ORIGINS[self.scenario.destination if self.scenario.destination != "zarr" else "zarr3"]
        source = origin.save(OLD, self._cache / f"origin{origin.suffix}")
        old = self._cache / self.scenario.out
        options = [o for o in self.scenario.options if o not in ("--link-mode", "copy")]
        made = self.runner.run("convert", source, old, *options, "--link-mode", "copy", directory=self._cache)
        assert made.code == 0, made
        return old

    def prepare(self, overwrite: bool) -> None:
        """Put the destination into the state before the run."""
        for path in self.directory.iterdir():
            if path.name not in self._kept or path.name.startswith(self.out.name):
                remove(path)
        if overwrite:
            copy(self._old, self.out)
            if (record := beside(self._old)).exists():
                copy(record, beside(self.out))

    def run(self, *options: str, **disturbed: Any) -> Run:
        """Run the command; the arguments are those of `Runner.run`."""
        return self.runner.run(*self.scenario.command(*options), directory=self.directory, **disturbed)

    def verify(self, *options: str) -> Run:
        """`ckpt-surgery verify` of the destination."""
        return self.runner.run("verify", self.scenario.out, *options, directory=self.directory)

    # --- the promises ---------------------------------------------------------------------------------------

    def check(self, run: Run, overwritten: bool, codes: Iterable[int] = (0, 1, 3, 5)) -> str:
        """Assert every promise after a run, and say what the destination holds: absent, old or new."""
        assert run.in_time, f"it hangs: {run}"
        assert run.code in codes, run
        holds = self.holds(run, overwritten)
        self.check_source(run)
        if run.code == 0:
            assert holds == "new", run
        else:
            check_message(run)
            if holds == "new":
                assert "new and complete" in flowing(run.err) or "is complete" in flowing(run.err), run
        self.check_names(run)
        return holds

    def check_source(self, run: Run) -> None:
        """Assert that the source is as it was, with its times."""
        assert state_of(self.directory / "source") == self._source, f"the source has changed: {run}"

    def holds(self, run: Run | None, overwritten: bool) -> str:
        """What the destination holds. Fails where that is no complete checkpoint."""
        if not self.out.exists():
            assert not overwritten, f"the old checkpoint is lost: {run}"
            return "absent"
        if overwritten and tree_state(self.out) == tree_state(self._old):
            return "old"
        try:
            found = load(self.scenario, self.out)
        except Exception as error:
            raise AssertionError(f"the destination cannot be read: {error}: {run}") from error
        assert_same(found, self.scenario.wanted)
        return "new"

    def leftovers(self) -> list[str]:
        """What is beside source, recipe and destination."""
        return [name for name in names(self.directory) if name not in self._kept]

    def check_names(self, run: Run) -> None:
        """Assert that whatever is left has a name by which the next run recognizes it."""
        pattern = re.compile(re.escape(f".{self.scenario.out}.ckpt-surgery-") + r"[\w.-]+")
        assert all(pattern.fullmatch(name) for name in self.leftovers()), f"{self.leftovers()} is left: {run}"

    def settle(self, run: Run) -> None:
        """If a run has left something, let the next one put it in order."""
        if self.leftovers():
            self.check_next_run(run)

    def check_next_run(self, run: Run, *options: str) -> Run:
        """An undisturbed run after a fault succeeds, and leaves nothing but what it made."""
        again = self.run("--overwrite", *options)
        assert again.code == 0, f"{run}\nand then: {again}"
        assert self.holds(again, False) == "new"
        assert self.leftovers() == [], f"{run}\nand then: {again}"
        return again


def beside(path: Path) -> Path:
    """Where the record of a checkpoint lies that is a file without a place for it."""
    return path.with_name(f"{path.name}{RECORD}")


def tree_state(path: Path) -> State:
    """The names and bytes of everything in a checkpoint."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))
    }


def copy(source: Path, destination: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, destination, dirs_exist_ok=True)
    else:
        shutil.copy(source, destination)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


# --- messages ---------------------------------------------------------------------------------------------

MOST_CHARACTERS = 700
"""In a message without the paths in it."""


def flowing(text: str) -> str:
    """The text with single spaces, however its lines are broken."""
    return " ".join(text.split())


def check_message(run: Run, hinted: bool = True) -> None:
    """Assert that a person sees an error of the product on the terminal: short, and with a next step."""
    text = run.err
    assert "Traceback" not in text, run
    assert "internal error" not in text, run
    assert "This is a bug" not in text, run
    count = len(re.findall("^Error: ", text, re.MULTILINE))
    assert count == 1 or f"\n{count} errors\n" in text, run  # all problems of a recipe are told at once
    told = text[re.search("^Error: ", text, re.MULTILINE).start() :]
    short = re.sub(r"\S*/\S*", "PATH", told)
    assert len(short) <= MOST_CHARACTERS, f"{len(short)} characters: {run}"
    if hinted:
        assert re.search(r"^  \S", told, re.MULTILINE), f"no next step: {run}"
