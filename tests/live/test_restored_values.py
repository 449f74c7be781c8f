"""Values of an open checkpoint are those that Orbax restores."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.api.opening import open as open_checkpoint
from ckpt_surgery.live.reading_containers import restored_value, saved_sharding
from tests.support.shardings import eight_devices

P = PartitionSpec


def over(mesh: Mesh, *axes: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*axes))  # type: ignore[no-untyped-call]


def saved_values() -> dict[str, Any]:
    """A value of every kind that Orbax saves."""
    mesh = eight_devices()
    first, second = mesh.axis_names
    numbers = np.arange(64, dtype=np.float32).reshape(8, 8)
    with jax.enable_x64(True):
        wide = {"i64": jnp.arange(3, dtype=jnp.int64) + 2**40, "f64": jnp.ones(2, jnp.float64) / 3}
    return wide | {
        "numpy": np.arange(3.0),
        "bfloat16": np.arange(3).astype(ml_dtypes.bfloat16),
        "no axes": np.asarray(7),
        "int": 5,
        "float": 2.5,
        "bool": True,
        "number of NumPy": np.int32(4),
        "text": "written",
        "one device": jnp.arange(3.0),
        "another device": jax.device_put(np.arange(3.0, dtype=np.float32), jax.devices()[2]),
        "sharded": jax.device_put(numbers, over(mesh, first, None)),
        "over both": jax.device_put(numbers, over(mesh, (second, first))),
        "replicated": jax.device_put(numbers, over(mesh)),
        "key": jax.random.key(3),
        "keys": jax.device_put(jax.random.split(jax.random.key(4), 8), over(mesh, first)),
        "old key": jax.random.PRNGKey(5),
        "nested": {"list": [1, np.arange(2)], "tuple": (np.ones(1), {"x": 2})},
        "empty": {"none": None, "dict": {}, "list": [], "tuple": ()},
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("restored") / "checkpoint"
    ocp.PyTreeCheckpointer().save(directory, saved_values())
    return directory


@pytest.mark.slow("restores every kind of leaf by Orbax")
@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_values_are_those_that_orbax_restores(path: Path) -> None:
    wanted = ocp.PyTreeCheckpointer().restore(path)
    values = jax.tree.map(restored_value, open_checkpoint(path).tree)
    structures: list[Any] = [jax.tree.structure(values), jax.tree.structure(wanted)]
    assert structures[0] == structures[1]
    for (where, value), like in zip(
        jax.tree_util.tree_leaves_with_path(values), jax.tree.leaves(wanted), strict=True
    ):
        assert type(value) is type(like), where
        if not hasattr(like, "dtype"):
            assert value == like, where
            continue
        assert (value.dtype, value.shape) == (like.dtype, like.shape), where
        if isinstance(like, jax.Array):
            assert (value.sharding, value.committed) == (like.sharding, like.committed), where  # type: ignore[attr-defined]
        else:
            assert value.flags.writeable, where
        assert bits(value) == bits(like), where


def bits(array: Any) -> bytes:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).tobytes()


NAMED = {
    "sharding_type": "NamedSharding",
    "shape": [4, 2],
    "axis_names": ["x", "y"],
    "partition_spec": [["y", "x"]],
}


def test_what_is_no_sharding_here() -> None:
    """Arrays are on the default device then, where Orbax refuses to restore them."""
    other_device = "TPU_3(process=0,(1,1,0,0))"
    for document in (
        [],
        {"sharding_type": "PositionalSharding"},
        {"sharding_type": "SingleDeviceSharding", "device_str": other_device},
        {**NAMED, "device_mesh": {"mesh": [[{"id": 0}, {"id": 4000}]] * 4}},
    ):
        assert saved_sharding(json.dumps(document)) is None
    assert saved_sharding("") is None


def test_shardings_without_devices_are_over_all() -> None:
    sharding = saved_sharding(json.dumps(NAMED))
    assert sharding is not None
    assert sharding.spec == P(("y", "x"))
    assert [device.id for device in sharding.mesh.devices.flat] == list(range(8))
