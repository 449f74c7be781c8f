"""Problems for programs: as JSON, as GitHub's workflow commands, and as SARIF."""

import sys
from collections.abc import Iterable, Sequence

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem, as_report
from ckpt_surgery.cli.parameters.options import ReportFormat
from ckpt_surgery.core.errors import Problem


def rendered(format: ReportFormat, problems: Sequence[ReportedProblem], exit_code: int) -> str:
    """Report on stdout, in this format, about a command that has ended; empty for `text`."""
    if format is ReportFormat.JSON:
        from ckpt_surgery.cli.documents.problems import ErrorDocument, error_of
        from ckpt_surgery.core.documents import json_text

        return json_text(ErrorDocument(error=error_of(problems, exit_code)))
    if format is ReportFormat.GITHUB:
        return workflow_commands(problems)
    if format is ReportFormat.SARIF:
        from ckpt_surgery.cli.render.sarif import sarif_document
        from ckpt_surgery.core.documents import json_text

        return json_text(sarif_document(problems, exit_code))
    return ""


def write_failure(format: ReportFormat, problems: Iterable[Problem], exit_code: int) -> None:
    """Report the problems that end a command on stdout, beside the text that people read on stderr."""
    sys.stdout.write(rendered(format, [as_report(problem) for problem in problems], exit_code))
    sys.stdout.flush()


# --- workflow commands --------------------------------------------------------------------------------------


def workflow_commands(problems: Iterable[ReportedProblem]) -> str:
    """A line for each problem, which GitHub shows beside the lines of a pull request.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
    """
    return "".join(f"{_command(one)}\n" for one in problems)


def _command(one: ReportedProblem) -> str:
    properties = {
        "file": one.path,
        "line": one.line,
        "col": one.column,
        "endColumn": one.end_column,
        "title": one.code or "ckpt-surgery",
    }
    said = ",".join(
        f"{name}={_property(str(value))}" for name, value in properties.items() if value is not None
    )
    return f"::{one.level} {said}::{_data(one.text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
