"""Texts that several commands show."""

import pytest

from ckpt_surgery.cli import render


def test_hostile_warnings_stay_on_their_line(hostile):
    lines = "\n".join(line.plain for line in render.warning_lines(hostile.warnings))
    assert lines == "Warning: `\\x1b[2J[bold]x`\\nis odd"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.421, "0.42 s"), (12.34, "12.3 s"), (59.99, "60.0 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_seconds_text(seconds, text):
    assert render.seconds_text(seconds) == text
