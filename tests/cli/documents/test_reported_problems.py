"""Problems as JSON, as GitHub's workflow commands and as SARIF, of commands that fail and of `lint`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import NoSuchOption
from safetensors.numpy import save_file

from ckpt_surgery.api import inspecting
from ckpt_surgery.cli.documents.reported_problems import (
    ReportedProblem,
    as_report,
    sarif_document,
    workflow_commands,
)
from ckpt_surgery.cli.parameters.options import ReportFormat, requested_format
from ckpt_surgery.core.errors import Code, Place, Problem
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.report.problems import problem_sections
from tests.support.command_line import run

BAD = "version: 1\nrules:\n  - {mtach: a}\n  - {match: a, to: 'a//b'}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "ok.yaml").write_text("version: 1\n")
    save_file({"a": np.zeros(3, np.float32)}, tmp_path / "m.safetensors")
    return tmp_path


def problem(code: str, message: str, *place: Any, hint: str | None = None) -> dict[str, Any]:
    path, line, column = place or (None, None, None)
    return {"code": code, "message": message, "hint": hint, "path": path, "line": line, "column": column}


OF_BAD = [
    problem("CS010", "unknown field `mtach`; did you mean `match`?", "bad.yaml", 3, 6),
    problem("CS023", "the key has an empty component here", "bad.yaml", 4, 23),
]
NO_SUCH_OPTION = NoSuchOption("--zzz").format_message()  # other versions of click word it in other ways
MISSING = [problem("CS070", "m.npz does not exist", hint="Check the path.")]


@pytest.mark.parametrize(
    ("line", "exit_code", "problems"),
    [
        ("plan bad.yaml m.safetensors --json", 2, OF_BAD),
        ("plan bad.yaml m.safetensors --json - --detailed-exitcode", 1, OF_BAD),
        ("plan bad.yaml m.safetensors --report-format=json", 2, OF_BAD),
        ("apply bad.yaml m.safetensors out.npz --json=-", 2, OF_BAD),
        ("inspect m.npz --json", 2, MISSING),
        ("diff m.npz m.npz --json", 2, MISSING),
        ("verify m.npz --json", 2, MISSING),
        ("convert m.npz out --json", 2, MISSING),
        ("convert --json --zzz", 2, [problem("CS070", NO_SUCH_OPTION)]),
        ("nope --json", 2, [problem("CS070", "Not a command: `nope`")]),
    ],
)
def test_with_json_an_error_is_a_document_on_stdout(
    here: Path, line: str, exit_code: int, problems: list[dict[str, Any]]
) -> None:
    done = run(*line.split())
    assert done.exit_code == exit_code
    assert json.loads(done.stdout) == {"schema": 1, "error": {"exit_code": exit_code, "problems": problems}}
    assert "Error: " in done.stderr


@pytest.mark.parametrize(
    ("error", "exit_code", "code", "message"),
    [
        (ZeroDivisionError("by zero"), 1, "CS078", "internal error: ZeroDivisionError: by zero"),
        (KeyboardInterrupt(), 130, "CS077", "interrupted"),
    ],
)
def test_a_bug_and_an_interruption_are_documents_as_well(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, exit_code: int, code: str, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(inspecting, "inspect", fail)
    done = run("inspect", "m.safetensors", "--json")
    assert done.exit_code == exit_code
    (told,) = json.loads(done.stdout)["error"]["problems"]
    assert (told["code"], told["message"]) == (code, message)


def test_without_json_and_with_a_file_stdout_has_nothing(here: Path) -> None:
    for options in ([], ["--json", "out.json"]):
        done = run("plan", "bad.yaml", "m.safetensors", *options)
        assert (done.exit_code, done.stdout) == (2, "")
    assert not (here / "out.json").exists()


def test_lint_as_json(here: Path) -> None:
    done = run("lint", "bad.yaml", "ok.yaml", "gone.yaml", "--format", "json")
    gone = problem("CS001", "recipe not found: gone.yaml", "gone.yaml", None, None)
    assert (done.exit_code, done.stderr) == (2, "")
    assert json.loads(done.stdout) == {
        "schema": 1,
        "recipes": ["bad.yaml", "ok.yaml", "gone.yaml"],
        "error": {"exit_code": 2, "problems": [*OF_BAD, gone]},
    }
    done = run("lint", "ok.yaml", "--report-format", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"schema": 1, "recipes": ["ok.yaml"]})


FORGOTTEN = """version: 1
rules:
- {match: opt_state/0/count, to: opt_state/count}
- {match: 'params/a(.*)', to: 'params/b\\1'}
"""


def test_warnings_of_lint_are_in_every_format(here: Path) -> None:
    """They are no errors: the exit code stays 0."""
    (here / "forgets.yaml").write_text(FORGOTTEN)
    done = run("lint", "ok.yaml", "forgets.yaml", "--format", "json")
    document = json.loads(done.stdout)
    (entry,) = document["warnings"]
    assert (done.exit_code, "error" in document) == (0, False)
    assert (entry["path"], entry["line"], entry["column"]) == ("forgets.yaml", 4, 27)
    beside = json.loads(run("lint", "bad.yaml", "forgets.yaml", "--format", "json").stdout)
    assert (beside["warnings"], beside["error"]["exit_code"]) == ([entry], 2)
    done = run("lint", "forgets.yaml", "--format", "github")
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    assert done.stdout.startswith("::warning file=forgets.yaml,line=4,col=27,")
    (log,) = json.loads(run("lint", "forgets.yaml", "--format", "sarif").stdout)["runs"]
    assert log["invocations"][0]["executionSuccessful"]
    assert [result["level"] for result in log["results"]] == ["warning"]


GITHUB = """\
::error file=bad.yaml,line=3,col=6,endColumn=11,title=CS010::unknown field `mtach`; did you mean `match`?
::error file=bad.yaml,line=4,col=23,endColumn=24,title=CS023::the key has an empty component here
"""


def test_problems_as_workflow_commands(here: Path) -> None:
    done = run("lint", "bad.yaml", "ok.yaml", "--format", "github")
    assert (done.exit_code, done.stdout, done.stderr) == (2, GITHUB, "")
    assert run("lint", "ok.yaml", "--format", "github").stdout == ""
    done = run("plan", "bad.yaml", "m.safetensors", "--report-format", "github")
    assert (done.exit_code, done.stdout) == (2, GITHUB)
    assert done.stderr.startswith("Error: bad.yaml:3:6")


def test_a_plan_is_printed_and_its_warnings_are_workflow_commands(here: Path) -> None:
    (here / "odd.yaml").write_text("version: 1\nrules: [{match: '(?P<n>a)', to: 'params/{n}'}]\n")
    text = run("plan", "odd.yaml", "m.safetensors").stdout
    done = run("plan", "odd.yaml", "m.safetensors", "--report-format", "github")
    assert done.exit_code == 0
    shown, _, commands = done.stdout.partition("::warning ")
    assert shown == text
    assert commands.startswith("file=odd.yaml,title=ckpt-surgery::")


def test_problems_as_sarif(here: Path) -> None:
    done = run("lint", "bad.yaml", "--format", "sarif")
    assert (done.exit_code, done.stderr) == (2, "")
    (log,) = json.loads(done.stdout)["runs"]
    assert [result["ruleId"] for result in log["results"]] == ["CS010", "CS023"]
    done = run("plan", "bad.yaml", "m.safetensors", "--report-format", "sarif")
    assert json.loads(done.stdout)["runs"] == [log]
    done = run("plan", "ok.yaml", "m.safetensors", "--report-format", "sarif")
    (log,) = json.loads(done.stdout)["runs"]
    assert (done.exit_code, log["results"], log["invocations"][0]["exitCode"]) == (0, [], 0)
    assert done.stderr.startswith("recipe ")


def test_the_format_of_a_report(here: Path) -> None:
    plan = ("plan", "ok.yaml", "m.safetensors")
    assert run(*plan, "--report-format", "json").stdout == run(*plan, "--json").stdout
    both = run(*plan, "--report-format", "sarif", "--json")
    assert both.exit_code == 2
    assert both.stderr == (
        "Error: --json and --report-format sarif would both be written to stdout\n"
        "  Name a file for one of them: --json FILE.\n"
    )
    of_checkpoints = run(*plan, "--format", "github")
    assert of_checkpoints.exit_code == 2
    assert "`github` is the format of a report: --report-format github" in of_checkpoints.stderr


@pytest.mark.parametrize(
    ("arguments", "format"),
    [
        ("plan r.yaml src", ReportFormat.TEXT),
        ("plan r.yaml src --json", ReportFormat.JSON),
        ("plan --json -q r.yaml src", ReportFormat.JSON),
        ("plan r.yaml src --json out.json", ReportFormat.TEXT),  # the document's own place
        ("plan r.yaml src --json=out.json", ReportFormat.TEXT),
        ("plan r.yaml src -- --json", ReportFormat.TEXT),  # the name of a file
        ("lint r.yaml --format sarif", ReportFormat.SARIF),
        ("lint r.yaml --format=github", ReportFormat.GITHUB),
        ("plan r.yaml src --format orbax", ReportFormat.TEXT),
    ],
)
def test_what_a_command_line_asks_for(arguments: str, format: ReportFormat) -> None:
    assert requested_format(arguments.split()) is format


def test_a_line_without_a_command_shows_the_help() -> None:
    assert requested_format([]) is ReportFormat.TEXT
    assert run().output.startswith("Usage: ckpt-surgery [OPTIONS] COMMAND")


def test_texts_are_printable_and_hints_name_options() -> None:
    place = Place("r.yaml", "rules[0]", 3, 5, "text", 0)
    hinted = Problem("a\nb\x1b", place, "Say `allow_hooks=True`.", Code.HOOKS)
    assert as_report(hinted) == ReportedProblem(
        "a\\nb\\x1b", Code.HOOKS, "Say `--allow-hooks`.", "r.yaml", 3, 5, 6
    )
    assert as_report(Problem("it broke"), "r.yaml") == ReportedProblem(
        "it broke", Code.INTERNAL, None, "r.yaml"
    )


# --- workflow commands -----------------------------------------------------------------------------------


def test_workflow_commands_have_place_and_code_and_are_escaped() -> None:
    problems = [
        ReportedProblem("it is wrong", Code.TEMPLATE, "Make it right.", "r.yaml", 3, 5, 9),
        ReportedProblem("50%, a: b\r\n::error::c", Code.YAML, None, "a,b:c%\n.yaml"),
        ReportedProblem("beware"),
        ReportedProblem("again", path="r.yaml"),
    ]
    assert workflow_commands(problems).splitlines() == [
        "::error file=r.yaml,line=3,col=5,endColumn=9,title=CS023::it is wrong%0AMake it right.",
        "::error file=a%2Cb%3Ac%25%0A.yaml,title=CS002::50%25, a: b%0D%0A::error::c",
        "::warning title=ckpt-surgery::beware",
        "::warning file=r.yaml,title=ckpt-surgery::again",
    ]


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
    assert run["invocations"] == [{"executionSuccessful": exit_code == 0, "exitCode": exit_code}]
    return dict(run)


def test_the_program_and_the_rules_that_are_broken() -> None:
    assert run_of([], 0)["results"] == []
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
    rules, results = run["tool"]["driver"]["rules"], run["results"]
    texts = ["second\nDo it.", "first", "of no place", "a warning"]
    assert [result["message"]["text"] for result in results] == texts
    assert [result["level"] for result in results] == ["error", "error", "error", "warning"]
    assert [result.get("ruleId") for result in results] == ["CS023", "CS002", "CS023", None]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in results if "ruleId" in r)


def test_places_are_uris_and_regions() -> None:
    region = {"startLine": 3, "startColumn": 5, "endColumn": 9}
    second, first, nowhere, warning = run_of(PROBLEMS)["results"]
    assert second["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "a%20b/r.yaml"}, "region": region}}
    ]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///abs/r.yaml"}
    assert "locations" not in nowhere
    assert warning["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "r.yaml"}}}]
