"""Texts that several commands show."""

from ckpt_surgery.cli.render import words


def test_hostile_warnings_stay_on_their_line(hostile):
    lines = "\n".join(line.plain for line in words.warning_lines(hostile.warnings))
    assert lines == "Warning: `\\x1b[2J[bold]x`\\nis odd"
