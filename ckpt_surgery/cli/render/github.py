"""Problems as workflow commands of GitHub Actions, which shows them beside the lines of a pull request.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Iterable

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem


def workflow_commands(problems: Iterable[ReportedProblem]) -> str:
    """A line for each problem."""
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
