"""Orbax's JSON text of shardings, against Orbax itself."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from orbax.checkpoint._src.metadata.sharding import from_jax_sharding

from ckpt_surgery.core.shardings import (
    Spec,
    misfit,
    named_sharding,
    sharding_summary,
    sharding_text,
    single_device_sharding,
    spec_flaw,
)

MESH = {"data": 2, "model": 4}


NAMED = {
    "sharding_type": "NamedSharding",
    "shape": [4, 2],
    "axis_names": ["x", "y"],
    "partition_spec": ["x", None, ["x", "y"]],
}


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (json.dumps(NAMED), "P('x', None, ('x', 'y')) on mesh x:4,y:2"),
        (json.dumps({**NAMED, "partition_spec": []}), "P() on mesh x:4,y:2"),
        ('{"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"}', "cpu:0"),
        ('{"sharding_type": "OtherSharding"}', "OtherSharding"),
        ('{"sharding_type": "NamedSharding", "partition_spec": 3}', "NamedSharding"),
        ('{"sharding_type": "a\\u001b[31m"}', "a\\x1b[31m"),
        ("[]", "unknown"),
        ("{", "unknown"),
        ("[" * 100_000, "unknown"),
    ],
)
def test_sharding_text(text: str, short: str) -> None:
    assert sharding_text(text) == short


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (
            json.dumps({**NAMED, "device_mesh": {"mesh": [[{"id": 0}]]}}),
            {"type": "NamedSharding", "partition_spec": ["x", None, ["x", "y"]], "mesh": {"x": 4, "y": 2}},
        ),
        (single_device_sharding("cpu:0"), {"type": "SingleDeviceSharding", "device": "cpu:0"}),
        ('{"sharding_type": "NewSharding"}', {"type": "NewSharding"}),
        (json.dumps({**NAMED, "partition_spec": [{"x": 1}]}), {"type": "NamedSharding"}),
        (json.dumps({**NAMED, "shape": [[4], 2]}), {"type": "NamedSharding"}),
        ("[1]", {"type": None}),
        ("no JSON", {"type": None}),
    ],
)
def test_sharding_summary(text: str, summary: dict[str, object]) -> None:
    assert sharding_summary(text) == summary


@pytest.mark.parametrize(
    "spec", [(None, "model"), (), ("data",), (("data", "model"), None), (None, ("model",))]
)
def test_a_named_sharding_is_what_orbax_records_of_it(spec: Spec) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    recorded = from_jax_sharding(sharding).to_serialized_string()
    assert json.loads(named_sharding(MESH, tuple(sharding.spec))) == json.loads(recorded)
    if spec == (None, "model"):
        assert sharding_text(recorded) == "P(None, 'model') on mesh data:2,model:4"


def test_shardings_on_other_devices_and_on_one_are_what_orbax_records() -> None:
    mesh = Mesh(
        np.array(jax.devices())[[7, 2, 5, 0]].reshape(2, 2),
        ("p", "q"),
        axis_types=(AxisType.Explicit, AxisType.Auto),
    )
    recorded = from_jax_sharding(NamedSharding(mesh, PartitionSpec("q")))
    types = ["AxisType.Explicit", "AxisType.Auto"]
    ours = named_sharding({"p": 2, "q": 2}, ("q",), devices=[7, 2, 5, 0], types=types)
    assert ours == recorded.to_serialized_string()
    device = jax.devices()[3]
    recorded = from_jax_sharding(SingleDeviceSharding(device)).to_serialized_string()
    assert single_device_sharding(str(device)) == recorded


@pytest.mark.parametrize(
    ("spec", "flaw"),
    [
        ((None, "data", ("model",)), None),
        (("modle",), "the mesh has no axis `modle`; did you mean `model`?"),
        (("zzz",), "the mesh has no axis `zzz`; it has data, model"),
        (
            ("data", ("model", "data")),
            "`data` is twice in one spec: a mesh axis can divide only one axis of an array",
        ),
    ],
)
def test_specs_that_no_array_could_have(spec: Spec, flaw: str | None) -> None:
    assert spec_flaw(MESH, spec) == flaw


@pytest.mark.parametrize("spec", [(), ("data",), (None, "model"), (("data", "model"),), (None, None, "data")])
@pytest.mark.parametrize("shape", [(), (8,), (6, 4), (8, 8), (4, 7), (0, 4)])
def test_what_fits_is_what_jax_can_place(spec: Spec, shape: tuple[int, ...]) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    try:
        jax.device_put(np.zeros(shape), NamedSharding(mesh, PartitionSpec(*spec)))
        fits = True
    except ValueError:
        fits = False
    assert (misfit(MESH, spec, shape) is None) == fits


def test_why_a_spec_does_not_fit() -> None:
    assert misfit(MESH, (None, "data"), (4,)) == "has 1 of the 2 axes that the spec P(None, 'data') is for"
    told = "has 12 along axis 0, which does not divide into 8 parts (data: 2, model: 4)"
    assert misfit(MESH, (("data", "model"),), (12,)) == told
