"""Problems and warnings for programs: as JSON, as GitHub's workflow commands, and as SARIF."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from ckpt_surgery.cli.parameters.options import ReportFormat
from ckpt_surgery.cli.terminal.console import as_options
from ckpt_surgery.core.errors import Code, Problem
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.version import VERSION


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


def rendered(format: ReportFormat, problems: Sequence[ReportedProblem], exit_code: int) -> str:
    """Report on stdout, in this format, about a command that has ended; empty for `text`."""
    from ckpt_surgery.core.documents import json_text

    if format is ReportFormat.JSON:
        from ckpt_surgery.cli.documents.problems import ErrorDocument, error_of

        return json_text(ErrorDocument(error=error_of(problems, exit_code)))
    if format is ReportFormat.GITHUB:
        return workflow_commands(problems)
    if format is ReportFormat.SARIF:
        return json_text(sarif_document(problems, exit_code))
    return ""


def workflow_commands(problems: Iterable[ReportedProblem]) -> str:
    """A line for each problem, which GitHub shows beside the lines of a pull request.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
    """
    lines = []
    for one in problems:
        properties = {
            "file": one.path,
            "line": one.line,
            "col": one.column,
            "endColumn": one.end_column,
            "title": one.code or "ckpt-surgery",
        }
        given = {name: str(value) for name, value in properties.items() if value is not None}
        said = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in given.items())
        lines.append(f"::{one.level} {said}::{_escaped(one.text)}\n")
    return "".join(lines)


def _escaped(text: str, more: str = "") -> str:
    return text.translate({ord(one): f"%{ord(one):02X}" for one in f"%\r\n{more}"})


def sarif_document(problems: Sequence[ReportedProblem], exit_code: int) -> dict[str, Any]:
    """A log of one run, with a result for each problem and a rule for each code that they have.

    https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
    """
    codes = sorted({one.code for one in problems if one.code is not None})
    driver = {"name": "ckpt-surgery", "version": VERSION, "rules": [_rule(code) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": exit_code == 0, "exitCode": exit_code}],
        "results": [_result(one, codes) for one in problems],
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(code: Code) -> dict[str, Any]:
    from ckpt_surgery.report.problems import problem_sections

    section = problem_sections()[code]
    meaning, *_ = section.paragraphs
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in code.name.split("_")),
        "shortDescription": {"text": section.title},
        "fullDescription": {"text": meaning.text},
        "help": {"text": section.markdown, "markdown": section.markdown},
        "helpUri": section.address,
        "defaultConfiguration": {"level": "error"},
    }


def _result(one: ReportedProblem, codes: Sequence[Code]) -> dict[str, Any]:
    result: dict[str, Any] = {"level": one.level, "message": {"text": one.text}}
    if one.code is not None:
        result |= {"ruleId": one.code, "ruleIndex": codes.index(one.code)}
    if one.path is not None:
        uri = Path(one.path).as_uri() if Path(one.path).is_absolute() else quote(one.path)
        location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
        if one.line is not None:
            columns = {"startColumn": one.column, "endColumn": one.end_column}
            location["region"] = {"startLine": one.line, **columns}
        result["locations"] = [{"physicalLocation": location}]
    return result
