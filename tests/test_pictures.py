"""The pictures of the terminal in docs/pictures are what `make pictures` makes now."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.text import Text

from tests.test_site import ROOT, script

STORED = ROOT / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
MEASURED = re.compile(
    r"(?<= in )[\d.]+ (?:ms|s|min)(?: \d+ s)?(?: \(\S+ \w+/s\))?"  # a time, and a rate where it is told
    r"|(?<=peak memory )\S+ \S+"  # depends on the cores
)


def text_of(picture: Path) -> str:
    """The lines of a picture, each without what depends on the machine and the moment."""
    rows = ET.parse(picture).getroot().iter(f"{SVG}text")
    return MEASURED.sub("…", "\n".join("".join(row.itertext()).rstrip() for row in rows))


@pytest.mark.slow("runs every command that a picture shows")
def test_the_stored_pictures_are_current_and_both_schemes_show_the_same(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    command = [sys.executable, str(ROOT / ".ci" / "pictures.py"), str(made)]
    subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    names = sorted(path.name for path in made.iterdir())
    assert len(names) == 2 * len(script("pictures").PICTURES)
    for name in names:
        assert text_of(STORED / name) == text_of(made / name), f"{name}: run `make pictures`"
    for light in made.glob("*-light.svg"):
        dark = light.with_name(light.name.replace("-light", "-dark"))
        assert text_of(light) == text_of(dark)
        assert light.read_text() != dark.read_text()


def test_a_bar_that_has_gone_is_not_shown_and_long_lines_break_as_on_a_terminal() -> None:
    pictures = script("pictures")
    bar = "\x1b[?25l━━━ reading 4 B of 2 MiB\x1b[2K━━━ reading 2 MiB of 2 MiB\n\x1b[?25h\x1b[1A\x1b[2K"
    assert pictures.BAR.sub("", f"before\n{bar}after\n") == "before\nafter\n"
    line = Text("x" * (2 * pictures.COLUMNS + 3))
    assert [len(row) for row in pictures.wrapped(line)] == [pictures.COLUMNS, pictures.COLUMNS, 3]
    assert [row.plain for row in pictures.wrapped(Text("short"))] == ["short"]
