"""The library's words for people at a terminal."""

import ast
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ckpt_surgery
from ckpt_surgery.api import applying, inspecting
from ckpt_surgery.cli.program import cli
from ckpt_surgery.cli.terminal.console import (
    Settings,
    cut_lines,
    open_terminal,
    print_errors,
    problem_text,
)
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.inputs.options import ARGUMENTS

PACKAGE = Path(ckpt_surgery.__file__).parent


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        ("Leave out `step=10`, or not.", "Leave out `--step 10`, or not."),
        ("Replace it: `overwrite=True`.", "Replace it: `--overwrite`."),
        ('Give it more: `memory="512MiB"`.', "Give it more: `--memory 512MiB`."),
        ('Say it: `set={"layers": VALUE}`.', "Say it: `--set layers=VALUE`."),
        ('`set={"layout": "jax"}`, `set={"scan": True}`', "`--set layout=jax`, `--set scan=true`"),
        ("`src_format=NAME` (of `inspect`: `format=A`)", "`--src-format NAME` (of `inspect`: `--format A`)"),
        ("The leaf `steps=10` and `step` stay, step=10 too.", None),
    ],
)
def test_arguments_are_options_at_a_terminal(hint: str, text: str | None) -> None:
    assert problem_text(Problem("no", hint=hint)) == f"no\n  {text or hint}"


def options_of(*commands: str) -> set[str]:
    found = (cli.get_command(None, name) for name in commands)  # type: ignore[arg-type]
    opts = (option for command in found if command for param in command.params for option in param.opts)
    return {option for option in opts if option.startswith("--")}


def test_hints_name_what_there_is_in_both_worlds() -> None:
    functions = (applying.plan, applying.apply, applying.convert, inspecting.diff)
    commands = ("plan", "apply", "convert", "diff")
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
    # Documentation for both worlds, and comments of drafts, which have the command that runs them.
    elsewhere = ("schema/fields.py", "inference/documents.py")
    told = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts and not path.as_posix().endswith(elsewhere)
        if mentioned.search(path.read_text())
        for line, text in texts_in(path)
        if mentioned.search(text)
    ]
    assert told == []


def test_errors_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its label; carets are red; sentences are wrapped at words, lines of recipes are cut."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    place = "r.yaml:1:3\n    - {match: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}\n      ^^^^^\n"
    print_errors([f"{place}  it is wrong for more than one reason\n  Mend it.", "second"], Settings())
    told = out.getvalue()
    assert told.count("\x1b[1;31mError: \x1b[0m") == 2
    assert "\x1b[1;31m      ^^^^^\x1b[0m\n" in told
    assert "\n    - {match: aaaaaaaaaaaaaaaa\n" in told
    wrapped = ["  it is wrong for more than", "  one reason", "  Mend it."]
    assert [line.rstrip() for line in told.split("\n")][3:6] == wrapped
    assert told.endswith("\n2 errors\n")


@pytest.mark.parametrize(
    ("line", "caret", "shown"),
    [
        ("    ab: x", "        ^", ["    ab: x", "        ^"]),
        ("    ab: x + y + z + u + v", "    ^^", ["    ab: x + y + z + u", "    ^^"]),
        ("    ab: x + y + z + u + vw", "                        ^^", ["    u + vw", "        ^^"]),
        (
            "    ab: cast(x + y + z, 2)",
            "        " + "^" * 22,
            ["    ab: cast(x + y + ", "        " + "^" * 13],
        ),
    ],
)
def test_lines_of_recipes_are_cut_where_their_carets_are(line: str, caret: str, shown: list[str]) -> None:
    first, last = "r.yaml:1:1", "  it is long ^ and stays"
    assert cut_lines([first, line, caret, last], 21) == [first, *shown, last]


def test_warnings_are_wrapped_where_a_width_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, and in a pipe where COLUMNS says so; no path is cut, however long."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    path = "/a/path/that/is/longer/than/a/line"
    for columns, wanted in (
        ("20", f"Warning: seven words\n    of {path}\n    in \\x1b\n"),
        (None, f"Warning: seven words of {path} in \\x1b\n"),
    ):
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS")
        open_terminal(Settings(no_color=True)).warn_of([f"seven words of {path} in \x1b"])
        told = out.getvalue().replace(f"\n    {path}", f" {path}")
        assert told == wanted
