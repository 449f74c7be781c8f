"""Values of open checkpoints are those that Orbax restores; containers that read them, dicts and lists."""

import copy
import functools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ckpt_surgery.api.opening import open as open_checkpoint
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.reading_containers import reading, restored_value, saved_sharding, settled
from tests.support.calls import record_calls
from tests.support.shardings import eight_devices


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the arrays that are read, in order."""
    return record_calls(monkeypatch, LazyArray, "get", lambda array: array.key)


def lazy(start: int, name: str = "") -> LazyArray:
    return LazyArray.of((2,), np.int64, lambda: np.arange(start, start + 2), key=name or str(start))


def of(at: Callable[[int], Any]) -> Any:
    return {"a": at(1), "b": {"c": at(3), "d": at(5)}, "e": [at(7), "text", at(9)], "n": None}


def container() -> Any:
    return reading(of(lazy))


def same(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)
    structures: list[Any] = [jax.tree.structure(one), jax.tree.structure(other)]
    assert structures[0] == structures[1]


USES: dict[str, Callable[[Any], Any]] = {
    "index": lambda kv: kv["b"]["c"] + kv["a"],
    "get": lambda kv: (kv.get("a"), kv.get("z"), kv["b"].get("z", 3)),
    "values": lambda kv: sum(kv["b"].values()),
    "items": lambda kv: [(name, value + 1) for name, value in kv["b"].items()],
    "keys": lambda kv: ([*kv], [*kv.keys()], [*reversed(kv)], len(kv), "a" in kv, "z" in kv),
    "iteration": lambda kv: [np.size(value) for value in kv["e"]],
    "list": lambda kv: (kv["e"][-1], kv["e"][::2], kv["e"][1], [*reversed(kv["e"])], len(kv["e"])),
    "unpacking": lambda kv: (lambda first, *rest: (first, rest))(*kv["e"]),
    "keywords": lambda kv: (lambda c, d: c - d)(**kv["b"]),
    "copies": lambda kv: ({**kv["b"]}, dict(kv["b"]), kv["b"].copy(), kv["e"].copy(), list(kv["e"])),
    "union": lambda kv: (kv["b"] | {"x": 1}, {"x": 1} | kv["b"], {"x": 1, **kv["b"]}),
    "sum of lists": lambda kv: (kv["e"] + [1], [1] + kv["e"], kv["e"] * 2, tuple(kv["e"])),
    "pop": lambda kv: (kv["b"].pop("c"), kv["b"], kv["e"].pop(0), kv["e"]),
    "changes": lambda kv: (kv.update(a=1), kv["e"].append(2), kv.setdefault("z", 3), kv),
    "deep copy": lambda kv: (copy.deepcopy(kv["b"]), copy.copy(kv["e"]), pickle.loads(pickle.dumps(kv))),
    "NumPy": lambda kv: (np.stack([*kv["b"].values()]), np.concatenate(kv["e"][::2]), np.array(kv["e"][:1])),
    "jax.tree": lambda kv: (jax.tree.map(np.shape, kv), jax.tree.leaves(kv["b"])),
    "jax.tree of two": lambda kv: jax.tree.map(np.add, kv["b"], kv["b"]),
    "paths": lambda kv: [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(kv)],
    "the text": lambda kv: (repr(kv), str(kv["e"])),
    "itself": lambda kv: kv,
    "inside": lambda kv: {"x": [kv["b"], (kv["e"],)], "y": kv["a"]},
    "types": lambda kv: (isinstance(kv, dict), isinstance(kv["e"], list), isinstance(kv["a"], np.ndarray)),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_containers_are_used_as_dicts_and_lists_are(use: str) -> None:
    same(settled(USES[use](container())), USES[use](of(lambda start: np.arange(start, start + 2))))


def test_they_are_equal_to_what_they_hold() -> None:
    numbers = {"a": 1, "b": [2, {"c": 3}]}
    assert reading(numbers) == numbers
    assert numbers == reading(numbers)
    assert reading(numbers) != {**numbers, "a": 2}
    assert reading([1, [2]]) == [1, [2]] != reading([1, [3]])


def test_lists_are_combined_by_their_values() -> None:
    def made() -> Any:
        return reading([LazyArray.of((), np.int32, functools.partial(np.array, n, np.int32)) for n in (1, 2)])

    assert made() == made()
    assert [type(value) for value in made() + made()] == [np.ndarray] * 4
    np.testing.assert_array_equal(made() + np.array([1, 1]), [2, 3])
    np.testing.assert_array_equal(np.array([1, 1]) + made(), [2, 3])


def test_a_leaf_is_read_when_it_is_first_used_and_kept(reads: list[str]) -> None:
    kv = container()
    assert (list(kv), len(kv["b"]), "c" in kv["b"], kv["b"].keys()) == (
        ["a", "b", "e", "n"],
        2,
        True,
        {"c", "d"},
    )
    assert reads == []
    first = kv["b"]["c"]
    assert reads == ["3"]
    assert kv["b"]["c"] is first
    values = iter(kv["b"].values())
    assert next(values) is first
    assert reads == ["3"]
    assert kv["e"][0] is kv["e"][0]
    assert reads == ["3", "7"]


def test_what_holds_no_container_is_settled_as_it_is() -> None:
    for value in (np.ones(2), {"a": [1]}, None, ..., P("x")):
        assert settled(value) is value


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
