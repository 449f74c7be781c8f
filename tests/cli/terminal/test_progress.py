"""The progress of a run, as people see it."""

import io

from rich.console import Console

from ckpt_surgery.cli.terminal import progress
from ckpt_surgery.core.progress import Progress


def test_progress_without_a_terminal_is_a_line_every_ten_seconds():
    """What follows has a speed of its own."""
    now, out = [100.0], io.StringIO()
    report = progress.lines(Console(file=out, width=100), lambda: now[0])
    for second, done, doing in (
        *((1, 10, "writing"), (9.9, 20, "writing"), (10, 250, "writing"), (19, 300, "writing")),
        *((20.5, 500, "writing"), (20.6, 0, "checking"), (30.6, 20, "checking")),
    ):
        now[0] = 100.0 + second
        report(Progress(done << 20, 1000 << 20, doing))
    assert out.getvalue().splitlines() == [
        "writing 250 MiB of 0.98 GiB, 25.0 MiB/s, 30 s left",
        "writing 500 MiB of 0.98 GiB, 24.4 MiB/s, 20 s left",
        "checking 20.0 MiB of 0.98 GiB, 2.00 MiB/s, 8 min 10 s left",
    ]


def test_a_terminal_gets_a_bar_once_there_is_something_to_tell():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with progress.reporting(console, quiet=False) as report:
        assert out.getvalue() == ""
        assert report
        report(Progress(1 << 30, 4 << 30))
        report(Progress(2 << 30, 4 << 30))
    assert "writing 2.00 GiB of 4.00 GiB\n" in out.getvalue()
    with progress.reporting(console, quiet=True) as report:
        assert report is False  # None would be the library's own bar


def test_what_is_no_terminal_gets_no_animation():
    out = io.StringIO()
    with progress.reporting(Console(file=out, width=100), quiet=False) as report:
        assert report
        report(Progress(1, 2))
    assert out.getvalue() == ""
