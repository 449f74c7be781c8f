"""Problems and warnings as flat fields, for JSON, GitHub and SARIF."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ckpt_surgery.cli.terminal.console import as_options
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
