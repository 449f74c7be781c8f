"""The JSON document of `diff`."""

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.documents import plain
from ckpt_surgery.report.diff_document import diff_document
from ckpt_surgery.report.differences import ComparedLeaf, Difference, diff_trees
from tests.support.leaves import array_leaf, by_key

BF16 = np.dtype(ml_dtypes.bfloat16)


def as_json(found: Difference) -> Any:
    return plain(diff_document(found))


def test_the_document() -> None:
    found = diff_trees(by_key(array_leaf("w"), array_leaf("x")), by_key(array_leaf("w", dtype=BF16)))
    assert as_json(found) == {
        "schema": 1,
        "different": True,
        "common": 1,
        "only_a": [{"key": "x", "components": ["x"], "kind": "array", "shape": [2, 3], "dtype": "float32"}],
        "only_b": [],
        "changed": [
            {
                "key": "w",
                "components": ["w"],
                "what": ["dtype"],
                "a": {"kind": "array", "shape": [2, 3], "dtype": "float32"},
                "b": {"kind": "array", "shape": [2, 3], "dtype": "bfloat16"},
            }
        ],
        "renamed": [],
        "rtol": 0.0,
        "atol": 0.0,
        "values": None,
        "not_compared": None,
        "warnings": [],
    }
    with_values = replace(found, values=(ComparedLeaf("w", ("w",), False, 0.5, math.inf, None),))
    assert as_json(with_values)["values"] == [
        {
            "key": "w",
            "components": ["w"],
            "equal": False,
            "max_abs": 0.5,
            "max_rel": "Infinity",
            "cosine": None,
        }
    ]
