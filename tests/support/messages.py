"""The messages that tests/data/messages promises: mistakes, and the whole of what is said of each.

A file has one case after the other:

    === what is wrong
    a recipe, `$ a command of ckpt-surgery`, or `>>> a call of ckpt_surgery`
    --- source, or another source's name
    key  dtype[shape], or the kind of the leaf
    --- target (a checkpoint), or listing (keys, shapes and dtypes only)
    --- set, one NAME=VALUE per line
    --- memory, in bytes
    --- orbax (as the format of the destination)
    --- values (of the leaf `a`, as a call of NumPy): the recipe is carried out
    --- says
    the message

Commands and calls find the files of `prepare` where they run, which is HERE in messages. Cases of
problems.txt are called by a code: what is given is the first example of its section in docs/problems.md.

`python -m tests.support.messages` writes what is said now; a person reviews how it differs from before.
"""

import contextlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import Code, SurgeryError
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.formats.opening import encoder
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.report.problems import problem_sections
from tests.support import command_line
from tests.support.memory import MemorySink, MemorySource
from tests.support.models import save_model
from tests.support.plans import COMPUTED, MEMORY, plan_of

DIRECTORY = Path(__file__).parents[1] / "data" / "messages"
OPTIONS = ("target", "listing", "set", "memory", "orbax", "values", "says")
COMMAND, CALL = "$ ", ">>> "
PAGE = "problems"
"""The file of the examples of the page."""
PAGE_LEAVES = [
    *(f"params/dense_{i}/{name}" for i in range(2) for name in ("kernel  float32[4,8]", "bias  float32[8]")),
    "step  int32[]",
]
"""Their checkpoint."""


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    given: str
    """A recipe, a command or a call."""
    sections: Mapping[str, Sequence[str]]

    @property
    def is_recipe(self) -> bool:
        return not self.given.startswith((COMMAND, CALL))

    @property
    def promised(self) -> str:
        return "\n".join(self.sections.get("says", ()))

    def said(self) -> str:
        """What is said now. Commands and calls tell their exit code or error too."""
        if self.given.startswith(COMMAND):
            done = command_line.run(*shlex.split(self.given.removeprefix(COMMAND)))
            assert done.exit_code, f"{self.title}: nothing is wrong"
            printed = "" if self.file == PAGE else done.stdout  # a plan has numbers of the machine
            said = f"exit code {done.exit_code}\n{printed}{done.stderr}".rstrip("\n")
        else:
            error = self.error()
            said = f"{'' if self.is_recipe else f'{type(error).__name__}: '}{error}"
        return said.replace(os.getcwd(), "HERE")

    def codes(self) -> set[str]:
        """The codes of all problems that are reported."""
        if not self.given.startswith(COMMAND):
            return {problem.code for problem in self.error().problems}
        done = command_line.run(*shlex.split(self.given.removeprefix(COMMAND)), "--json")
        return {problem["code"] for problem in json.loads(done.stdout)["error"]["problems"]}

    def error(self) -> SurgeryError:
        try:
            self._run()
        except SurgeryError as error:
            return error
        raise AssertionError(f"{self.title}: nothing is wrong")

    def _run(self) -> None:
        sources = [self._leaves(name) for name in self.sections if name not in OPTIONS]
        if self.given.startswith(CALL):
            eval(self.given.removeprefix(CALL), {"ckpt_surgery": ckpt_surgery, "np": np, "Path": Path})
        elif "values" in self.sections:
            carry_out(self.given, eval("\n".join(self.sections["values"]), {"np": np}))
        elif sources:
            self._plan(sources)
        else:  # it is wrong by itself
            parse_recipe(self.given, "recipe.yaml", self.sections.get("set", ()))

    def _plan(self, sources: Sequence[Mapping[str, str]]) -> None:
        target = next((name for name in ("target", "listing") if name in self.sections), None)
        orbax = encoder("orbax", SinkOptions())
        plan_of(
            self.given,
            *sources,
            target=None if target is None else self._leaves(target),
            readable=target != "listing",
            overrides=self.sections.get("set", ()),
            memory=int("".join(self.sections.get("memory", ())) or MEMORY),
            unsupported=orbax.unsupported if "orbax" in self.sections else lambda leaves: [],
        )

    def _leaves(self, section: str) -> dict[str, str]:
        return dict(re.split(r"  +", line, maxsplit=1) for line in self.sections[section])


def carry_out(recipe: str, array: np.ndarray[Any, Any]) -> None:
    """Carry out a recipe on one leaf, `a`, which its values stop before anything is finished."""
    loaded, source = parse_recipe(recipe, "recipe.yaml"), MemorySource({"a": array})
    plan = make_plan(loaded, {"source": source.leaves()}, None, [], {}, COMPUTED, MEMORY, 2)
    sink = MemorySink(outputs_of(plan))
    try:
        run(plan, {"source": source}, sink, Means(MEMORY, 2))
    finally:
        assert not sink.finished


def example(code: str) -> tuple[str, dict[str, Sequence[str]]]:
    """What is given for a code on the page, and the checkpoint of a recipe."""
    paragraphs = problem_sections()[Code(code)].paragraphs
    given = next(paragraph.text for paragraph in paragraphs if paragraph.is_code)
    if given.startswith(COMMAND):
        return COMMAND + given.removeprefix(f"{COMMAND}ckpt-surgery "), {}
    return f"{given}\n", {"source": PAGE_LEAVES}


SOURCE = {
    "big": np.zeros((2, 1 << 20), np.float32),
    "huge": np.full(4, 1e9, np.float32),
    "tree/key": np.ones(2, np.complex128),
}
OF_EXAMPLES = {
    "SRC": SOURCE,
    "OTHER": {"b": np.ones(3, np.float32)},
    "LARGER": {**SOURCE, "b": np.ones(3, np.float32)},
    "WIDER": {**SOURCE, "huge": np.ones(9, np.float32)},
    "SMALLER": {"huge": np.ones(4, np.float32)},
    "existing": {"a": np.ones(2, np.float32)},
}
RECIPES = {
    "recipe": "rules: []",
    "empty": "rules: []",
    "strict": "target: {extra: error}\nrules: []",
    "fallback": "target: {missing: fallback, extra: drop}\nrules: []",
    "sort": "rules: [{match: big, value: ranks(x)}]",
    "to-float16": "rules: [{match: huge, value: \"cast(x, 'float16')\"}]",
}


def prepare(directory: Path) -> None:
    """Write what commands and calls name; none of them changes it."""
    for name, rules in RECIPES.items():
        (directory / f"{name}.yaml").write_text(f"version: 1\n{rules}\n")
    for name, arrays in OF_EXAMPLES.items():
        np.savez(directory / "example.npz", **arrays)
        ckpt_surgery.convert(directory / "example.npz", directory / name)
    ckpt_surgery.plan(None, directory / "example.npz", format="orbax", out=directory / "plan.json")
    np.savez(directory / "example.npz", **SOURCE)
    save_file({"a": np.ones(9)}, directory / "truncated.safetensors")
    os.truncate(directory / "truncated.safetensors", 90)
    model = save_model(directory / "model")
    (directory / "recipe.yaml").write_text("version: 1\n")
    (directory / "text.txt").write_text("no checkpoint\n")
    (directory / "there").mkdir()
    for step in (3, 10):
        ckpt_surgery.convert(model, directory / "run", dst_step=step)
    np.savez(directory / "archive.npz", w=np.ones(2))


def cases_of(path: Path) -> Iterator[Case]:
    """The cases of a file."""
    file = path.stem
    for part in re.split(r"^=== ", path.read_text(), flags=re.MULTILINE)[1:]:
        head, *sections = re.split(r"^--- ", part, flags=re.MULTILINE)
        title, _, given = head.partition("\n")
        of_page, leaves = example(title) if file == PAGE else ("", {})
        named = {name: body.splitlines() for name, _, body in (one.partition("\n") for one in sections)}
        yield Case(file, title, given or of_page, {**leaves, **named})


def all_cases() -> list[Case]:
    return [case for path in sorted(DIRECTORY.glob("*.txt")) for case in cases_of(path)]


def renewed(case: Case) -> str:
    """The case with what is said now, as its file has it."""
    of_page = case.file == PAGE
    sections = {} if of_page else {name: text for name, text in case.sections.items() if name != "says"}
    parts = [f"=== {case.title}\n{'' if of_page else case.given}"]
    for name, lines in {**sections, "says": case.said().splitlines()}.items():
        parts.append("".join(f"{line}\n" for line in (f"--- {name}", *lines)))
    return "".join(parts)


def renew() -> None:
    """Write what is said now into all files."""
    texts: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        prepare(Path())
        for case in all_cases():
            texts[case.file] = texts.get(case.file, "") + renewed(case)
    for file, text in texts.items():
        (DIRECTORY / f"{file}.txt").write_text(text)


if __name__ == "__main__":
    os.environ |= {"JAX_PLATFORMS": "cpu"}
    renew()
