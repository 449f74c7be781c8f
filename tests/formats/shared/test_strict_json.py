"""JSON that any reader understands alike."""

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.strict_json import strict_json


def test_an_object() -> None:
    assert strict_json('{"a": {"b": [1, null]}, "é": 2}'.encode()) == {"a": {"b": [1, None]}, "é": 2}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not valid JSON"),
        (b'{"a": 1', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"\\ud800": 1}', "not valid JSON"),  # half of a surrogate pair
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "a JSON list where an object belongs"),
        (b'{"a": 1, "b": 2, "a": 1}', "the name `a` comes twice"),
        (b'{"x": [{"b": 1, "b": 2}]}', "the name `b` comes twice"),
    ],
)
def test_what_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        strict_json(text)
