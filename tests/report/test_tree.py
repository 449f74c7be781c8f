"""Totals of subtrees, dtypes and parameters, and the lines of trees."""

from dataclasses import replace

import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.report.leaves import chunks_text, stored_sharding
from ckpt_surgery.report.tree import (
    SubtreeTotal,
    by_size,
    listing,
    name_order,
    parameters,
    subtrees,
    tree,
)
from tests.support.leaves import array_leaf, leaf

LAYERS = [
    *(array_leaf(f"p/l_{i}/w", (4,)) for i in range(3)),
    array_leaf("p/l_2/b", (2,)),
    array_leaf("e", (10,)),
    leaf("name", "string"),
]


def told(lines):
    return [("  " * line.level + line.key, line.total.leaves, line.total.elements) for line in lines]


@pytest.mark.parametrize(
    ("key", "described", "counts"),
    [
        ("params/w", "float32[2,3]", 6),
        ("w_int8", "int8[2,3]", 6),  # quantized weights
        ("logit_scale", "float32[]", 1),
        ("opt_state/0/mu/w", "float32[2,3]", 0),
        ("state/param_states/w/m", "float32[2,3]", 0),  # T5X
        ("0/nu/w", "float32[2,3]", 0),
        ("mutual/w", "float32[2,3]", 6),  # no component is `mu`
        ("position_ids", "int64[1,512]", 0),
        ("mask", "bool[4]", 0),
        ("step", "scalar:int64", 0),
        ("rng", "prng_key", 0),
    ],
)
def test_what_counts_as_parameters(key, described, counts):
    assert parameters([leaf(key, described)]) == counts


def test_subtrees():
    found = [SubtreeTotal(4, 14, 56, key="p"), SubtreeTotal(1, 4, 16, key="p/l_0")]
    assert subtrees(LAYERS)[:2] == tuple(found)
    assert [one.key for one in subtrees(LAYERS)] == ["p", "p/l_0", "p/l_1", "p/l_2"]
    assert subtrees(LAYERS, 1) == (found[0],)


def test_subtrees_share_a_line_only_where_their_totals_are_equal():
    lines = listing(LAYERS, {}, depth=2)
    assert told(lines) == [("p/l_{0,1}/…", 2, 8), ("p/l_2/…", 2, 6), ("e", 1, 10), ("name", 1, 0)]
    assert [line.leaf is None for line in lines] == [True, True, False, False]
    assert told(listing(LAYERS, {}, depth=2, full=True))[:2] == [("p/l_0/…", 1, 4), ("p/l_1/…", 1, 4)]


def test_the_largest_come_first():
    leaves = [array_leaf("a", (1,)), array_leaf("b/x", (2,)), array_leaf("b/y", (3,)), array_leaf("c", (4,))]
    lines = listing(leaves, {})
    assert [line.key for line in by_size(lines)] == ["c", "b/y", "b/x", "a"]
    assert [line.key for line in tree(lines, sort_by_size=True)] == ["b", "y", "x", "c", "a"]


def test_names_are_in_the_order_of_their_numbers():
    names = ["l_10/a", "l_9/b", "l/z", "l_9/a"]
    ordered = sorted(map(array_leaf, names), key=name_order)
    assert [one.key.text for one in ordered] == ["l/z", "l_9/a", "l_9/b", "l_10/a"]


def test_leaves_fold_only_what_looks_the_same():
    def stored(key: str, chunks=(1, 3)) -> Leaf:
        plain = array_leaf(key)
        codec = Codec("zstd", (0, 1), "[]")
        return replace(plain, manifest=Manifest(plain.spec, chunks, codec, {(0, 0): Chunk("d/0", 0, 12)}))

    leaves = [stored("l_0"), stored("l_1"), stored("l_2", (2, 3)), array_leaf("l_3")]
    lines = [
        (one.key, one.count, one.total.bytes, chunks_text(one.leaf.manifest)) for one in listing(leaves, {})
    ]
    assert lines == [
        ("l_{0,1}", 2, 48, "[1,3] C zstd"),
        ("l_2", 1, 24, "[2,3] C zstd"),
        ("l_3", 1, 24, ""),
    ]
    assert [line.key for line in listing(leaves, {}, full=True)] == ["l_0", "l_1", "l_2", "l_3"]


def test_leaves_are_apart_where_shardings_or_values_are():
    devices = [array_leaf(f"l_{i}", sharding=f'{{"device_str": "cpu:{i}"}}') for i in range(2)]
    apart = [(one.key, stored_sharding(one.leaf)) for one in listing(devices, {})]
    assert apart == [("l_0", "cpu:0"), ("l_1", "cpu:1")]
    leaves = [array_leaf(f"l_{i}", ()) for i in range(3)]
    texts = {"l_0": "= 1", "l_1": "= 1", "l_2": "= 2"}
    assert [(one.key, one.value) for one in listing(leaves, texts)] == [("l_{0,1}", "= 1"), ("l_2", "= 2")]
