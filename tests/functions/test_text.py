"""Functions of text and numbers, and their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.text import int_, len_, lower, range_, replace, require, str_, upper
from ckpt_surgery.language.expressions.calls import call as call_of
from tests.support.effort import examples


def test_values() -> None:
    for found, expected in (
        (int_("12"), 12),
        (int_("-007"), -7),
        (int_(-2.7), -2),
        (str_(12), "12"),
        (str_(None), "None"),
        (lower("QKV"), "qkv"),
        (upper("straße"), "STRASSE"),
        (len_("abc"), 3),
        (replace("a_b_c", "_", ""), "abc"),
        (replace("aaa", "aa", "b"), "ba"),
    ):
        assert found == expected
        assert type(found) is type(expected)


@examples(60)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-4, 4).filter(bool))
def test_range_is_pythons(start: int, stop: int, step: int) -> None:
    assert range_(start, stop, step) == tuple(range(start, stop, step))


def test_refusals() -> None:
    for call, message in (
        (lambda: int_("1x"), "`int` is for numbers and texts of integers, not '1x'"),
        (lambda: int_("9" * 5000), "999..."),
        (lambda: int_(float("inf")), "texts of integers, not inf"),
        (lambda: call_of(int_, ([1],), {}, ""), "`x` of `int` has to be a text or a number, not [1]"),
        (lambda: call_of(lower, ((1, [2]),), {}, ""), "has to be a text, not a list of 2 values"),
        (lambda: call_of(range_, (0, 2.5), {}, ""), "has to be an integer or None, not 2.5"),
        (lambda: call_of(str_, (10**5000,), {}, ""), "`str` raised ValueError: Exceeds the limit"),
        (lambda: len_(3), "`len` is for text, lists and parts of a config, not 3"),
        (lambda: range_(0, 3, 0), "`range`: the step cannot be 0"),
        (lambda: range_(0, -(10**7), -9), "`range` would give more than 1,000,000 numbers"),
        (lambda: replace("a", "", "b"), "the text to be replaced is empty"),
        (lambda: call_of(replace, ("a", "a", None), {}, ""), "`new` of `replace` has to be a text, not None"),
    ):
        with pytest.raises(FunctionError) as caught:
            call()
        assert message in str(caught.value)


def test_bounds_are_exact() -> None:
    assert len(range_(1_000_000)) == 1_000_000
    text = "a" * 65536
    assert call_of(replace, (text, "a", "b"), {}, "") == "b" * 65536
    assert call_of(upper, (text,), {}, "") == "A" * 65536
    with pytest.raises(FunctionError, match=r"65,536"):
        replace(text + "b", "b", "bb")


def test_require() -> None:
    assert require(True, "never said") is True
    with pytest.raises(FunctionError, match=r"^say how many$"):
        require(False, "say how many")
    with pytest.raises(FunctionError, match="`condition` of `require` has to be True or False, not 3"):
        call_of(require, (3, "a number is no condition"), {}, "")
