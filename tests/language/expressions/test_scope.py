"""Values of expressions: how messages describe them, how large they can be, and what tables lack."""

from typing import Any

import pytest
import regex

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.expressions.scope import (
    MAX_BITS,
    MAX_LIST,
    MAX_STRING,
    Table,
    bounded,
    listed,
)

MATCH = regex.compile("a").fullmatch("a")
assert MATCH is not None


def test_values_are_bounded() -> None:
    for largest, larger, message in (
        (2**MAX_BITS - 1, 2**MAX_BITS, "the integer is too large: 129 bits, the limit is 128"),
        (1 - 2**MAX_BITS, -(2**MAX_BITS), "the integer is too large: 129 bits, the limit is 128"),
        ("a" * MAX_STRING, "a" * (MAX_STRING + 1), "the text is too long: 65537 characters"),
        ([0] * MAX_LIST, [0] * (MAX_LIST + 1), "the list is too long: 1000001 values"),
    ):
        assert bounded(largest) is largest
        with pytest.raises(FunctionError, match=message):
            bounded(larger)


def test_long_lists_are_refused_before_the_next_one_is_made() -> None:
    half = [0] * (MAX_LIST // 2)
    made = []

    def lists() -> Any:
        for number in range(5):
            made.append(number)
            yield half

    with pytest.raises(FunctionError, match="the lists are too long together"):
        listed(lists())
    assert made == [0, 1, 2]
    assert listed(iter([half, half, "x"])) == [half, half, "x"]


def test_a_missing_entry_says_what_a_param_takes() -> None:
    table = Table("order", {"half": 1, "interleaved": 2}, {"layers": 2, "rope": "foo"})
    with pytest.raises(FunctionError, match="table `order` has no entry 'foo'") as caught:
        table.entry("foo")
    assert caught.value.problems[0].hint == "The param `rope` takes one of these: 'half', 'interleaved'."
