"""Problems as text: where, the line with a caret, what is wrong, what to do. And exit codes."""

import pickle

import pytest

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import (
    WINDOW,
    Code,
    FunctionError,
    KeyNotFound,
    Place,
    PlanError,
    Problem,
    SurgeryError,
    UsageError,
    add_sentence,
)


def test_a_problem_shows_its_line_with_a_caret_below() -> None:
    assert str(Problem("it is gone")) == "it is gone"
    assert str(Problem("it is gone", hint="Look elsewhere.")) == "it is gone\n  Look elsewhere."
    place = Place("r.yaml", "rules[3].value", 7, 10, "  value: tranpose(x)", 8)
    assert str(Problem("unknown function `tranpose`", place, "Did you mean `transpose`?")) == (
        "r.yaml:7:10  rules[3].value\n"
        "      value: tranpose(x)\n"
        "             ^^^^^^^^\n"
        "  unknown function `tranpose`\n"
        "  Did you mean `transpose`?"
    )
    assert str(Problem("it is empty", Place("r.yaml", "", 1, 1, ""))) == (
        "r.yaml:1:1\n    \n    ^\n  it is empty"
    )


@pytest.mark.parametrize("column", [1, 50, 101, 150, 5000, 9990, 10_000])
def test_of_a_long_line_the_part_around_the_problem_is_shown(column: int) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(10_000))
    shown = str(Problem("no", Place("r.yaml", "a", 1, column, text, 3)))
    _, line, carets, _ = (part.removeprefix("    ") for part in shown.split("\n"))
    assert len(line) <= WINDOW
    assert set(carets.strip()) == {"^"}
    underlined = line[carets.index("^") : len(carets)]
    assert underlined == text[column - 1 : column + 2]


@pytest.mark.parametrize("width", [0, -3, 1, 4, 99])
def test_carets_stay_below_the_line(width: int) -> None:
    shown = str(Problem("no", Place("r.yaml", "a", 1, 3, "abcdef", width)))
    carets = shown.split("\n")[2].strip()
    assert carets == "^" * max(1, min(width, 4))


def test_an_error_has_all_its_problems() -> None:
    place = Place("r.yaml", "a", 1, 1, "a: b")
    error = PlanError("one", Problem("two", place), hint="Do it.", code=Code.MIRROR)
    assert error.problems == (
        Problem("one", None, "Do it.", Code.MIRROR),
        Problem("two", place, code=Code.MIRROR),
    )
    assert str(error) == f"one\n  Do it.\n\n{Problem('two', place)}"


def test_a_problem_keeps_its_code_in_another_error_and_else_has_that_of_the_error() -> None:
    inner = FunctionError("one")
    assert [p.code for p in inner.problems] == [Code.ARGUMENTS]
    outer = PlanError(*inner.problems, "two", code=Code.HOOKS)
    assert [p.code for p in outer.problems] == [Code.ARGUMENTS, Code.HOOKS]


def test_exit_codes_are_those_of_the_documentation() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, SurgeryError)}
    assert codes == {
        "SurgeryError": 1,
        "FunctionError": 2,
        "UsageError": 2,
        "MissingLibraryError": 2,
        "TransformError": 2,
        "KeyNotFound": 2,
        "RecipeError": 2,
        "PlanError": 2,
        "OriginalMissingError": 2,
        "SourceError": 1,
        "SourcesChanged": 2,
        "DataError": 1,
        "OutOfMemoryError": 1,
        "VerificationError": 3,
        "DestinationError": 4,
        "StorageError": 5,
        "WorkersLost": 1,
        "Interrupted": 1,
    }


def test_a_missing_key_is_a_wrong_argument_and_a_key_error_with_the_nearest_key() -> None:
    error = KeyNotFound.among("params/kernl\x1b", ["params/kernel", "step"], "in `run`")
    assert isinstance(error, UsageError)
    assert isinstance(error, KeyError)
    assert [problem.code for problem in error.problems] == [Code.USAGE]
    text = r"no leaf and no subtree `params/kernl\x1b` in `run`; did you mean `params/kernel`?"
    assert (str(error), error.problems[0].message) == (text, text)
    assert str(KeyNotFound.among("x", ["params/kernel"])) == "no leaf and no subtree `x`"


def test_a_missing_key_takes_further_sentences_and_is_pickled() -> None:
    error = KeyNotFound("no `x`", hint="Look.")
    add_sentence(error, "and more")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "no `x`\n  Look.\n\nand more"
        assert [problem.hint for problem in one.problems] == ["Look.", None]
