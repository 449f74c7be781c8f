"""The library's words for people at a terminal."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ckpt_surgery
from ckpt_surgery import api, inspecting
from ckpt_surgery.cli.console import as_options, problem_text
from ckpt_surgery.cli.program import cli
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.requests import ARGUMENTS

PACKAGE = Path(ckpt_surgery.__file__).parent


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        ("Leave out `step=10`, or not.", "Leave out `--step 10`, or not."),
        ("Replace it: `overwrite=True`.", "Replace it: `--overwrite`."),
        ('Give it more: `memory="512MiB"`.', "Give it more: `--memory 512MiB`."),
        ('Say it: `set={"layers": VALUE}`.', "Say it: `--set layers=VALUE`."),
        (
            "`src_format=NAME` (of `inspect`: `format=NAME`)",
            "`--src-format NAME` (of `inspect`: `--format NAME`)",
        ),
        (
            "The leaf `steps=10` and `step` stay, step=10 too.",
            "The leaf `steps=10` and `step` stay, step=10 too.",
        ),
    ],
)
def test_arguments_are_options_at_a_terminal(hint: str, text: str) -> None:
    assert as_options(hint) == text
    assert problem_text(Problem("no", hint=hint)) == f"no\n  {text}"
    assert str(Problem("no", hint=hint)) == f"no\n  {hint}"


def options_of(*commands: str) -> set[str]:
    found = (cli.get_command(None, name) for name in commands)  # type: ignore[arg-type]
    opts = (option for command in found if command for param in command.params for option in param.opts)
    return {option for option in opts if option.startswith("--")}


def test_hints_name_what_there_is_in_both_worlds() -> None:
    functions, commands = (api.apply, inspecting.diff), ("apply", "diff")
    assert set(ARGUMENTS) <= {name for one in functions for name in inspect.signature(one).parameters}
    assert {f"--{name.replace('_', '-')}" for name in ARGUMENTS} <= options_of(*commands)


def texts_in(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a module that is no docstring, with its line."""
    tree = ast.parse(path.read_text())
    remarks = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
            yield node.lineno, node.value


def test_the_library_speaks_of_no_options() -> None:
    """They are the command line's; Python's users have arguments."""
    options = options_of(*cli.list_commands(None)) - {"--json"}  # type: ignore[arg-type]
    mentioned = re.compile(f"({'|'.join(map(re.escape, sorted(options)))})(?![\\w-])")
    elsewhere = {"models.py", "reference.py", "explanations.py"}  # documentation, for both worlds
    told = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts and path.name not in elsewhere
        for line, text in texts_in(path)
        if mentioned.search(text)
    ]
    assert told == []
