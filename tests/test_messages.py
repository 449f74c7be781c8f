"""The wording of messages: each is the one in tests/data/messages, which `make messages` renews."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import Code
from tests.support.messages import PAGE, Case, all_cases, prepare, renewed

pytestmark = pytest.mark.each

CASES = all_cases()
OF_RECIPES = [case for case in CASES if case.is_recipe]
OF_PAGE = [case for case in CASES if case.file == PAGE]


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The files that commands and calls name, in the working directory."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("messages"))
    prepare(Path())
    yield
    os.chdir(before)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}: {case.title}")
def test_every_message_is_the_one_that_is_promised(case: Case) -> None:
    assert case.said() == case.promised, "run `make messages`, and review what has changed"


@pytest.mark.parametrize("case", OF_RECIPES, ids=lambda case: f"{case.file}: {case.title}")
def test_every_problem_of_a_recipe_points_into_it(case: Case) -> None:
    """Each has file, line, column, the line itself and a caret under what is meant."""
    error = case.error()
    assert error.exit_code == (1 if "values" in case.sections else 2)
    for problem in error.problems:
        place = problem.place
        # Of what the command line says, and of leaves that no rule speaks of, there is no line.
        assert (place is None) == (case.file == "no-rule"), problem.message
        if place is None:
            continue
        assert place.line is not None
        assert case.given.splitlines()[place.line - 1] == place.text
        assert 1 <= place.column <= place.column + place.width - 1 <= len(place.text)


UNTRIED = {
    Code.NO_MEMORY,
    Code.VERIFICATION,
    Code.STORAGE,
    Code.INTERRUPTED,
    Code.INTERNAL,
    Code.SLOW_PATTERN,
}
"""Need a disk that fails or is full, a small machine, a signal, or a bug; or have a time in their message."""


@pytest.mark.parametrize("case", OF_PAGE, ids=lambda case: case.title)
def test_an_example_of_the_page_of_problems_has_its_problem_and_no_other(case: Case) -> None:
    assert case.codes() == {case.title}


def test_every_example_is_tried_and_no_two_cases_have_the_same_title() -> None:
    assert [case.title for case in OF_PAGE] == [code for code in Code if code not in UNTRIED]
    titles = [case.title for case in CASES]
    assert len(set(titles)) == len(titles) > 90


def test_renewing_changes_nothing_where_nothing_was_reworded() -> None:
    for case in CASES[:3]:
        assert f"--- says\n{case.promised}\n" in renewed(case)
