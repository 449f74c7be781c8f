"""Manual pages: one for the program and one for every command, with every option."""

import re

import click
import pytest

from ckpt_surgery.cli.parameters.command import Command
from ckpt_surgery.cli.program import cli
from tests.support.ci_scripts import script

CONTEXT = click.Context(cli, info_name="ckpt-surgery", **cli.context_settings)
NAMES = cli.list_commands(CONTEXT)
MACROS = {"TH", "SH", "PP", "TP", "nf", "fi", "RS", "RE"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages by their names."""
    target = tmp_path_factory.mktemp("man") / "new" / "man"
    script("man").main(str(target))
    return {path.name: path.read_text() for path in target.iterdir()}


def plain(page: str) -> str:
    """The page as it is read."""
    marks = {r"\-": "-", r"\(aq": "'", r"\(ga": "`", r"\(ha": "^", r"\(ti": "~", r"\fB": "", r"\fR": ""}
    for mark, character in {**marks, r"\&": "", r"\e": "\\"}.items():
        page = page.replace(mark, character)
    return page


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_every_option_and_example(name: str, pages: dict[str, str]) -> None:
    command = cli.get_command(CONTEXT, name)
    assert isinstance(command, Command)
    page = plain(pages[f"ckpt-surgery-{name}.1"])
    ctx = click.Context(command, info_name=name, parent=CONTEXT)
    records = [p.get_help_record(ctx) for p in command.get_params(ctx) if isinstance(p, click.Option)]
    assert ("-h, --help", "Show this message and exit.") in records
    listed = page.partition("\n.SH OPTIONS\n")[2].partition("\n.SH ")[0]
    assert listed == "\n".join(f".TP\n{names}\n{' '.join(text.split())}" for names, text in records)
    for line, purpose in command.examples.items():
        assert f"\n{purpose}\n.RS 4\n.nf\nckpt-surgery {line}\n.fi\n" in page
    assert f"\n.SH NAME\nckpt-surgery-{name} - {command.short_help.removesuffix('.')}\n" in page


def test_every_command_has_a_page_and_that_of_the_program_lists_them(pages: dict[str, str]) -> None:
    assert set(pages) == {"ckpt-surgery.1", *(f"ckpt-surgery-{name}.1" for name in NAMES)}
    page = plain(pages["ckpt-surgery.1"])
    listed = page.partition("\n.SH COMMANDS\n")[2].partition("\n.SH ")[0]
    assert re.findall(r"^\.TP\n(\w+)$", listed, re.MULTILINE) == NAMES
    assert re.findall(r"ckpt-surgery-(\w+)\(1\)", page.partition(".SH SEE ALSO")[2]) == NAMES
    assert "\n.nf\nExit codes:\n  0  done\n" in page


def test_no_line_of_text_is_a_request(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        for line in page.splitlines():
            assert not line.startswith("'"), name
            assert not line.startswith(".") or line[1:].split()[0] in MACROS, f"{name}: {line}"
