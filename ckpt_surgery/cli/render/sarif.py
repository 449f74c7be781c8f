"""Problems as a SARIF log, version 2.1.0, which code scanning services and editors read.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.report.problems import problem_sections

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(problems: Sequence[ReportedProblem], exit_code: int) -> dict[str, Any]:
    """A log of one run, with a result for each problem and a rule for each code that they have."""
    codes = sorted({one.code for one in problems if one.code is not None})
    driver = {"name": "ckpt-surgery", "version": VERSION, "rules": [_rule(code) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": exit_code == 0, "exitCode": exit_code}],
        "results": [_result(one, codes) for one in problems],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: Code) -> dict[str, Any]:
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
        result["locations"] = [{"physicalLocation": _location(one, one.path)}]
    return result


def _location(one: ReportedProblem, path: str) -> dict[str, Any]:
    uri = Path(path).as_uri() if Path(path).is_absolute() else quote(path)
    location: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if one.line is not None:
        region = {"startLine": one.line, "startColumn": one.column, "endColumn": one.end_column}
        location["region"] = region
    return location
