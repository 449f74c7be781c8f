"""The man pages, from the help of the commands: `make man` writes them to build/man.

`python .ci/man.py DIRECTORY` writes one page for the program and one per command.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ckpt_surgery.cli.parameters.command import PROGRAM, Command
from ckpt_surgery.cli.program import cli
from ckpt_surgery.core.version import VERSION

VERBATIM = "\b\n"
"""Begins a paragraph of help whose lines stay as they are."""
ESCAPES = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


def escaped(text: str) -> str:
    """One line of text for roff, which takes what begins with a dot or an apostrophe for a request."""
    line = text.translate(ESCAPES)
    return rf"\&{line}" if line.startswith(".") else line


def bold(text: str) -> str:
    return rf"\fB{escaped(text)}\fR"


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; one line each unless they are verbatim."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        if paragraph.startswith(VERBATIM):
            yield from (".nf", *map(escaped, paragraph.removeprefix(VERBATIM).splitlines()), ".fi")
        else:
            yield escaped(" ".join(paragraph.split()))


def options(ctx: click.Context) -> Iterator[str]:
    """Every option that the help lists, with its text."""
    for param in ctx.command.get_params(ctx):
        record = param.get_help_record(ctx)
        if isinstance(param, click.Option) and record is not None:
            yield from (".TP", bold(record[0]), escaped(" ".join(record[1].split())))


def examples(command: Command) -> Iterator[str]:
    for line, purpose in command.examples.items():
        yield from (".PP", escaped(purpose), ".RS 4", ".nf", escaped(f"{PROGRAM} {line}"), ".fi", ".RE")


def name_of(ctx: click.Context) -> str:
    """Name of a page: `ckpt-surgery-apply`."""
    return ctx.command_path.replace(" ", "-")


def page(ctx: click.Context, summary: str, others: list[str]) -> str:
    """The page of a command, or of the program. `others`: the names of pages that it points to."""
    command, name = ctx.command, name_of(ctx)
    usage = escaped(" ".join(command.collect_usage_pieces(ctx)))
    lines = [
        f'.TH "{escaped(name.upper())}" 1 "" "{PROGRAM} {VERSION}" "User Commands"',
        *(".SH NAME", rf"{escaped(name)} \- {escaped(summary)}"),
        *(".SH SYNOPSIS", f"{bold(ctx.command_path)} {usage}"),
        *(".SH DESCRIPTION", *paragraphs(command.help or "")),
        *(".SH OPTIONS", *options(ctx)),
    ]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for one in (command.get_command(ctx, name) for name in command.list_commands(ctx)):
            assert one is not None
            lines += [".TP", bold(one.name or ""), escaped(one.get_short_help_str(200))]
    if isinstance(command, Command):
        lines += [".SH EXAMPLES", *examples(command)]
    lines += [".SH SEE ALSO", ",\n".join(f"{bold(other)}(1)" for other in others)]
    return "\n".join(lines) + "\n"


def pages() -> Iterator[tuple[str, str]]:
    """The names of all pages, and the pages."""
    root = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    names = cli.list_commands(root)
    summary = (cli.help or "").partition(".")[0]
    yield PROGRAM, page(root, summary, [f"{PROGRAM}-{name}" for name in names])
    for name in names:
        command = cli.get_command(root, name)
        assert command is not None
        ctx = click.Context(command, info_name=name, parent=root)
        yield name_of(ctx), page(ctx, command.get_short_help_str(200).removesuffix("."), [PROGRAM])


def main(directory: str) -> None:
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (target / f"{name}.1").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
