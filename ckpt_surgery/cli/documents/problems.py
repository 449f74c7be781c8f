"""The JSON documents of problems: of a command that failed, and of `lint`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem
from ckpt_surgery.core.documents import UNSET, Document, Pattern, Versioned
from ckpt_surgery.core.errors import Code


@dataclass(frozen=True)
class ProblemEntry(Document):
    """A problem."""

    code: Annotated[str, Pattern(r"^CS\d{3}$")]
    """Its code: `explain CODE` says what it means."""
    message: str
    """Description of the problem."""
    hint: str | None
    """Advice on what to do."""
    path: str | None
    """The recipe; null where it is not about a place of one."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""


@dataclass(frozen=True)
class Error(Document):
    """Failure of a command."""

    exit_code: int
    """The exit code."""
    problems: tuple[ProblemEntry, ...]
    """Everything that is wrong."""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument(Versioned):
    """Any command that fails."""

    error: Error
    """The failure."""


@dataclass(frozen=True)
class WarningEntry(Document):
    """Possible mistake in a recipe."""

    message: str
    """Description of the warning."""
    hint: str | None
    """Advice on what to do."""
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
    """Possible mistakes in them; they leave the exit code as it is."""


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
    """The document of `lint`; problems are in it as in the document of a command that fails."""
    error = error_of(problems, code) if problems else UNSET
    entries = tuple(map(WarningEntry.from_attributes, warnings)) or UNSET
    return LintDocument(recipes=tuple(recipes), error=error, warnings=entries)
