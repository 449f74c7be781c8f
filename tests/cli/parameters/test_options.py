"""Values of options, which argument is what, and what the options of commands are called."""

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import click
import pytest

import ckpt_surgery
from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import (
    Argument,
    Form,
    PlanOutput,
    Rules,
    Verify,
    file_path,
    whole,
)
from ckpt_surgery.cli.parameters.paths import check_document_beside, check_documents
from ckpt_surgery.cli.program import cli
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.inputs.options import ConvertOptions, Match, PlanOptions


def values(arguments: list[str]) -> dict[str, Any]:
    """What a command with the options of `plan` gets."""
    found: dict[str, Any] = {}

    @command("x", {}, "")
    def x(rules: Rules, output: PlanOutput, **options: Unpack[PlanOptions]) -> None:
        found.update({"rules": rules, **vars(output), **options})

    x.main(arguments, standalone_mode=False)
    return found


def test_a_parameter_is_an_option_or_an_argument() -> None:
    found: list[object] = []

    @command("x", {"x A": "Try it."}, "In short.")
    def x(
        ctx: click.Context,
        terminal: Terminal,
        paths: Annotated[tuple[str, ...], Argument("PATH...", more={"nargs": -1})],
        match: Match,
        many: Annotated[tuple[str, ...], "Several.", Form("TEXT", ("-m",))],
        depth: Annotated[int | None, "Levels.", whole(1)],
        factor: Annotated[float, "A number; default: 0.5."],
        sort_by: Annotated[Literal["size", "name"] | None, "Order."],
        dry: Annotated[bool, "Nothing is done."],
        verify: Verify,
        step: int | None,
    ) -> int:
        """What it does."""
        assert ctx.command.name == "x"
        assert terminal.json_to is None
        found.append((paths, match, many, depth, factor, sort_by, dry, verify, step))
        return 3

    assert x.main([], standalone_mode=False) == 3
    line = "a b --match k -m 1 -m 2 --depth 2 --factor 2 --sort-by size --dry --verify none --step 7"
    x.main(line.split(), standalone_mode=False)
    assert found == [
        ((), None, (), None, 0.5, None, False, "fast", None),
        (("a", "b"), "k", ("1", "2"), 2, 2.0, "size", True, "none", 7),
    ]
    words = " ".join(x.get_help(click.Context(x)).split())
    assert "[OPTIONS] PATH... What it does." in words
    assert "--depth N Levels. [x>=1]" in words
    assert "--step N Step to read from a source that holds several. [default: the latest]" in words
    assert x.short_help == "In short."
    for wrong in (["--depth", "0"], ["--sort-by", "age"], ["--factor", "a"], ["--dyr"]):
        with pytest.raises(click.UsageError):
            x.main(wrong, standalone_mode=False)


def test_options_have_the_names_of_the_library() -> None:
    """So that commands hand them on as they are."""
    told = {"json_to", "full", "detailed_exitcode", "report_to", "rules"}  # by the command itself
    assert set(values([])) - told == set(PlanOptions.__annotations__)
    assert not any(values([]).values())  # nothing is given where nothing is said
    of_convert = {"to", "set", "config"}
    for name, options, own in (("apply", PlanOptions, set()), ("convert", ConvertOptions, of_convert)):
        found = cli.get_command(None, name)  # type: ignore[arg-type]
        assert found is not None
        names = {param.name for param in found.params}
        assert set(options.__annotations__) <= names
        assert names & {*PlanOptions.__annotations__, "to"} == {*options.__annotations__, *own}
        taken = inspect.signature(getattr(ckpt_surgery, name)).parameters
        assert {"overwrite", *options.__annotations__, *own} <= set(taken)


@pytest.mark.parametrize("name", ["diff", "infer", "inspect", "verify"])
def test_an_option_has_one_text_and_one_default(name: str) -> None:
    found, function = cli.get_command(None, name), getattr(ckpt_surgery, name)  # type: ignore[arg-type]
    assert found is not None
    taken = inspect.signature(function).parameters
    texts = dict(
        line.strip().split(": ", 1) for line in function.__doc__.partition("Args:\n")[2].splitlines()
    )
    shared = {p.name: p for p in found.params if isinstance(p, click.Option) and p.name in texts}
    assert shared.keys() == texts.keys()
    for name, option in shared.items():
        given, context = taken[name].default, click.Context(found)
        if given not in (None, False, ()):
            assert option.type_cast_value(context, option.get_default(context)) == given
        same = (option.help or "")[:5] == texts[name][:5]
        assert same or name == "out"  # without which the command prints the recipe


def test_stdout_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source may be called `-`: only a file could be written over it."""
    monkeypatch.chdir(tmp_path)
    check_documents(["-", None, "-"], None, ("-",), None, {})
    check_document_beside("-", "-")
    check_document_beside(None, "x")
    refused = "a document cannot be written over or into"
    with pytest.raises(UsageError, match=refused):
        check_documents([None, "x"], None, ("x",), None, {})
    with pytest.raises(UsageError, match=refused):
        check_document_beside("x", "y", "x", format=None)
    with pytest.raises(ValueError, match="it is written to a file; `-` is none"):
        file_path("-")
    assert file_path("x") == "x"
