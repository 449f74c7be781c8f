"""Texts of shardings that Orbax does not write itself; tests/live/test_tree.py has those that it does."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ckpt_surgery.live.recorded_shardings import recorded_sharding
from tests.support.checkpoints import mesh

P = PartitionSpec


@pytest.mark.parametrize(
    ("spec", "more", "recorded"),
    [
        (P("x"), 0, ["x"]),
        (P("x"), 1, ["x", None]),
        (P(), 2, [None, None]),
        (P(None, ("x", "y")), 1, [None, ["x", "y"], None]),
    ],
)
def test_axes_of_the_raw_data_are_not_divided(spec: PartitionSpec, more: int, recorded: list) -> None:
    text = recorded_sharding(NamedSharding(mesh(), spec), more)
    assert text is not None
    assert json.loads(text)["partition_spec"] == recorded


def test_a_device_needs_no_axes() -> None:
    sharding = SingleDeviceSharding(jax.devices()[1])
    assert recorded_sharding(sharding, 1) == recorded_sharding(sharding)


@pytest.mark.parametrize(
    "sharding",
    [
        None,  # that of a ShapeDtypeStruct
        NamedSharding(AbstractMesh((4,), ("x",)), P("x")),
        NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "x"), P(P.UNCONSTRAINED)),
    ],
    ids=["none", "abstract", "unconstrained"],
)
def test_shardings_that_orbax_does_not_record(sharding: object) -> None:
    assert recorded_sharding(sharding) is None
