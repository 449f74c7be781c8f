"""Unusual leaves, and the JSON document of `inspect`."""

from dataclasses import replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.documents import plain
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.shardings import named_sharding
from ckpt_surgery.report.histograms import Histogram
from ckpt_surgery.report.inspection import Inspection, inspect_document, unusual
from ckpt_surgery.report.leaves import Statistics, Unread
from tests.support.leaves import array_leaf, leaf, listing

SOUND = Statistics(-1.0, 1.0, 0.0, 0.5, 0, 0)
ZEROS = Statistics(0.0, 0.0, 0.0, 0.0, 0, 0)


def found(leaves, statistics):
    return [(one.what, [leaf.key.text for leaf in one.leaves]) for one in unusual(leaves, statistics)]


def test_arrays_of_zeros_but_no_counters():
    leaves = [
        array_leaf("a"),
        array_leaf("count", ()),
        array_leaf("empty", (0,)),
        leaf("step", "scalar:int64"),
    ]
    nothing = Statistics(None, None, None, None, 0, 0)
    statistics = {"a": ZEROS, "count": ZEROS, "step": ZEROS, "empty": nothing}
    assert found(leaves, statistics) == [("zeros", ["a"])]
    assert found(leaves[:1], {"a": replace(ZEROS, nan=1)}) == [("nan", ["a"])]


def test_mixed_dtypes_where_only_indices_differ():
    w, b = {"l_0/w": "float32[2]", "l_1/w": "bfloat16[5]"}, {"l_0/b": "float32[3]", "l_1/b": "float32[9]"}
    leaves = listing({**w, **b, "m/w": "bfloat16[2]", "l_2/w": "string"}).values()
    assert found(leaves, {}) == [("mixed dtypes", ["l_0/w", "l_1/w"])]


SPEC = ArraySpec((2, 3), np.dtype(np.float32))
MANIFEST = Manifest(SPEC, (1, 3), Codec("zstd", (0, 1), "[]"), {(0, 0): Chunk("d/0", 0, 12)})
SHARDING = named_sharding({"x": 2}, ("x",))
FOUND = Inspection(
    "/ckpt",
    "orbax",
    10,
    "default",
    {"epoch": 3},
    (
        Leaf(Key.parse("params/w"), LeafKind.ARRAY, SPEC, MANIFEST, SHARDING),
        leaf("note", "string"),
        leaf("step", "scalar:int64"),
    ),
    values={"step": 7},
    others=2,
    choices=Choices((5, 10), (15,), ("default", "meta")),
)


def as_json(found: Inspection) -> Any:
    return plain(inspect_document(found))


def test_it_is_as_documented():
    assert as_json(FOUND) == {
        "schema": 1,
        "path": "/ckpt",
        "format": "orbax",
        "step": 10,
        "item": "default",
        "steps": [5, 10],
        "unfinished_steps": [15],
        "items": ["default", "meta"],
        "bytes": 32,
        "parameters": 6,
        "others": 2,
        "metadata": {"epoch": 3},
        "dtypes": {
            "float32": {"leaves": 1, "elements": 6, "bytes": 24},
            "int64": {"leaves": 1, "elements": 1, "bytes": 8},
        },
        "subtrees": [{"key": "params", "leaves": 1, "elements": 6, "bytes": 24}],
        "leaves": [
            {
                "key": "params/w",
                "components": ["params", "w"],
                "shape": [2, 3],
                "dtype": "float32",
                "bytes": 24,
                "kind": "array",
                "chunks": [1, 3],
                "sharding": {"type": "NamedSharding", "partition_spec": ["x"], "mesh": {"x": 2}},
            },
            dict.fromkeys(("shape", "dtype", "chunks", "sharding"))
            | {"key": "note", "components": ["note"], "bytes": 0, "kind": "string", "value": "hello"},
            {"key": "step", "components": ["step"], "shape": [], "dtype": "int64", "bytes": 8}
            | {"kind": "scalar", "chunks": None, "sharding": None, "value": 7},
        ],
        "unusual": None,
        "warnings": [],
    }


def test_statistics_and_what_is_unusual():
    numbers = Statistics(-1.0, 2.0, 0.5, 1.25, 3, 4, Histogram(-1, -2, (1, 0, 5)))
    document = as_json(replace(FOUND, statistics={"params/w": numbers}))
    listed, note, _ = document["leaves"]
    bars = {"start": -1.0, "width": 0.5, "counts": [1, 0, 5]}
    wanted = {"min": -1.0, "max": 2.0, "mean": 0.5, "std": 1.25, "nan": 3, "inf": 4, "histogram": bars}
    assert listed.items() >= wanted.items()
    assert "min" not in note
    assert document["unusual"] == [
        {"what": "nan", "keys": ["params/w"]},
        {"what": "inf", "keys": ["params/w"]},
    ]


def test_what_could_not_be_read():
    gone = Unread("it is gone", damaged=True)
    leaves = (array_leaf("w"), array_leaf("step", ()))
    document = as_json(replace(FOUND, leaves=leaves, statistics={"w": gone}, values={"step": gone}))
    assert [one["unread"] for one in document["leaves"]] == ["it is gone", "it is gone"]
    assert not {"min", "value"} & {name for one in document["leaves"] for name in one}
