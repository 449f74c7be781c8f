"""Progress of the public functions: the caller's function, or a bar in interactive sessions."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.progress import Progress, ProgressLike, Report, Watch, progress_text
from ckpt_surgery.core.text import abridged

PATIENCE = 1.0
"""Seconds before a bar appears by default."""
INTERVAL = 0.1
"""Seconds between two updates of a line."""


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
        except BaseException as error:
            if not raised or not _follows(error, raised[-1]):
                raise
            raise raised[-1]  # noqa: B904 - the caller's error, which the other one was made of
    elif progress is not None and not isinstance(progress, bool):
        raise UsageError(
            f"`progress`: {abridged(progress)} is not a function",
            hint="Give a function of one argument, or True or False.",
        )
    elif progress is False or (progress is None and not is_interactive()) or not is_first_process():
        yield None
    else:
        bar = _Bar(PATIENCE if progress is None else 0.0)
        try:
            yield bar.report
        finally:
            bar.close()


def _follows(error: BaseException, first: BaseException) -> bool:
    """True if an error is `first`, or was raised because of it."""
    cause: BaseException | None = error
    while cause is not None and cause is not first:
        cause = cause.__cause__ or cause.__context__
    return cause is first


# --- where bars are shown ---------------------------------------------------------------------------------


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


# --- bars -------------------------------------------------------------------------------------------------


class _Bar:
    """Shows the progress on stderr, from `patience` seconds on: one display for each kind of work."""

    def __init__(self, patience: float):
        self._from = time.monotonic() + patience
        self._doing: str | None = None
        self._display: _Line | _Tqdm | None = None

    def report(self, progress: Progress) -> None:
        """Show the progress."""
        if time.monotonic() < self._from:
            return
        if self._display is None or progress.doing != self._doing:
            self.close()
            self._doing, self._display = progress.doing, _display(progress)
        self._display.update(progress)

    def close(self) -> None:
        """Keep the last display, and go to the next line."""
        if self._display is not None:
            self._display.close()
        self._display = None


def _display(progress: Progress) -> "_Line | _Tqdm":
    """A bar for one kind of work, such as writing."""
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]  # only where a bar is shown
    except ImportError:
        return _Line()
    return _Tqdm(tqdm, progress)


class _Tqdm:
    """A bar of tqdm, of its notebook variant in a notebook."""

    def __init__(self, tqdm: Any, progress: Progress):
        self._bar = tqdm(
            total=progress.total_bytes,
            initial=progress.done_bytes,
            desc=progress.doing,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            file=sys.stderr,
        )

    def update(self, progress: Progress) -> None:
        self._bar.update(progress.done_bytes - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Line:
    """One line of text, rewritten for each update."""

    def __init__(self) -> None:
        self._watch = Watch(time.monotonic)
        self._shown, self._next = "", 0.0

    def update(self, progress: Progress) -> None:
        seconds, now = self._watch.seconds(progress), time.monotonic()
        if now >= self._next or progress.done_bytes >= progress.total_bytes:
            self._next = now + INTERVAL
            text = progress_text(progress, seconds)
            sys.stderr.write(f"\r{text.ljust(len(self._shown))}")
            sys.stderr.flush()
            self._shown = text

    def close(self) -> None:
        sys.stderr.write("\n")
        sys.stderr.flush()
