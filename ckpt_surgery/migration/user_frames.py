"""Find the line of the user's own program at which something happens, outside libraries and this package."""

import dis
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class CodeLine:
    """A line of a program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})


@cache
def is_library(file: str) -> bool:
    """True if a file belongs to Python, an installed library or this package."""
    if file.startswith(("<frozen ", "<__array_function__")):
        return True
    inside = (f"{root}/" for root in (*_libraries(), _PACKAGE))
    return file.startswith(tuple(inside)) or "/site-packages/" in file or "/dist-packages/" in file


def is_users(code: CodeType) -> bool:
    """True if code is the user's own."""
    return not is_library(code.co_filename)


def is_operator(frame: FrameType) -> bool:
    """True if a frame is at an operator, such as `+`, and not at a call."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return name.startswith(("BINARY_", "COMPARE_", "INPLACE_"))


def user_place() -> CodeLine | None:
    """The innermost line of the user's program that is being executed; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code):
            return CodeLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def place_of(error: BaseException) -> CodeLine | None:
    """The innermost line of the user's program that an error passed; None if there is none."""
    innermost: CodeLine | None = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if is_users(step.tb_frame.f_code):
            innermost = CodeLine(step.tb_frame.f_code.co_filename, step.tb_lineno)
        step = step.tb_next
    return innermost
