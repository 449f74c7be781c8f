"""What can go wrong, as values: each kind has an exit code, each problem knows its place.

A function deep inside says in one sentence what is wrong; whoever knows the rule, the line and the
key adds them once, on the way out. Nothing here prints.
"""

from dataclasses import dataclass
from typing import ClassVar

WINDOW = 200
"""How many characters of a line are shown around a problem."""


@dataclass(frozen=True)
class Place:
    """A spot in a recipe file."""

    file: str
    """The recipe's path as the user gave it."""
    path: str
    """Where in the document: `rules[3].value`."""
    line: int
    """1-based."""
    column: int
    """1-based, of the first character meant."""
    text: str
    """The whole line, without its line break."""
    width: int = 1
    """How many characters the caret underlines."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    message: str
    place: Place | None = None
    hint: str | None = None
    """What to do about it, as a sentence of its own."""

    def __str__(self) -> str:
        message = self.message if self.hint is None else f"{self.message}\n  {self.hint}"
        if self.place is None:
            return message
        place = self.place
        cut = max(0, place.column - 1 - WINDOW // 2) if len(place.text) > WINDOW else 0
        text = place.text[cut : cut + WINDOW]
        margin = " " * (place.column - 1 - cut)
        caret = "^" * max(1, min(place.width, len(text) - len(margin)))
        where = f"{place.file}:{place.line}:{place.column}  {place.path}".rstrip()
        return f"{where}\n    {text}\n    {margin}{caret}\n  {message}"


class SurgeryError(Exception):
    """The base of everything that this package raises on purpose. Carries one problem or more."""

    exit_code: ClassVar[int] = 1

    def __init__(self, *problems: Problem | str, hint: str | None = None):
        self.problems: tuple[Problem, ...] = tuple(
            p if isinstance(p, Problem) else Problem(p, hint=hint) for p in problems
        )
        super().__init__("\n\n".join(map(str, self.problems)))


class FunctionError(SurgeryError):
    """A function refuses its arguments; the message names shapes and values, not the rule or the key."""

    exit_code = 2


class UsageError(SurgeryError):
    """The command line or the call does not make sense."""

    exit_code = 2


class RecipeError(SurgeryError):
    """The recipe itself is wrong, whatever the checkpoint."""

    exit_code = 2


class PlanError(SurgeryError):
    """Recipe, checkpoint and target do not go together."""

    exit_code = 2


class SourceError(SurgeryError):
    """A checkpoint is missing, damaged, or not what it claims to be."""

    exit_code = 1


class DataError(SurgeryError):
    """Only the values could tell: an overflow in a cast, say."""

    exit_code = 1


class VerificationError(SurgeryError):
    """What was written does not read back as it should."""

    exit_code = 3


class DestinationError(SurgeryError):
    """The destination exists, or somebody else is writing it."""

    exit_code = 4


class StorageError(SurgeryError):
    """No space, no permission, or an I/O error."""

    exit_code = 5


class Interrupted(SurgeryError):
    """A signal asked the run to stop."""

    def __init__(self, signal_number: int, message: str):
        super().__init__(message)
        self.signal_number = signal_number
