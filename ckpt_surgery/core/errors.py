"""The errors that this package raises, each with an exit code, and the problems that they consist of.

The function that finds a problem says in one sentence what is wrong. The caller that knows the rule, the
line and the key adds them. Nothing here prints.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Self

from ckpt_surgery.core.text import LONGEST_BRIEF, brief, did_you_mean, shortened, shown


class Code(StrEnum):
    """Kinds of problems. A code is never given to another kind, and never taken away."""

    # The text of a recipe.
    UNREADABLE = "CS001"
    YAML = "CS002"
    YAML_FEATURE = "CS003"
    UNCLEAR_VALUE = "CS004"
    REPEATED_FIELD = "CS005"

    # Its fields.
    UNKNOWN_FIELD = "CS010"
    MISSING_FIELD = "CS011"
    WRONG_VALUE = "CS012"
    FIELDS_DISAGREE = "CS013"
    NAME = "CS014"
    UNKNOWN_SOURCE = "CS015"
    MIRROR = "CS016"
    SHARDING = "CS017"

    # Its patterns, templates and expressions.
    PATTERN = "CS020"
    SLOW_PATTERN = "CS021"
    INSERTED_PARAM = "CS022"
    TEMPLATE = "CS023"
    EXPRESSION = "CS024"
    UNKNOWN_NAME = "CS025"
    UNKNOWN_FUNCTION = "CS026"
    CALL = "CS027"
    ARGUMENTS = "CS028"
    NO_ENTRY = "CS029"
    NO_GROUP = "CS030"
    PARAM = "CS031"
    HOOKS = "CS032"

    # A recipe and a checkpoint.
    CLAIMS_NOTHING = "CS040"
    UNCLAIMED = "CS041"
    NOTHING_LEFT = "CS042"
    SAME_KEY = "CS043"
    LEAF_AND_CONTAINER = "CS044"
    ORDER = "CS045"
    NOT_AN_ARRAY = "CS046"
    SOURCE_UNUSED = "CS047"

    # A target.
    NO_TARGET = "CS050"
    TARGET_MISSING = "CS051"
    TARGET_MISFIT = "CS052"
    TARGET_EXTRA = "CS053"

    # A destination, and limits.
    UNSUITED = "CS060"
    BUDGET = "CS061"
    TOO_MUCH = "CS062"
    CHANGED = "CS063"

    # Whatever else ends a command.
    USAGE = "CS070"
    SOURCE = "CS071"
    DATA = "CS072"
    NO_MEMORY = "CS073"
    VERIFICATION = "CS074"
    DESTINATION = "CS075"
    STORAGE = "CS076"
    INTERRUPTED = "CS077"
    INTERNAL = "CS078"


WINDOW = 200
"""Limit on the characters that are shown of a recipe's line with a problem."""


@dataclass(frozen=True)
class Place:
    """A position in a recipe."""

    file: str
    """Path of the recipe as the user gave it; `(recipe)` for one that has no file."""
    path: str
    """Path within the document, such as `rules[3].value`."""
    line: int | None
    """Number of the line, from 1; None for a recipe that was given as data, which has no text."""
    column: int
    """Column of the first character that the problem is about, from 1."""
    text: str
    """The whole line, without its line break; the value itself, where there is no line."""
    width: int = 1
    """Number of characters that the carets underline."""
    name: str | None = None
    """Origin of a generated rule there, such as "transform `a/(.*)`"; None where somebody wrote it."""

    __repr__ = brief

    @property
    def where(self) -> str:
        """File, line, column and path, as messages begin with them."""
        position = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return f"{position}  {self.name or self.path}".rstrip()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, with its place in the recipe if it has one."""

    message: str
    """Problem, as a sentence without its full stop."""
    place: Place | None = None
    """Where in the recipe; None where it is not about a place of one."""
    hint: str | None = None
    """Advice to the user, as a sentence of its own."""
    code: Code | None = None
    """Kind of mistake; an error gives its own to problems that have none."""

    __repr__ = brief

    def __str__(self) -> str:
        message = self.message if self.hint is None else f"{self.message}\n  {self.hint}"
        if (place := self.place) is None:
            return message
        cut = max(0, place.column - 1 - WINDOW // 2) if len(place.text) > WINDOW else 0
        text = place.text[cut : cut + WINDOW]
        margin = " " * (place.column - 1 - cut)
        caret = "^" * max(1, min(place.width, len(text) - len(margin)))
        line = f"    {text}\n    {margin}{caret}\n" if text or place.line is not None else ""
        return f"{place.where}\n{line}  {message}"


class SurgeryError(Exception):
    """Base class of all errors that this package raises for the user. It holds one or more problems."""

    exit_code: ClassVar[int] = 1
    """Exit code of the command line."""
    code: ClassVar[Code] = Code.INTERNAL
    """Code of the problems that are given none of their own."""
    problems: tuple[Problem, ...]
    """Everything that is wrong, each with its place in the recipe. `str(error)` is all of it."""

    def __init__(self, *problems: Problem | str, hint: str | None = None, code: Code | None = None):
        given = (p if isinstance(p, Problem) else Problem(p, hint=hint) for p in problems)
        self.problems = tuple(p if p.code else replace(p, code=code or self.code) for p in given)
        super().__init__("\n\n".join(map(str, self.problems)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shortened(repr(str(self)), LONGEST_BRIEF)})"

    def _render_traceback_(self) -> list[str]:
        """Lines that IPython shows in place of a traceback, which says nothing about a recipe."""
        return "\n".join([str(self), *getattr(self, "__notes__", ())]).split("\n")


class FunctionError(SurgeryError):
    """A function does not accept its arguments. The message has shapes and values, and later the rule."""

    exit_code = 2
    code = Code.ARGUMENTS


class UsageError(SurgeryError):
    """The arguments of the command line or of the Python call are wrong."""

    exit_code = 2
    code = Code.USAGE


class TransformError(UsageError, ValueError):
    """The fields of a transform contradict each other."""


class MissingLibraryError(UsageError, ImportError):
    """A library that the call needs is not installed. The hint is the command that installs it."""


class KeyNotFound(UsageError, KeyError):
    """A checkpoint, or a subtree of one, has no leaf and no subtree with the key that was asked for."""

    @classmethod
    def among(cls, key: str, known: Iterable[str], where: str = "") -> Self:
        """Name the key, and the nearest of the known ones. `where`, as in "in `params`", follows the key."""
        place = f" {where}" if where else ""
        return cls(f"no leaf and no subtree `{shown(key)}`{place}{did_you_mean(key, known)}")

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError is the repr of the message


class RecipeError(SurgeryError):
    """The recipe is wrong, for any checkpoint."""

    exit_code = 2
    code = Code.WRONG_VALUE


class PlanError(SurgeryError):
    """Recipe, checkpoint and target do not fit together."""

    exit_code = 2
    code = Code.CHANGED


class OriginalMissingError(PlanError, ValueError):
    """Transforms take leaves that the original tree does not have."""


class SourceError(SurgeryError):
    """A checkpoint is missing or damaged, or its format is not supported."""

    code = Code.SOURCE


class SourcesChanged(PlanError, SourceError):
    """A source of a plan that is carried out is gone, or is not what it was when the plan was made."""


class DataError(SurgeryError):
    """An error that depends on the values of an array, such as an overflow in a cast."""

    code = Code.DATA


class OutOfMemoryError(SurgeryError):
    """The system gave no more memory."""

    code = Code.NO_MEMORY


class VerificationError(SurgeryError):
    """A checkpoint that was written reads back differently."""

    exit_code = 3
    code = Code.VERIFICATION


class DestinationError(SurgeryError):
    """The destination already exists, or another process is writing to it."""

    exit_code = 4
    code = Code.DESTINATION


class StorageError(SurgeryError):
    """There is no space or no permission, or an I/O error occurred."""

    exit_code = 5
    code = Code.STORAGE


class WorkersLost(SurgeryError):
    """The cluster is gone or has no workers, or they die of a shard again and again."""


GO_ON = "Run the same again with `resume=True` to go on from there."
"""Hint for errors that leave a draft to resume."""
AGAIN = "Run the same again: it goes on with what is not done."
"""Hint for errors that leave parts, with which every run of the same plan goes on."""


class Interrupted(SurgeryError):
    """A signal, such as that of Ctrl-C, ended the run. The command line exits with 128 and its number."""

    code = Code.INTERRUPTED

    def __init__(self, signal_number: int, message: str):
        super().__init__(message)
        self.signal_number = signal_number
        """Number of the signal, such as 2 of Ctrl-C."""


def add_sentence(failure: BaseException, sentence: str, hint: str | None = None) -> None:
    """Add a sentence, such as the state of the destination, to an error's message."""
    if isinstance(failure, SurgeryError):
        failure.problems += (Problem(sentence, hint=hint),)
        failure.args = ("\n\n".join(map(str, failure.problems)),)
    else:
        failure.add_note(sentence if hint is None else f"{sentence}. {hint}")


def in_one_line(error: SurgeryError) -> str:
    """The problems of an error in one line, without their hints."""
    return "; ".join(problem.message for problem in error.problems)


FLAWS = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO)
)
"""errno values that mean: there is no such file, or it is of another kind."""

_DENIED = "Whoever runs this has to be allowed to read it, and to enter the directories above it."
_DEVICE = "The device that it lies on reports an error: take another copy, and look into the system's log."
_FILES = "Raise the limit on open files (`ulimit -n`), or read with fewer threads: `workers=1`."
_HINTS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), _DENIED),
    **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT), _DEVICE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), _FILES),
}


def access_error(path: str, error: OSError) -> StorageError | None:
    """Make a StorageError of a refusal by the operating system; None if there is simply no such file.

    An error without an errno is not from the system.
    """
    if error.errno is None or error.errno in FLAWS:
        return None
    other = "The system refuses it, whatever the file holds: try again, or take another copy."
    message = f"{shown(path)} cannot be read: {error.strerror}"
    return StorageError(message, hint=_HINTS.get(error.errno, other))


def name_beside(path: str) -> str:
    """`; did you mean `old`?`, where such a name is beside a path of this machine, else nothing."""
    directory, name = os.path.split(os.path.abspath(path))
    stem = os.path.splitext(name)[0]
    try:
        alike = [entry for entry in os.listdir(directory) if did_you_mean(stem, [os.path.splitext(entry)[0]])]
    except OSError:
        return ""
    return did_you_mean(name, map(shown, alike))
