"""Types and empty arrays of NumPy in targets say what is wanted and have no value; compared with Orbax v1."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint.experimental import v1

import ckpt_surgery
from ckpt_surgery.core.errors import Code, DataError, PlanError
from ckpt_surgery.planner.plan import Fate, Plan
from tests.support.checkpoints import quiet, save_v1

STATE: dict[str, Any] = {
    "w": jnp.arange(6, dtype=jnp.float32).reshape(2, 3),
    "narrow": jnp.arange(3, dtype=jnp.bfloat16),
    "count": np.arange(3),
    "zero_d": np.asarray(7),
    "step": 7,
    "rate": 2.5,
    "name": "text",
    "key": jax.random.key(0),
}
EMPTY = np.array([])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wanted") / "state"
    save_v1(path, STATE)
    return path


def restored(saved: Path, key: str, leaf: Any, recipe: Any = None) -> Any:
    return ckpt_surgery.restore(recipe, saved, target={key: leaf})[key]


def from_orbax(saved: Path, key: str, leaf: Any) -> Any:
    context = v1.Context()
    context.pytree.loading.partial_load = True
    with quiet(), context:
        return v1.load(saved, {key: leaf})[key]


@pytest.mark.parametrize("key", ["w", "narrow", "count", "zero_d", "step", "rate"])
def test_an_empty_array_asks_for_numpy_and_nothing_else(saved: Path, key: str) -> None:
    found = restored(saved, key, EMPTY)
    assert type(found) is np.ndarray
    assert found.dtype == np.asarray(STATE[key]).dtype
    theirs = from_orbax(saved, key, EMPTY)  # in float64, into which Orbax casts everything
    assert found.shape == theirs.shape
    np.testing.assert_array_equal(found.astype(np.float64), theirs)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, jnp.bfloat16, ">f4"])
def test_an_empty_array_of_another_dtype_gives_that_dtype(saved: Path, dtype: Any) -> None:
    found = restored(saved, "count", np.zeros(0, dtype))
    theirs = from_orbax(saved, "count", np.zeros(0, np.dtype(dtype).newbyteorder("=")))
    assert (type(found), found.dtype, found.tolist()) == (np.ndarray, theirs.dtype, theirs.tolist())


def test_its_cast_is_checked_and_in_the_plan(saved: Path) -> None:
    plans: list[Plan] = []
    target = {"w": np.zeros(0, np.float16)}
    ckpt_surgery.restore(None, saved, target=target, on_plan=plans.append)
    assert [(step.fate, step.leaf.spec.dtype) for step in plans[0].steps if step.leaf.spec] == [
        (Fate.TRANSFORMED, np.float16)
    ]
    assert codes(None, saved, {"rate": np.zeros(0, np.int32), "w": np.zeros(0, np.int8)}) == {
        Code.TARGET_MISFIT: ["rate", "w"]
    }
    with pytest.raises(DataError, match="`a`"):
        ckpt_surgery.restore(None, {"a": np.array([1e6])}, target={"a": np.zeros(0, np.float16)})
    kept = restored(saved, "w", np.zeros(0, np.float16), {"version": 1, "target": {"dtype": "source"}})
    assert kept.dtype == np.float32


TAKEN = {
    np.ndarray: ("w", "count"),
    jax.Array: ("w", "narrow", "key"),
    int: ("step", "zero_d"),
    float: ("rate", "step"),
    str: ("name",),
}


@pytest.mark.parametrize(("key", "type_"), [(key, type_) for type_, keys in TAKEN.items() for key in keys])
def test_a_type_gives_what_is_stored_in_that_kind_as_orbax_does(saved: Path, key: str, type_: Any) -> None:
    ours, theirs = restored(saved, key, type_), from_orbax(saved, key, type_)
    assert isinstance(ours, type_)
    assert isinstance(theirs, type_)
    if key == "key":
        ours, theirs = jax.random.key_data(ours), jax.random.key_data(theirs)
    assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
    assert np.array_equal(ours, theirs)


def codes(recipe: Any, source: Any, target: Any) -> dict[Code | None, list[str]]:
    """Keys that `restore` refuses, by the code of the problem."""
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore(recipe, source, target=target)
    found: dict[Code | None, list[str]] = {}
    for problem in caught.value.problems:
        named = [key for key in target if f"`{key}`" in str(PlanError(problem))]
        found.setdefault(problem.code, []).extend(named)
    return {code: sorted(keys) for code, keys in found.items()}


def test_another_kind_is_refused_with_the_key(saved: Path) -> None:
    for like, keys in (
        (np.ndarray, ["key", "name", "step"]),
        (jax.Array, ["step"]),
        (int, ["name", "rate", "w"]),
        (float, ["w"]),
        (str, ["step", "w"]),
        (EMPTY, ["key", "name"]),
    ):
        assert codes(None, saved, dict.fromkeys(keys, like)) == {Code.TARGET_MISFIT: keys}


def test_numbers_that_are_no_bool_and_what_jax_would_narrow_are_refused(saved: Path) -> None:
    assert ckpt_surgery.restore(None, {"b": True}, target={"b": bool})["b"] is True
    assert codes(None, {"b": 1}, {"b": bool}) == {Code.TARGET_MISFIT: ["b"]}
    assert codes(None, saved, {"count": jax.Array}) == {Code.UNSUITED: ["count"]}


def test_shapes_are_compared_where_there_are_any(saved: Path) -> None:
    """Orbax takes the stored shape without a word."""
    theirs = from_orbax(saved, "w", np.zeros(3, np.float16))
    assert theirs.shape == (2, 3)
    assert codes(None, saved, {"w": np.zeros(3, np.float16)}) == {Code.TARGET_MISFIT: ["w"]}
    assert codes(None, saved, {"w": np.zeros((0, 3))}) == {Code.TARGET_MISFIT: ["w"]}


FALLBACKS = [
    {"version": 1, "target": {"missing": "fallback"}, "rules": []},
    {"version": 1, "rules": [{"fill": "new.*", "fallback": True}]},
    {"version": 1, "rules": [{"fill": "new.*", "fallback": "missing"}]},
    {"version": 1, "rules": [{"fill": "new.*", "value": "target[key] * 2"}]},
]


@pytest.mark.parametrize("recipe", FALLBACKS)
def test_none_of_them_has_a_value_to_fall_back_on(recipe: Any, saved: Path) -> None:
    target = {"w": EMPTY, "new/a": EMPTY, "new/bb": np.ndarray, "new/ccc": jax.Array}
    if "value" not in str(recipe):
        target |= {"new/d": int, "new/ee": np.zeros(0, np.float32), "new/fff": str}
    found = codes(recipe, saved, target)
    assert [keys for keys in found.values()] == [sorted(set(target) - {"w"})]  # noqa: C416
    assert not found.keys() - {Code.TARGET_MISSING, Code.NO_TARGET, Code.NOT_AN_ARRAY}


def test_shardings_are_those_that_are_given(saved: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    rules = (mesh, [("w", PartitionSpec("x")), (".*", PartitionSpec())])
    target = {"w": jax.Array, "narrow": jax.Array, "key": jax.Array, "count": np.ndarray, "zero_d": EMPTY}
    found = ckpt_surgery.restore(None, saved, target=target, shardings=rules)
    assert found["w"].sharding == NamedSharding(mesh, PartitionSpec("x"))
    assert found["key"].sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec()), 0)
    assert type(found["count"]) is type(found["zero_d"]) is np.ndarray


def test_shardings_that_do_not_divide_the_stored_shape_are_refused(saved: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    rules = (mesh, {".*": PartitionSpec(None, None, "x")})
    for target in ({"w": jax.Array, "narrow": jax.Array}, {"w": ..., "narrow": ...}):
        with pytest.raises(PlanError) as caught:
            ckpt_surgery.restore(
                {"version": 1, "rules": [{"fill": ".*"}]}, saved, target=target, shardings=rules
            )
        assert [problem.code for problem in caught.value.problems] == [Code.SHARDING] * 2


def test_a_source_is_listed_as_it_is() -> None:
    """A tree that is read has values: there, an empty array is an empty array."""
    assert ckpt_surgery.restore(None, {"a": EMPTY, "f": int})["a"].shape == (0,)
