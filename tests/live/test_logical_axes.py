"""Shardings by names of axes, beside flax's `logical_to_mesh_axes` and what T5X's partitioner does."""

from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import traverse_util
from flax.core import freeze
from flax.linen import partitioning
from flax.linen.spmd import logical_to_mesh_axes
from flax.training.train_state import TrainState
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.live.logical_axes import LogicalAxes, mesh_axes, split_axes
from tests.support.shardings import refused, resolved, says, shape

P = PartitionSpec
Flat = dict[str, Any]

RULES = (
    ("batch", "data"),
    ("vocab", "model"),
    ("mlp", "model"),
    ("heads", "model"),
    ("embed", None),
    ("joined_kv", "model"),
    ("embed", "data"),  # never: the rule above has said it
)
"""Rules such as T5X's standard ones."""


class Mlp(nn.Module):
    """A block as T5X writes its modules: each parameter names its axes."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for name, kernel, axes in (
            ("wi", (8, 16), ("embed", "mlp")),
            ("wo", (16, 8), ("mlp", "embed")),
        ):
            x = x @ partitioning.param_with_axes(name, nn.initializers.normal(), kernel, axes=axes)
        scale = partitioning.param_with_axes("scale", nn.initializers.ones_init(), (8,), axes=("embed",))
        count = partitioning.variable_with_axes("cache", "seen", jnp.zeros, (8,), axes=("batch",))
        count.value += 1
        return x * scale


class Model(nn.Module):
    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        table = partitioning.param_with_axes(
            "table", nn.initializers.normal(), (12, 8), axes=("vocab", "embed")
        )
        return Mlp(name="layers_1")(Mlp(name="layers_0")(table[ids]))


@pytest.fixture(scope="module")
def variables() -> Any:
    return Model().init(jax.random.key(0), jnp.zeros((2,), jnp.int32))


def flat(tree: Any) -> Flat:
    return traverse_util.flatten_dict(tree, sep="/")


def specs(found: Mapping[str, Any]) -> Flat:
    return {key: sharding.spec for key, sharding in found.items()}


def by_flax(params_axes: Any, rules: Any = RULES) -> Flat:
    """The PartitionSpec of each parameter, as T5X's partitioner asks flax for it."""
    names = flat(partitioning.get_axis_names(params_axes))
    return {key: logical_to_mesh_axes(axes, rules) for key, axes in names.items()}


# --- rules ------------------------------------------------------------------------------------------------

NAMES = ("batch", "embed", "mlp", "heads", "kv")
names = st.lists(st.sampled_from([*NAMES, None]), max_size=4).filter(
    lambda names: len({name for name in names if name}) == sum(name is not None for name in names)
)
over = st.sampled_from([None, "x", "y", "z", ("x", "y"), ("z",)])
rules = st.lists(st.tuples(st.sampled_from([*NAMES, "unused"]), over), max_size=8)


@given(names, rules)
def test_rules_are_flax_s(names: Sequence[str | None], rules: Sequence[tuple[str, Any]]) -> None:
    assert P(*mesh_axes(tuple(names), rules)) == logical_to_mesh_axes(tuple(names), rules)


# --- which leaf takes which axes --------------------------------------------------------------------------


def test_the_forms_of_the_axes(mesh: Mesh, variables: Any) -> None:
    """AxisMetadata, names without the suffix, PartitionSpecs, tuples, and frozen dicts."""
    given = variables["params_axes"]
    specs_of = partitioning.get_axis_names(given)
    tuples = traverse_util.unflatten_dict({k: tuple(v) for k, v in flat(specs_of).items()}, sep="/")
    for axes in (given, split_axes(variables)[1]["params"], specs_of, tuples, freeze(given)):
        found = resolved(variables["params"], LogicalAxes(mesh, RULES, axes))
        assert specs(found) == by_flax(given)
        assert all(sharding.mesh == mesh for sharding in found.values())


def t5x_state(params: Any, beta1: float | None) -> Any:
    """State dict of T5X's FlaxOptimTrainState with Adafactor: rows and columns for matrices above 10 × 10."""

    def slots(array: Any) -> Any:
        dummy = jnp.zeros((1,))
        state = dict.fromkeys(("m", "v", "v_row", "v_col"), dummy)
        if min(array.shape) > 10:
            state |= {"v_row": jnp.zeros(array.shape[:1]), "v_col": jnp.zeros(array.shape[1:])}
        else:
            state |= {"v": jnp.zeros(array.shape)}
        return state | ({"m": jnp.zeros(array.shape)} if beta1 else {})

    param_states = jax.tree.map(slots, params)
    return {"target": params, "state": {"step": jnp.zeros((), jnp.int32), "param_states": param_states}}


@pytest.mark.parametrize("beta1", [None, 0.9])
def test_a_train_state_of_t5x(beta1: float | None, mesh: Mesh, variables: Any) -> None:
    params = {**variables["params"], "head": {"kernel": jnp.zeros((12, 16))}}
    params_axes = {
        **variables["params_axes"],
        "head": {"kernel_axes": partitioning.AxisMetadata(("embed", "vocab"))},
    }
    state = t5x_state(params, beta1)
    state["flax_mutables"] = {"cache": {"layers_0": {"scale": jnp.zeros((8,))}}}
    parameters = by_flax(params_axes)
    expected = {f"target/{key}": spec for key, spec in parameters.items()}
    for key, spec in parameters.items():  # T5X's `derive_logical_axes`
        shapes = {k: v.shape for k, v in flat(state["state"]["param_states"]).items()}
        expected |= {
            f"state/param_states/{key}/v_row": P(),
            f"state/param_states/{key}/v_col": P(),
            f"state/param_states/{key}/v": spec if shapes[f"{key}/v"] != (1,) else P(),
            f"state/param_states/{key}/m": spec if beta1 else P(),
        }
    expected |= {"state/step": P(), "flax_mutables/cache/layers_0/scale": P()}
    found = specs(resolved(state, LogicalAxes(mesh, RULES, params_axes)))
    assert found == expected
    assert expected["state/param_states/head/kernel/v"] == P()


def test_a_train_state_of_flax_with_adam(mesh: Mesh, variables: Any) -> None:
    model = Model()
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3))
    expected = by_flax(variables["params_axes"])
    found = specs(resolved(state, LogicalAxes(mesh, RULES, variables["params_axes"])))
    for root in ("params", "opt_state/0/mu", "opt_state/0/nu"):
        assert {key: found.pop(f"{root}/{key}") for key in expected} == expected
    assert found == {"opt_state/0/count": P()} | ({"step": P()} if "step" in found else {})


def test_variables_with_several_collections(mesh: Mesh, variables: Any) -> None:
    variables, axes = split_axes(variables)
    rules = (*RULES, ("length", "model"))
    found = specs(resolved(variables, LogicalAxes(mesh, rules, axes)))
    assert found == {
        **{f"params/{key}": spec for key, spec in by_flax(axes["params"], rules).items()},
        **{f"cache/{key}": spec for key, spec in by_flax(axes["cache"], rules).items()},
    }
    state = {"params": variables["params"], "ema": variables["params"], "extra": {"x": shape(8)}}
    found = specs(resolved(state, LogicalAxes(mesh, rules, {"params": axes["params"]})))
    for root in ("params", "ema"):
        expected = {f"{root}/{k}": spec for k, spec in by_flax(axes["params"]).items()}
        assert {key: found.pop(key) for key in expected} == expected
    assert found == {"extra/x": P()}


def test_a_slot_takes_the_axes_of_the_longest_path(mesh: Mesh) -> None:
    """A parameter may have the name of a slot, or that of another parameter's last component."""
    axes = {"kernel": ("mlp", None), "dense": {"kernel": (None, "mlp")}, "m": (None, "mlp")}
    array = shape(8, 8)
    params = {"kernel": array, "dense": {"kernel": array}, "m": array}
    slots = jax.tree.map(lambda leaf: {"m": leaf, "v": leaf}, params)
    state = {"target": params, "state": {"param_states": slots, "step": shape()}}
    found = specs(resolved(state, LogicalAxes(mesh, RULES, axes)))
    for path, spec in (
        ("kernel", P("model", None)),
        ("dense/kernel", P(None, "model")),
        ("m", P(None, "model")),
    ):
        for key in (f"target/{path}", *(f"state/param_states/{path}/{slot}" for slot in "mv")):
            assert found.pop(key) == spec
    assert found == {"state/step": P()}


def test_numbers_and_none(mesh: Mesh) -> None:
    tree = {"scale": shape(), "table": shape(8, 8), "bias": shape(8), "on_host": np.zeros(3)}
    axes = {"scale": (), "table": None, "bias": P("unknown")}
    found = specs(resolved(tree, LogicalAxes(mesh, {"mlp": "model"}, axes)))
    assert found == {"scale": P(), "table": P(), "bias": P(None)}


def test_restore_puts_each_array_where_its_names_say(mesh: Mesh, variables: Any) -> None:
    state = t5x_state(variables["params"], 0.9)
    stored = jax.tree.map(np.asarray, state)
    given = LogicalAxes(mesh, RULES, variables["params_axes"])
    restored = ckpt_surgery.restore(None, stored, target=jax.eval_shape(lambda: state), shardings=given)
    found, expected = flat(restored), flat(stored)
    for key, spec in by_flax(variables["params_axes"]).items():
        for place in (f"target/{key}", f"state/param_states/{key}/m"):
            assert found[place].sharding == NamedSharding(mesh, spec)
            assert np.array_equal(found[place], expected[place])


def test_restore_without_a_target_leaves_numbers_of_64_bits_on_the_host(mesh: Mesh) -> None:
    source = {"params": {"w": np.arange(8, dtype=np.float32)}, "step": np.array(2**40)}
    restored = ckpt_surgery.restore(None, source, shardings=LogicalAxes(mesh, RULES, {"w": ("mlp",)}))
    assert restored["params"]["w"].sharding == NamedSharding(mesh, P("model"))
    assert restored["step"] == 2**40


def test_boxes_of_flax_name_the_axes_of_parameters_that_have_no_others(mesh: Mesh) -> None:
    boxed = nn.Partitioned(shape(8, 8), ("data", None))
    found = resolved({"a": boxed, "b": shape(8)}, LogicalAxes(mesh, RULES, {"b": ("mlp",)}))
    assert sorted(map(str, specs(found).values())) == sorted([str(P("data", None)), str(P("model"))])


# --- what is refused --------------------------------------------------------------------------------------


def test_parameters_whose_names_do_not_fit_are_refused_together(mesh: Mesh) -> None:
    params = {
        **{f"layers_{i}": {"kernel": shape(8, 8), "bias": shape(8)} for i in range(12)},
        "head": {"kernel": shape(8, 8)},
        "tied": {"kernel": shape(8, 8)},
    }
    axes = {
        **{f"layers_{i}": {"kernel": ("embed", "mlp", "heads")} for i in range(12)},
        "head": {"kernel": ("embed",)},
        "tied": {"kernel": ("embed", "embed")},
    }
    for state in ({"target": params, "state": {"step": shape()}}, {"params": params}, params):
        root = {"target": "target/", "params": "params/"}.get(next(iter(state)), "")
        messages = [message for message, _ in refused(PlanError, state, LogicalAxes(mesh, RULES, axes))]
        assert sorted(messages) == [
            f"`{root}head/kernel`: 2 axes have the names (embed)",
            f"`{root}layers_{{0..11}}/bias`: no names of axes are given",
            f"`{root}layers_{{0..11}}/kernel`: 2 axes have the names (embed, mlp, heads)",
            f"`{root}tied/kernel`: a name is twice in (embed, embed)",
        ]


def test_axes_of_another_model_or_mesh_are_refused(mesh: Mesh) -> None:
    given = LogicalAxes(mesh, RULES, {"decoder": {"kernel": ("embed", "mlp")}})
    message = says(PlanError, {"params": {"encoder": {"kernel": shape(8, 8)}}}, given)
    assert "`decoder/kernel`" in message
    assert "`params/encoder/kernel`" in message
    strange = LogicalAxes(mesh, [("mlp", "modle")], {"w": ("mlp",)})
    assert "did you mean `model`?" in says(UsageError, {"w": shape(8)}, strange)


def test_what_are_no_rules_no_names_or_no_mesh(mesh: Mesh) -> None:
    for rules in ("mlp", 7, [("mlp", 3)], [("mlp",)], [(3, "model")], [("mlp", ["model", 3])]):
        with pytest.raises(UsageError, match="`LogicalAxes`"):
            LogicalAxes(mesh, rules, {})
    for names in (3, np.zeros(3), ("mlp", 3)):
        with pytest.raises(UsageError, match="at `w"):
            LogicalAxes(mesh, RULES, {"w": names})
    for what in (AbstractMesh((8,), ("data",)), None, {"data": 8}):
        with pytest.raises(UsageError, match="mesh of `LogicalAxes`"):
            LogicalAxes(what, RULES, {})


# --- variables and their axes -----------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [False, True])
def test_split_axes_gives_what_flax_calls_the_names(frozen: bool, variables: Any) -> None:
    given = freeze(variables) if frozen else variables
    kept, axes = split_axes(given)
    assert type(kept) is type(axes) is type(given)
    assert set(kept) == {"params", "cache"}
    assert set(axes) == {"params", "cache"}
    for name in axes:
        assert flat(axes[name]).keys() == flat(kept[name]).keys()
        # flax's own function takes the result, too
        expected = partitioning.get_axis_names(variables[f"{name}_axes"])
        assert partitioning.get_axis_names(axes[name]) == expected
    assert "params_axes" in given
    assert kept["params"]["table"] is variables["params"]["table"]


def test_split_axes_keeps_what_belongs_to_nothing() -> None:
    variables = {"params": {"w": 1, "kept_axes": 2}, "lone_axes": {"w": 3}, "cache": {"i": 4}}
    assert split_axes(variables) == (variables, {})
    axes = {"w_axes": ("embed",), "kept_axes": (), "more_axes": ("mlp",)}
    kept, split = split_axes({**variables, "params_axes": axes})
    assert kept == variables
    assert split == {"params": {"w": ("embed",), "kept_axes": (), "more": ("mlp",)}}


def test_split_axes_asks_no_names_for_empty_dicts() -> None:
    axes = {"w_axes": ("embed",)}
    assert split_axes({"params": {"w": 1, "none": {}}, "params_axes": axes})[1] == {
        "params": {"w": ("embed",)}
    }
    assert split_axes({"params": {}, "params_axes": axes})[1] == {"params": {"w": ("embed",)}}


def test_split_axes_refuses_parameters_without_names() -> None:
    params = {f"layers_{i}": {"kernel": 0, "bias": {"x": 0}} for i in range(12)}
    axes = {f"layers_{i}": {"kernel_axes": ("embed",)} for i in range(12)}
    with pytest.raises(PlanError, match=r"`params/layers_\{0..11\}/bias/x`: no names"):
        split_axes({"params": params, "params_axes": axes})
