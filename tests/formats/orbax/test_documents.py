"""The documents of an item, member by member."""

import json
from base64 import urlsafe_b64decode
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.orbax.documents import ONE_DEVICE, documents

SPEC = ArraySpec((4, 6), np.dtype(np.float32))


def output(name: str = "w", kind: LeafKind = LeafKind.ARRAY, **more: Any) -> Output:
    return Output(Leaf(Key.of([name]), kind, **more), (2, 3))


def entry(one: Output) -> dict[str, Any]:
    """What `_METADATA` says of a single output."""
    [found] = documents([one], 2, {})["_METADATA"]["tree_metadata"].values()
    return dict(found["value_metadata"])


def test_an_item_of_plain_arrays_has_one_document() -> None:
    key = Key(("opt", "0"), (False, True))
    assert documents([Output(Leaf(key, LeafKind.ARRAY, SPEC), (2, 3))], 3, {"a": 1}) == {
        "_METADATA": {
            "tree_metadata": {
                "('opt', '0')": {
                    "key_metadata": [{"key": "opt", "key_type": 2}, {"key": "0", "key_type": 1}],
                    "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False},
                }
            },
            "use_ocdbt": True,
            "use_zarr3": True,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": {"a": 1},
        }
    }


def test_the_document_that_completes_an_item_comes_last() -> None:
    outputs = [output("s", LeafKind.STRING, string="x"), output(spec=SPEC, sharding="{}")]
    assert [*documents(outputs, 2, {})] == [
        "_sharding",
        "array_metadatas/process_0",
        "_strings.json",
        "_METADATA",
    ]
    assert documents([], 2, {})["_METADATA"]["custom_metadata"] is None


def test_arrays_with_a_sharding_are_those_that_orbax_restores_as_jax_arrays() -> None:
    sharded = output("a.é", spec=SPEC, sharding='{"sharding_type": "x"}')
    key = output("rng", LeafKind.PRNG_KEY, spec=SPEC, prng_impl="rbg")
    found = documents([sharded, key, output(spec=SPEC)], 2, {})
    shardings = {urlsafe_b64decode(name).decode(): text for name, text in found["_sharding"].items()}
    assert shardings == {"a.é": '{"sharding_type": "x"}', "rng": ONE_DEVICE}
    listed = [one["array_metadata"] for one in found["array_metadatas/process_0"]["array_metadatas"]]
    assert [(one["param_name"], one["ext_metadata"]) for one in listed] == [
        ("a.é", None),
        ("rng", {"random_key_impl": "rbg"}),
    ]
    assert all(one["write_shape"] == one["chunk_shape"] == [2, 3] for one in listed)
    assert entry(key) == {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": [2, 3]}


@pytest.mark.parametrize(
    ("kind", "more", "value_type", "skipped"),
    [
        (LeafKind.SCALAR, {"spec": ArraySpec((), np.dtype(np.int64))}, "scalar", False),
        (LeafKind.SCALAR, {"spec": ArraySpec((1,), np.dtype(np.int64))}, "np.ndarray", False),
        (LeafKind.ARRAY, {"spec": ArraySpec((), np.dtype(np.int64))}, "np.ndarray", False),
        (LeafKind.STRING, {"string": "x"}, "string", False),
        (LeafKind.EMPTY, {"empty": "NamedTuple"}, "NamedTuple", True),
    ],
)
def test_every_kind_of_leaf_has_its_type(
    kind: LeafKind, more: dict[str, Any], value_type: str, skipped: bool
) -> None:
    assert entry(output(kind=kind, **more)) == {"value_type": value_type, "skip_deserialize": skipped}


def test_slashes_in_names_of_strings_nest() -> None:
    strings = [output(name, LeafKind.STRING, string=name.upper()) for name in ("a/b", "a/c", "d")]
    found = documents(strings, 2, {})["_strings.json"]
    assert found == {"a": {"b": "A/B", "c": "A/C"}, "d": "D"}
    assert json.loads(ONE_DEVICE)["device_str"] == "cpu:0"
