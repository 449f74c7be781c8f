"""Standard output and error that may be closed, full, or a pipe whose reader has left.

What a command finds out, and what it publishes, does not depend on whether its text can be written: text that
cannot is dropped, and `unwritten` tells the program in the end.
"""

import os
import sys
from typing import Any, TextIO


class Stream:
    """A text stream whose writes never raise OSError. Everything else is the stream's own."""

    def __init__(self, stream: TextIO, absent: bool = False):
        self._stream = stream
        self.absent = absent
        """Whether it was closed when the program began: then nobody waits for what is written."""
        self.failure: OSError | None = None
        """The first error, unless it is that the reader of a pipe has left, who has what he wanted."""

    def write(self, text: str) -> int:
        """Write, or drop the text."""
        try:
            return self._stream.write(text)
        except OSError as error:
            return self._drop(error, len(text))

    def flush(self) -> None:
        """Hand to the system what is buffered, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error, 0)

    def _drop(self, error: OSError, written: int) -> int:
        """Send what is buffered, and all that follows, nowhere: Python itself would try again at its end."""
        if not isinstance(error, BrokenPipeError):
            self.failure = self.failure or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard() -> None:
    """Make stdout and stderr streams that never raise. To be called when the program begins.

    A standard stream that is closed is opened on the null device. Otherwise the next file, of a checkpoint
    say, would get its number, and whatever a library prints there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)


def _guarded(stream: TextIO | None, number: int) -> Any:
    if stream is None:  # so Python says that it is closed
        return Stream(open(number, "w", encoding="utf-8", closefd=False), absent=True)
    if stream.encoding.lower() != "utf-8":  # others lack the characters of our tables
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]
    return Stream(stream)


def unwritten() -> OSError | None:
    """Reason why text on stdout was lost; None if all is written, or its reader has left."""
    sys.stdout.flush()
    return sys.stdout.failure if isinstance(sys.stdout, Stream) else None
