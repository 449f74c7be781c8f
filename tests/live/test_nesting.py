"""Keys become dicts and lists where no target gives a structure."""

from ckpt_surgery.core.keys import Key
from ckpt_surgery.live.nesting import nested


def key(text: str, *indices: int) -> Key:
    names = tuple(text.split("/"))
    return Key(names, tuple(i in indices for i in range(len(names))))


def test_dicts_and_lists() -> None:
    found = nested([(key("a/b"), 1), (key("a/l/1", 2), 3), (key("a/l/0", 2), 2), (key("c/0"), 4)])
    assert found == {"a": {"b": 1, "l": [2, 3]}, "c": {"0": 4}}


def test_lists_in_lists_and_at_the_root() -> None:
    assert nested([(key("0/1", 0, 1), "b"), (key("0/0", 0, 1), "a"), (key("1", 0), "c")]) == [["a", "b"], "c"]


def test_lists_of_more_than_ten() -> None:
    assert nested([(key(f"l/{i}", 1), i) for i in range(12)]) == {"l": list(range(12))}


def test_a_single_leaf_is_the_tree() -> None:
    assert nested([(Key((), ()), 7)]) == 7


def test_names_that_contain_the_separator() -> None:
    assert nested([(Key(("a/b", "c"), (False, False)), 1)]) == {"a/b": {"c": 1}}
