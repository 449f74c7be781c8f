"""Words for messages: numbers of bytes, lists of names, text that is safe to print."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest

from ckpt_surgery.core.text import (
    abridged,
    brief,
    bytes_text,
    count_text,
    did_you_mean,
    few,
    seconds_text,
    shortened,
    shown,
)

WORDS: dict[Callable[[Any], str], dict[Any, str]] = {
    bytes_text: {
        0: "0 B",
        999: "999 B",
        1000: "0.98 KiB",
        1536: "1.50 KiB",
        10 << 10: "10.0 KiB",
        100 << 10: "100 KiB",
        1023 << 10: "1.00 MiB",
        3 << 30: "3.00 GiB",
        5 << 50: "5120 TiB",
    },
    seconds_text: {0.421: "0.42 s", 12.34: "12.3 s", 59.99: "60.0 s", 200: "3 min 20 s", 7500: "2 h 05 min"},
    count_text: {
        0: "0",
        999: "999",
        1000: "1.00K",
        98_304: "98.3K",
        999_600: "1.00M",
        7 * 10**16: "70000T",
    },
    shown: {
        "a/b ö 漢 😀": "a/b ö 漢 😀",
        "\x1b[31m": "\\x1b[31m",
        "\n\t\x7f\x85": "\\n\\t\\x7f\\x85",
        "a\u202eb\u200bc": "a\\u202eb\\u200bc",  # right to left, and of no width
        "\ud800\ue000": "\\ud800\\ue000",  # half a character, and a private one
    },
}


@pytest.mark.each
@pytest.mark.parametrize("words", WORDS)
def test_words_for_numbers_and_texts(words: Callable[[Any], str]) -> None:
    assert {given: words(given) for given in WORDS[words]} == WORDS[words]


def test_few() -> None:
    assert [few(names, 3) for names in ([], [*"abc"], [*"abcd"])] == ["", "a, b, c", "a, b, c, …"]
    assert few(["a", "b"], 1) == "a, …"
    assert few(["\x1b[2J"], 3) == "\\x1b[2J"  # nothing that a terminal would act on


def test_did_you_mean() -> None:
    assert did_you_mean("tranpose", ["stack", "transpose"]) == "; did you mean `transpose`?"
    assert did_you_mean("x", ["stack", "transpose"]) == ""


def test_shortened_keeps_both_ends() -> None:
    assert [shortened("abcdefg", most) for most in (7, 6, 5, 1)] == ["abcdefg", "abc…fg", "ab…fg", "…"]


@dataclass(frozen=True)
class Held:
    text: str
    inside: Any = None
    left_out: int = field(default=0, repr=False)

    __repr__ = brief


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Held("a"), "Held(text='a', inside=None)"),
        (Held("a", tuple(range(9))), "Held(text='a', inside=(0, 1, 2, 3, ...))"),
        (
            Held("a", MappingProxyType({i: i for i in range(9)})),
            "Held(text='a', inside={0: 0, 1: 1, 2: 2, 3: 3, ...})",
        ),
        (Held("a", Held("b", Held("c", Held("d")))), None),
        (Held("x" * 100_000, [Held("y" * 100_000)] * 1000), None),
        (Held("\x1b\n\u202e"), None),
    ],
)
def test_brief_is_one_short_line(value: Held, shown: str | None) -> None:
    assert len(repr(value)) <= 400
    assert repr(value).isprintable()
    assert repr(value).startswith("Held(text='")
    assert shown is None or repr(value) == shown


def test_brief_goes_no_deeper_than_three_levels() -> None:
    value = Held("a")
    for _ in range(2000):
        value = Held("b", value)
    assert repr(value) == "Held(text='b', inside=Held(text='b', inside=Held(text='b', inside=Held(...))))"


def test_a_value_in_a_message_has_no_address() -> None:
    given = [test_brief_is_one_short_line, "a".removesuffix, object()]
    assert [abridged(value).partition(" of ")[0] for value in given] == [
        "<function test_brief_is_one_short_line>",
        "<built-in method removesuffix",
        "<object object>",
    ]
    assert abridged("a" * 99) == f"'{'a' * 56}..."
