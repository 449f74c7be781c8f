"""The JSON documents of problems: of a command that failed, and of `lint`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from ckpt_surgery.cli.terminal.console import as_options
from ckpt_surgery.core.documents import UNSET, Document, Pattern, Versioned
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown


@dataclass(frozen=True)
class ReportedProblem:
    """A problem or a warning as flat fields. Its texts are printable."""

    message: str
    code: Code | None = None
    """None for a warning."""
    hint: str | None = None
    path: str | None = None
    """Path of the recipe."""
    line: int | None = None
    column: int | None = None
    end_column: int | None = None
    """Column after the last character in question."""

    @property
    def level(self) -> Literal["error", "warning"]:
        return "warning" if self.code is None else "error"

    @property
    def text(self) -> str:
        """Message and hint."""
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


def as_report(problem: Problem, path: str | None = None) -> ReportedProblem:
    """A problem as it is reported; `path` is that of the recipe, for problems without a place."""
    place = problem.place
    hint = None if problem.hint is None else shown(as_options(problem.hint))
    message, code = shown(problem.message), problem.code or Code.INTERNAL
    if place is None or place.line is None:
        return ReportedProblem(message, code, hint, path)
    end = place.column + max(place.width, 1)
    return ReportedProblem(message, code, hint, place.file, place.line, place.column, end)


def as_warning(warning: Problem, path: str | None = None) -> ReportedProblem:
    """A warning about a place of a recipe as it is reported."""
    return replace(as_report(warning, path), code=None)


def as_warnings(warnings: Iterable[str], path: str | None = None) -> list[ReportedProblem]:
    """Warnings as they are reported."""
    return [ReportedProblem(shown(warning), path=path) for warning in warnings]


@dataclass(frozen=True)
class ProblemEntry(Document):
    """A problem."""

    code: Annotated[str, Pattern(r"^CS\d{3}$")]
    """Its code: `explain CODE` says what it means."""
    message: str
    """What is wrong."""
    hint: str | None
    """What to do about it."""
    path: str | None
    """The recipe; null where it is not about a place of one."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""


@dataclass(frozen=True)
class Error(Document):
    """Why a command failed."""

    exit_code: int
    """The exit code."""
    problems: tuple[ProblemEntry, ...]
    """Everything that is wrong."""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument(Versioned):
    """Any command that fails."""

    error: Error
    """Why."""


@dataclass(frozen=True)
class WarningEntry(Document):
    """What may be a mistake in a recipe."""

    message: str
    """What may go wrong."""
    hint: str | None
    """What to do about it."""
    path: str
    """The recipe."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""


@dataclass(frozen=True, kw_only=True)
class LintDocument(Versioned):
    """`lint --format json`."""

    recipes: tuple[str, ...]
    """The recipes that were checked."""
    error: Error | None = UNSET
    """Their problems, if there are any."""
    warnings: tuple[WarningEntry, ...] = UNSET
    """What may be a mistake in them; leaves the exit code as it is."""


def error_of(problems: Iterable[ReportedProblem], exit_code: int) -> Error:
    """The member `error` of a document."""
    entries = [ProblemEntry.from_attributes(one, code=one.code or Code.INTERNAL) for one in problems]
    return Error(exit_code, tuple(entries))


def lint_document(
    recipes: Iterable[str],
    problems: Sequence[ReportedProblem],
    warnings: Iterable[ReportedProblem],
    code: int,
) -> LintDocument:
    """Which recipes were checked; problems are in it as in the document of a command that fails."""
    error = error_of(problems, code) if problems else UNSET
    entries = tuple(map(WarningEntry.from_attributes, warnings)) or UNSET
    return LintDocument(recipes=tuple(recipes), error=error, warnings=entries)
