"""SARIF 2.1.0: the members that its schema requires, and what a service shows."""

from typing import Any

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem
from ckpt_surgery.cli.render.sarif import sarif_document
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.report.problems import problem_sections

PROBLEMS = [
    ReportedProblem("second", Code.TEMPLATE, "Do it.", "a b/r.yaml", 3, 5, 9),
    ReportedProblem("first", Code.YAML, None, "/abs/r.yaml", 1, 1, 2),
    ReportedProblem("of no place", Code.TEMPLATE),
    ReportedProblem("a warning", path="r.yaml"),
]


def run_of(problems: list[ReportedProblem], exit_code: int = 2) -> dict[str, Any]:
    document = sarif_document(problems, exit_code)
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("/sarif-2.1.0.json")
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


def test_the_program_and_the_rules_that_are_broken() -> None:
    driver = run_of(PROBLEMS)["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("ckpt-surgery", VERSION)
    assert [(rule["id"], rule["name"]) for rule in driver["rules"]] == [
        ("CS002", "Yaml"),
        ("CS023", "Template"),
    ]
    rule, section = driver["rules"][0], problem_sections()[Code.YAML]
    meaning = next(section.paragraphs).text
    assert (rule["shortDescription"], rule["fullDescription"]) == ({"text": section.title}, {"text": meaning})
    assert rule["help"]["text"] == rule["help"]["markdown"] == section.markdown
    assert rule["helpUri"].endswith("/problems.html#cs002-the-recipe-is-not-valid-yaml")


def test_every_result_has_a_message_and_its_rule() -> None:
    run = run_of(PROBLEMS)
    rules = run["tool"]["driver"]["rules"]
    results = run["results"]
    assert [result["message"]["text"] for result in results] == [
        *("second\nDo it.", "first", "of no place", "a warning")
    ]
    assert [result["level"] for result in results] == ["error", "error", "error", "warning"]
    assert [result.get("ruleId") for result in results] == ["CS023", "CS002", "CS023", None]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in results if "ruleId" in r)


def test_places_are_uris_and_regions() -> None:
    second, first, nowhere, warning = run_of(PROBLEMS)["results"]
    assert second["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "a%20b/r.yaml"},
                "region": {"startLine": 3, "startColumn": 5, "endColumn": 9},
            }
        }
    ]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///abs/r.yaml"}
    assert "locations" not in nowhere
    assert warning["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "r.yaml"}}}]


def test_whether_the_run_succeeded() -> None:
    assert run_of([], 0)["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]
    assert run_of(PROBLEMS)["invocations"] == [{"executionSuccessful": False, "exitCode": 2}]
    assert run_of([], 0)["results"] == []
