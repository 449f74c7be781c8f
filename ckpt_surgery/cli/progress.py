"""The progress of a run: a bar on a terminal, elsewhere a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from ckpt_surgery.cli.render import whole_seconds_text
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.text import bytes_text

INTERVAL = 10.0
"""Seconds between two lines where the output is no terminal."""

Report = Callable[[Progress], None]


@contextmanager
def reporting(console: Console, quiet: bool) -> Iterator[Report | None]:
    """A function to call with the progress so far; None if `quiet`. Its bar disappears after the block."""
    if quiet:
        yield None
    elif console.is_terminal:
        with _bar(console) as report:
            yield report
    else:
        yield lines(console, time.monotonic)


@contextmanager
def _bar(console: Console) -> Iterator[Report]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Display

    bar = BarColumn(complete_style="cyan", finished_style="green", pulse_style="dim")
    columns = (bar, TextColumn("{task.description}", markup=False))
    display = Display(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
    task = display.add_task("", start=False)
    watch = _Watch(time.monotonic)

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
    printed, watch = clock(), _Watch(clock)

    def report(progress: Progress) -> None:
        nonlocal printed
        seconds, now = watch.seconds(progress), clock()
        if now - printed >= INTERVAL:
            printed = now
            console.print(Text(progress_text(progress, seconds)), soft_wrap=True)

    return report


class _Watch:
    """Measures how long what is being done has been going on."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._started = clock()
        self._doing: str | None = None

    def seconds(self, progress: Progress) -> float:
        """Seconds since the last report of something else; since the beginning where there is none."""
        if self._doing not in (None, progress.doing):
            self._started = self._clock()
        self._doing = progress.doing
        return self._clock() - self._started


def progress_text(progress: Progress, seconds: float) -> str:
    """`writing 1.20 GiB of 4.00 GiB, 250 MiB/s, 12 s left`; `seconds` have passed since it began."""
    done, total = progress.done_bytes, progress.total_bytes
    text = f"{progress.doing} {bytes_text(done)} of {bytes_text(total)}"
    if not done or seconds < 1:  # until then, a speed says more of the clock than of the run
        return text
    rate = done / seconds
    return f"{text}, {bytes_text(rate)}/s, {whole_seconds_text((total - done) / rate)} left"
