"""Leaves: what they take in memory, and what they are called in documents."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, array_repr
from tests.support.leaves import leaf


@pytest.mark.parametrize(
    ("described", "nbytes"),
    [
        ("float32[2,3]", 24),
        ("bfloat16[5]", 10),
        ("float32[0,3]", 0),
        ("scalar:int64", 8),
        ("prng_key", 8),
        ("string", 0),
        ("empty", 0),
    ],
)
def test_bytes_in_memory(described: str, nbytes: int) -> None:
    assert leaf("a", described).nbytes == nbytes


def test_kinds_have_the_names_that_json_documents_hold() -> None:
    assert [str(kind) for kind in LeafKind] == ["array", "scalar", "string", "prng_key", "empty", "object"]
    assert LeafKind("prng_key") is LeafKind.PRNG_KEY


def test_leaves_are_equal_by_value() -> None:
    assert leaf("a") == leaf("a")
    assert leaf("a") != leaf("b")
    assert leaf("a") != leaf("a", "float16[2,3]")


@pytest.mark.parametrize(
    ("described", "shown"),
    [
        ("float32[8,4]", "<Leaf 'params/w' float32[8,4] 128 B>"),
        ("scalar:int64", "<Leaf 'params/w' scalar int64[]>"),
        ("prng_key", "<Leaf 'params/w' prng_key(threefry2x32) uint32[2]>"),
    ],
)
def test_a_leaf_is_one_line(described: str, shown: str) -> None:
    assert repr(leaf("params/w", described)) == shown


def test_a_leaf_without_an_array_says_its_value() -> None:
    assert repr(Leaf(Key.parse("a"), LeafKind.EMPTY, empty="Dict")) == "<Leaf 'a' empty 'Dict'>"


def test_a_text_is_cut() -> None:
    assert repr(Leaf(Key.parse("a"), LeafKind.STRING, string="adam")) == "<Leaf 'a' string 'adam'>"
    assert len(repr(Leaf(Key.parse("a"), LeafKind.STRING, string="adam" * 1000))) < 100


@pytest.mark.parametrize("key", ["\x1b[31m\n", "\u202e", "x" * 100_000, "\U000e0001" * 100_000])
def test_hostile_keys_are_escaped_and_cut(key: str) -> None:
    shown = array_repr("LazyArray", key, ArraySpec((8, 4), np.dtype("float32")))
    assert shown.startswith("<LazyArray '")
    assert shown.endswith("' float32[8,4] 128 B>")
    assert shown.isprintable()
    assert len(shown) < 200
