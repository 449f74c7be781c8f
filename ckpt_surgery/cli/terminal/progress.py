"""The progress of a run: a bar on a terminal, elsewhere a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.text import Text

from ckpt_surgery.core.progress import Progress, Report, Watch, progress_text

INTERVAL = 10.0
"""Seconds between two lines where the output is no terminal."""


@contextmanager
def reporting(console: Console, quiet: bool) -> Iterator[Report | Literal[False]]:
    """A function to call with the progress so far; False if `quiet`. Its bar disappears after the block."""
    if quiet or not console.is_terminal:
        yield False if quiet else lines(console, time.monotonic)
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display

    bar = BarColumn(complete_style="cyan", finished_style="green", pulse_style="dim")
    columns = (bar, TextColumn("{task.description}", markup=False))
    display = Display(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = display.add_task("", start=False)
    watch = Watch(time.monotonic)

    def report(progress: Progress) -> None:
        text = progress_text(progress, watch.seconds(progress))
        display.update(task, completed=progress.done_bytes, total=progress.total_bytes, description=text)
        # Not before the first bytes: until then the diff is printed, which a moving bar would overwrite.
        display.start_task(task)
        display.start()

    try:
        yield report
    finally:
        display.stop()


def lines(console: Console, clock: Callable[[], float]) -> Report:
    """A function that prints a line at most every `INTERVAL` seconds of `clock`, first after one interval."""
    printed, watch = clock(), Watch(clock)

    def report(progress: Progress) -> None:
        nonlocal printed
        seconds, now = watch.seconds(progress), clock()
        if now - printed >= INTERVAL:
            printed = now
            console.print(Text(progress_text(progress, seconds)), soft_wrap=True)

    return report
