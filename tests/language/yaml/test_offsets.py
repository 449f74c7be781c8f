"""Offsets of a scalar's characters in the text of the document."""

import pytest
import yaml

from ckpt_surgery.language.yaml.offsets import paired, value_offsets


@pytest.mark.parametrize(
    ("raw", "style", "offsets"),
    [
        ("abc", "", [0, 1, 2, 3]),
        ("'a''b'", "'", [1, 2, 4, 5]),
        (r'"a\tb"', '"', [1, 2, 4, 5]),
        (r'"\u00e9x"', '"', [1, 7, 8]),
        (r'"\ud83d\ude00x"', '"', [1, 13, 14]),
        ("a\n  b", "", [0, 1, 4, 5]),
        ("|\n ab\n cd", "|", [3, 4, 5, 7, 8, 9]),
    ],
)
def test_offsets(raw: str, style: str, offsets: list[int]) -> None:
    value = paired(yaml.safe_load(raw))
    assert value_offsets(raw, style, value) == offsets
    assert len(offsets) == len(value) + 1


def test_text_that_is_not_the_value_gives_nothing() -> None:
    assert value_offsets("abc", "", "abd") is None
    assert value_offsets("abc", "", "abcd") is None


def test_surrogates() -> None:
    assert paired("a\ud83d\ude00") == "a\N{GRINNING FACE}"
    assert paired("a\ud83d") == "a\N{REPLACEMENT CHARACTER}"
    assert paired("plain") == "plain"
