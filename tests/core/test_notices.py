"""Sentences about leaves, folded."""

from ckpt_surgery.core.folding import Notice, few_keys, sentences


def test_the_same_of_many_leaves_is_said_once() -> None:
    notices = [
        Notice("rules[0] makes ", f"layers_{i}/mlp/{name}", ", oh") for i in range(48) for name in "ab"
    ]
    assert sentences(notices) == [
        "rules[0] makes `layers_{0..47}/mlp/a` (48 leaves), oh",
        "rules[0] makes `layers_{0..47}/mlp/b` (48 leaves), oh",
    ]


def test_what_differs_in_anything_but_the_key_is_said_apart_and_in_order() -> None:
    notices = [
        Notice("", "b_1", " is 3"),
        Notice("", "b_2", " is 4"),
        Notice("", "b_3", " is 3"),
        Notice("", "b_4", " is 3", about="another rule"),
        Notice("for people"),
        Notice("for people"),
    ]
    assert sentences(notices) == ["`b_{1,3}` (2 leaves) is 3", "`b_2` is 4", "`b_4` is 3", "for people"]


def test_few_keys_are_folded_before_they_are_cut() -> None:
    assert few_keys(["a", "b"]) == "`a`, `b`"
    assert few_keys(["b", *(f"a_{i}" for i in range(9)), "c"]) == "`b`, `a_{0..8}`, `c`"
    assert few_keys([*"abcd", "a"]) == "`a`, `b`, `c`, and 1 more"
    keys = [f"{c}{i}" for c in "abcd" for i in range(3)]
    assert few_keys(keys) == "`a{0..2}`, `b{0..2}`, `c{0..2}`, and 3 more"
