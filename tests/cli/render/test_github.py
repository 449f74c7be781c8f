"""Workflow commands of GitHub Actions: one line each, whatever their texts contain."""

from ckpt_surgery.cli.documents.reported_problems import ReportedProblem
from ckpt_surgery.cli.render.github import workflow_commands
from ckpt_surgery.core.problem_codes import Code


def test_an_error_has_its_place_and_its_code_as_title() -> None:
    one = ReportedProblem("it is wrong", Code.TEMPLATE, "Make it right.", "r.yaml", 3, 5, 9)
    assert workflow_commands([one]) == (
        "::error file=r.yaml,line=3,col=5,endColumn=9,title=CS023::it is wrong%0AMake it right.\n"
    )


def test_what_has_a_meaning_is_escaped_in_texts_and_in_properties() -> None:
    one = ReportedProblem("50%, a: b\r\n::error::c", Code.YAML, None, "a,b:c%\n.yaml")
    assert workflow_commands([one]) == (
        "::error file=a%2Cb%3Ac%25%0A.yaml,title=CS002::50%25, a: b%0D%0A::error::c\n"
    )


def test_a_warning_has_no_code() -> None:
    assert workflow_commands([ReportedProblem("beware"), ReportedProblem("again", path="r.yaml")]) == (
        "::warning title=ckpt-surgery::beware\n::warning file=r.yaml,title=ckpt-surgery::again\n"
    )
