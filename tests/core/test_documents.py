"""JSON documents: plain JSON in ASCII, whatever they are made of."""

import json
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.documents import json_text


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (0.1, 0.1),
        (-0.0, -0.0),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        ("é\u2028\0\U0001f600", "é\u2028\0\U0001f600"),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({"a": {1: math.nan}}, {"a": {"1": "NaN"}}),
        (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
        (Path("a/b"), "a/b"),
    ],
)
def test_any_value_becomes_plain_json(value, plain) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = json_text({"value": value})
    assert text.isascii()
    found = json.loads(text, parse_constant=refuse)["value"]
    assert found == plain
    assert type(found) is type(plain)


def test_a_document_ends_in_a_line_break() -> None:
    assert json_text({"a": [1]}) == '{\n "a": [\n  1\n ]\n}\n'
    assert json_text({"a": [1]}, indent=None) == '{"a": [1]}\n'
