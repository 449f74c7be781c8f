"""Progress of the public functions: the caller's function, or a bar in interactive sessions."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ckpt_surgery.core.errors import Interrupted, UsageError
from ckpt_surgery.core.progress import Progress, ProgressLike, Report, Watch, progress_text
from ckpt_surgery.core.text import abridged


@contextmanager
def reported(progress: ProgressLike) -> Iterator[Report | None]:
    """Report progress within this context as the caller of a public function asked for it.

    Yields the function to call; None if progress is not reported. Exceptions of the caller's function are
    raised unchanged, even if they were wrapped on the way. Raises UsageError if it cannot be called.
    """
    if callable(progress):
        raised: list[BaseException] = []

        def call(done: Progress) -> None:
            try:
                progress(done)
            except BaseException as error:
                raised.append(error)
                raise

        try:
            yield call
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException:
            if raised:
                raise raised[-1]  # noqa: B904 - the caller's error, which the other one was made of
            raise
    elif progress is not None and not isinstance(progress, bool):
        what = f"`progress`: {abridged(progress)} is not a function"
        raise UsageError(what, hint="Give a function of one argument, or True or False.")
    elif progress is False or (progress is None and not is_interactive()) or not is_first_process():
        yield None
    else:
        bar = _Bar(patience=1.0 if progress is None else 0.0)
        try:
            yield bar.report
        finally:
            bar.close()


def is_interactive() -> bool:
    """True in a notebook, and in an interactive session of Python whose stderr is a terminal."""
    if sys.stderr is None:
        return False
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:
        return True
    return (hasattr(sys, "ps1") or bool(sys.flags.interactive)) and sys.stderr.isatty()


def is_first_process() -> bool:
    """True for the first of the processes of `jax.distributed`, and for a program of one process."""
    jax: Any = sys.modules.get("jax")
    return jax is None or not jax.distributed.is_initialized() or jax.process_index() == 0


class _Bar:
    """Shows the progress on stderr, from `patience` seconds on: one display for each kind of work."""

    def __init__(self, patience: float):
        self._from = time.monotonic() + patience
        self._doing: str | None = None
        self._update: Callable[[Progress], object]
        self._end: Callable[[], object] | None = None

    def report(self, progress: Progress) -> None:
        """Show the progress."""
        if time.monotonic() < self._from:
            return
        if self._end is None or progress.doing != self._doing:
            self.close()
            self._doing, (self._update, self._end) = progress.doing, _display(progress)
        self._update(progress)

    def close(self) -> None:
        """Keep the last display, and go to the next line."""
        if self._end is not None:
            self._end()
        self._end = None


def _display(progress: Progress) -> tuple[Callable[[Progress], object], Callable[[], object]]:
    """Functions that show the progress of one kind of work, such as writing, and that end the display.

    A bar of tqdm, of its notebook variant in a notebook, or else a line of text.
    """
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]  # only where a bar is shown
    except ImportError:
        line = _Line()
        return line.update, line.close
    how = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "file": sys.stderr}
    bar = tqdm(total=progress.total_bytes, initial=progress.done_bytes, desc=progress.doing, **how)
    return lambda now: bar.update(now.done_bytes - bar.n), bar.close


class _Line:
    """One line of text, rewritten for each update."""

    def __init__(self) -> None:
        self._watch = Watch(time.monotonic)
        self._shown, self._next = "", 0.0

    def update(self, progress: Progress) -> None:
        seconds, now = self._watch.seconds(progress), time.monotonic()
        if now >= self._next or progress.done_bytes >= progress.total_bytes:
            self._next = now + 0.1
            text = progress_text(progress, seconds)
            sys.stderr.write(f"\r{text.ljust(len(self._shown))}")
            sys.stderr.flush()
            self._shown = text

    def close(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()
