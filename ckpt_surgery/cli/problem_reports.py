"""Problems for programs: as JSON, as GitHub's workflow commands, and as SARIF."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from ckpt_surgery.cli.console import as_options
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown


class ReportFormat(StrEnum):
    """How problems are reported."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


OPTIONS = ("--report-format", "--format")
"""Options whose value may be the name of a report's format."""


@dataclass(frozen=True)
class Told:
    """A problem or a warning as reports have it. Its texts are printable."""

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


def told(problem: Problem, path: str | None = None) -> Told:
    """A problem as it is reported; `path` is that of the recipe, for problems without a place."""
    place = problem.place
    hint = None if problem.hint is None else shown(as_options(problem.hint))
    message, code = shown(problem.message), problem.code or Code.INTERNAL
    if place is None:
        return Told(message, code, hint, path)
    end = place.column + max(place.width, 1)
    return Told(message, code, hint, place.file, place.line, place.column, end)


def warned(warnings: Iterable[str], path: str | None = None) -> list[Told]:
    """Warnings as they are reported."""
    return [Told(shown(warning), path=path) for warning in warnings]


def error_json(problems: Iterable[Told], exit_code: int) -> dict[str, Any]:
    """What the field `error` of a document has."""
    listed = [
        {
            "code": one.code,
            "message": one.message,
            "hint": one.hint,
            "path": one.path,
            "line": one.line,
            "column": one.column,
        }
        for one in problems
    ]
    return {"exit_code": exit_code, "problems": listed}


def error_document(problems: Iterable[Told], exit_code: int) -> dict[str, Any]:
    """The document of a command that failed."""
    from ckpt_surgery.core.documents import JSON_SCHEMA

    return {"schema": JSON_SCHEMA, "error": error_json(problems, exit_code)}


def rendered(format: ReportFormat, problems: Sequence[Told], exit_code: int) -> str:
    """What a report of this format has on stdout about a command that has ended; `text` has nothing."""
    from ckpt_surgery.core.documents import json_text

    if format is ReportFormat.JSON:
        return json_text(error_document(problems, exit_code))
    if format is ReportFormat.GITHUB:
        from ckpt_surgery.cli.render_github import workflow_commands

        return workflow_commands(problems)
    if format is ReportFormat.SARIF:
        from ckpt_surgery.cli.render_sarif import sarif_document

        return json_text(sarif_document(problems, exit_code))
    return ""


def write_failure(format: ReportFormat, problems: Iterable[Problem], exit_code: int) -> None:
    """Report the problems that end a command on stdout, beside the text that people read on stderr."""
    sys.stdout.write(rendered(format, [told(problem) for problem in problems], exit_code))
    sys.stdout.flush()


def requested(arguments: Sequence[str]) -> ReportFormat:
    """The format that a command line asks for, which may itself be wrong.

    `--json` without a file counts. Read before click parses, so that its errors are reported in it, too.
    """
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for option, value in zip(before, [*before, "-"][1:], strict=True):
        name, equals, given = option.partition("=")
        given = given if equals else value
        if name in OPTIONS and given in set(ReportFormat):
            return ReportFormat(given)
        if name == "--json" and given.startswith("-"):
            return ReportFormat.JSON
    return ReportFormat.TEXT
