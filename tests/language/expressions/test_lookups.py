"""`has`, `kind` and `get`: look-ups of what may be missing."""

from typing import Any

import pytest

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.language.expressions.configs import MISSING, Entries
from ckpt_surgery.language.expressions.lookups import get, has, kind, within
from ckpt_surgery.language.expressions.scope import Table
from tests.support.lazy_arrays import ArrayLeaves, lazy

X = lazy()
SOURCE = ArrayLeaves({"a/b": X})
CONFIG = Entries("config", {"a": 0, "none": None, "inner": {"b": [1, None]}})


@pytest.mark.parametrize(
    ("holder", "key", "expected"),
    [
        (SOURCE, "a/b", True),
        (SOURCE, "a/c", False),
        (CONFIG, "a", True),
        (CONFIG, "none", False),
        (CONFIG, "z", False),
        ([1, None], 0, True),
        ([1, None], 1, False),
        ([1, None], 2, False),
        (MISSING, "a", False),
    ],
)
def test_has_and_get_agree(holder: Any, key: Any, expected: bool) -> None:
    assert has(holder, key) is expected
    default = object()
    assert (get(holder, key, default) is not default) is expected


def test_get_gives_the_value_that_is_there() -> None:
    assert get(SOURCE, "a/b", 1) is X
    assert get(CONFIG, "a", 1) == 0


def test_kind_is_for_leaves() -> None:
    assert kind(SOURCE, "a/b") == "array"
    with pytest.raises(FunctionError, match="`source` has no leaf 'a/c'; did you mean `a/b`"):
        kind(SOURCE, "a/c")
    with pytest.raises(FunctionError, match="`kind` looks into a source or the target, not the entries of"):
        kind(CONFIG, "a")


def test_what_is_looked_into_may_be_missing() -> None:
    inner = within(CONFIG, "inner")
    assert has(inner, "b") is True
    assert within(inner, "b") == [1, None]
    assert within(CONFIG, "a") is MISSING
    assert within(MISSING, "a") is MISSING


def test_tables_are_asked_with_in() -> None:
    with pytest.raises(FunctionError, match="`has` looks into a source, the target or a config"):
        has(Table("t", {}), "a")
