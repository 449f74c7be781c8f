"""Entries of jax's paths as components of keys; tests/live/test_tree.py compares whole trees with Orbax."""

from typing import Any

import jax
import pytest
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from ckpt_surgery.core.keys import Key
from ckpt_surgery.live.paths import key_of


@pytest.mark.parametrize(
    ("entry", "name", "is_index"),
    [
        (DictKey("a"), "a", False),
        (DictKey("a/b.c"), "a/b.c", False),
        (DictKey(1), "1", False),  # as NNX has for its lists
        (GetAttrKey("value"), "value", False),
        (SequenceKey(10), "10", True),
        (FlattenedIndexKey(2), "2", True),
        ("other", "other", False),
    ],
)
def test_entries(entry: Any, name: str, is_index: bool) -> None:
    assert key_of([entry]) == Key((name,), (is_index,))


def test_none_can_be_a_key_of_a_dict() -> None:
    ((path, _),) = jax.tree_util.tree_flatten_with_path({None: 1})[0]
    assert key_of(path) == Key(("None",), (False,))


def test_paths_of_any_length() -> None:
    assert key_of(()) == Key((), ())
    found = key_of((GetAttrKey("layers"), SequenceKey(0), DictKey("w")))
    assert found == Key(("layers", "0", "w"), (False, True, False))
