"""What names in expressions stand for."""

import pytest
import regex

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.expressions.scope import ExpressionError, Groups, Table, looked_up
from tests.support.lazy_arrays import ArrayLeaves, lazy


def message(error: pytest.ExceptionInfo[FunctionError]) -> tuple[str, str | None]:
    (problem,) = error.value.problems
    return problem.message, problem.hint


def test_a_shifted_error_keeps_its_length() -> None:
    error = ExpressionError("no", 2, 5, "try yes").shifted(10)
    assert (error.message, error.start, error.end, error.hint) == ("no", 12, 15, "try yes")
    assert error.exit_code == 2


def test_the_default_entry_of_a_table_stands_for_all_others() -> None:
    table = Table("t", {"q": 1, "_": 9})
    assert (table.entry("q"), table.entry("k"), table.entry(7)) == (1, 9, 9)
    assert not table.has("k")
    assert table.has("_")


def test_a_missing_entry_names_a_close_one() -> None:
    with pytest.raises(FunctionError) as caught:
        Table("t", {"query": 1}).entry("qury")
    assert message(caught) == (
        "table `t` has no entry 'qury'; did you mean `query`?",
        "It has 'query'. Add this one, or an entry `_` that stands for all others.",
    )


@pytest.mark.parametrize(
    ("entries", "key", "says", "hint"),
    [
        ({0: 1}, "0", "has the entry 0 as an integer, and '0' is text", "Look up int(…)"),
        ({"0": 1, "_": 2}, 0, "has the entry '0' as text, and 0 is an integer", "Look up str(…)"),
    ],
)
def test_text_and_integers_are_not_confused(
    entries: dict[str | int, int], key: str | int, says: str, hint: str
) -> None:
    for asked in (Table("t", entries).entry, Table("t", entries).has):
        with pytest.raises(FunctionError) as caught:
            asked(key)
        text, given = message(caught)
        assert says in text
        assert (given or "").startswith(hint)


def test_a_group_that_took_no_part_is_empty() -> None:
    match = regex.compile("(a)|(?P<b>b)").fullmatch("a")
    assert match is not None
    groups = Groups(match)
    assert [groups.text(0), groups.text(1), groups.text("b")] == ["a", "a", ""]
    for key in (3, "c", True, None):
        with pytest.raises(FunctionError, match="the regular expression has no group"):
            groups.text(key)


def test_leaves_are_found_or_a_close_key_is_named() -> None:
    x = lazy()
    leaves = ArrayLeaves({"a/kernel": x})
    assert looked_up(leaves, "a/kernel", leaves.lookup) is x
    assert looked_up(leaves, "a/kernel", leaves.kind) == "array"
    for look in (leaves.lookup, leaves.kind):
        with pytest.raises(FunctionError) as caught:
            looked_up(leaves, "a/kernl", look)
        assert message(caught)[0] == "`source` has no leaf 'a/kernl'; did you mean `a/kernel`?"


def test_a_param_that_no_entry_has_is_not_to_be_added_to_the_table() -> None:
    with pytest.raises(FunctionError) as caught:
        Table("order", {"half": 1, "interleaved": 2}, {"layers": 2, "rope": "foo"}).entry("foo")
    assert message(caught)[1] == "The param `rope` takes one of these: 'half', 'interleaved'."
