"""Unquoted scalars: their values, and those that YAML readers disagree about."""

from typing import Any

import pytest

from ckpt_surgery.language.yaml_scalars import MAX_NUMBER, Disputed, plain_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("null", None),
        ("true", True),
        ("false", False),
        ("0", 0),
        ("-12", -12),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        ("text", "text"),
        ("1.2.3", "1.2.3"),
        ("layer_1", "layer_1"),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = plain_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("no", "write it in quotes, or true/false"),
        ("Yes", "write it in quotes, or true/false"),
        ("True", "write it in quotes, or in lower case"),
        ("~", "write it in quotes, or null"),
        ("010", "write it in quotes, or without leading zeros"),
        ("0x10", "write it in quotes, or in decimal"),
        ("1_000", "write it in quotes, or as a plain decimal number such as 0.5"),
        (".5", "write it in quotes, or as a plain decimal number such as 0.5"),
        (".inf", "write it in quotes"),
        ("1:30", "write it in quotes"),
        ("2024-01-31", "write it in quotes"),
    ],
)
def test_what_readers_disagree_about(text: str, advice: str) -> None:
    assert plain_value(text) == Disputed(
        f"`{text}` means different things to different YAML readers; {advice}"
    )


def test_numbers_have_limits() -> None:
    assert plain_value("1" * MAX_NUMBER) == int("1" * MAX_NUMBER)
    assert plain_value("1" * (MAX_NUMBER + 1)) == Disputed(
        "a number of 41 characters is too long; the limit is 40"
    )
    assert plain_value("1e999") == Disputed("1e999 is beyond what a float holds")
