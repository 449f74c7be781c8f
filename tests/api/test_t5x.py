"""Programs of T5X as recipes: translators and what they need around them, traced and carried out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import linen as nn
from flax import struct, traverse_util
from flax.linen import partitioning
from flax.linen.spmd import logical_to_mesh_axes
from jax.sharding import NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery import LazyArray
from ckpt_surgery.core.errors import SurgeryError, UsageError
from ckpt_surgery.t5x import CheckpointTranslator
from tests.formats.tensorflow.bundles import Piece, save_pieces
from tests.recipes import t5_layouts as layouts
from tests.recipes.t5_layouts import Size
from tests.recipes.test_t5 import Arrays, filled
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.shardings import eight_devices
from tests.support.t5x_files import save_state
from tests.support.t5x_importer import importer, in_t5x, with_missing_slots, with_shared_biases
from tests.support.trees import nested

HERE = Path(__file__).name
PARAMETERS = layouts.t5(Size(), "1.1", "shared")


@pytest.fixture(scope="module")
def variables() -> Arrays:
    """A T5 1.1 with Adafactor's slots, of random bits, under the names of Mesh TensorFlow."""
    arrays = filled(layouts.mesh_variables(PARAMETERS, "factored", "bfloat16"))
    return arrays | {"global_step": np.array(1_000_000, np.int64)}


@pytest.fixture
def checkpoint(variables: Arrays, tmp_path: Path) -> Path:
    return Path(save_pieces(tmp_path / "model.ckpt-1000000", [Piece(*item) for item in variables.items()]))


def in_numpy(translator: Any, arrays: Arrays, **options: Any) -> dict[str, Any]:
    """What T5X makes of arrays, once it has read its lazy ones."""
    return in_t5x(translator.rules, arrays, **options) | {"state/step": np.array(1_000_000, np.int32)}


def flat(tree: Any) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in traverse_util.flatten_dict(tree, sep="/").items()}


# --- translators ------------------------------------------------------------------------------------------


def test_an_importer_as_a_recipe(variables: Arrays, checkpoint: Path, tmp_path: Path) -> None:
    translator = importer()
    expected = in_numpy(translator, variables)
    recipe = ckpt_surgery.from_t5x_translator(translator, source=checkpoint)
    plan = ckpt_surgery.apply(recipe, checkpoint, dst=tmp_path / "out").plan
    assert_same(restored(tmp_path / "out"), expected)
    assert [step.leaf.key.text for step in plan.steps if step.fate.value != "renamed"] == ["state/step"]
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    assert_same(flat(ckpt_surgery.restore(tmp_path / "recipe.yaml", checkpoint)), expected)


@pytest.mark.slow("trains and restores states of Flax")
def test_post_processing_around_a_translator(variables: Arrays, checkpoint: Path) -> None:
    """All that `load_tf_ckpt` and T5X's importer do, into a train state on devices."""
    translator = importer()
    expected = with_shared_biases(with_missing_slots(in_numpy(translator, variables)))
    described = {key: layouts.spec(value.shape, value.dtype.name) for key, value in expected.items()}
    assert described == layouts.train_state(PARAMETERS, "factored", "bfloat16")
    replicated = NamedSharding(eight_devices(), PartitionSpec())
    target: Any = traverse_util.unflatten_dict(
        {k: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=replicated) for k, v in expected.items()}, sep="/"
    )
    state = ckpt_surgery.restore(
        lambda flat: with_shared_biases(with_missing_slots(translator.apply(flat))),
        checkpoint,
        target=target,
        flat=True,
    )
    assert_same(flat(state), expected)
    assert state["target"]["token_embedder"]["embedding"].sharding == replicated


def test_nothing_is_read_while_planning(variables: Arrays) -> None:
    """Shapes and dtypes are enough."""
    translator, seen = importer(), []

    def function(flat: Mapping[str, Any]) -> Any:
        seen.extend(flat.values())
        return translator.apply(flat)

    abstract = {
        k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in variables.items() if v.dtype.itemsize < 8
    }
    source = nested(abstract | {"global_step": jax.ShapeDtypeStruct((), jnp.int32)})
    ckpt_surgery.plan(ckpt_surgery.from_t5x_translator(translator, source=source), source)
    with pytest.raises(SurgeryError, match="has no values for"):
        ckpt_surgery.restore(function, source, flat=True)
    assert len(seen) == len(variables)
    assert all(isinstance(value, LazyArray) for value in seen)


def test_values_are_computed_as_the_functions_do(tmp_path: Path) -> None:
    translator = CheckpointTranslator()

    @translator.add(r"enc/(\d+)/w(_T)?")
    def weight(opts: Any, key: str, val: Any, n: str, turned: str | None) -> Any:
        assert val.shape == (4, 6)  # shapes and dtypes are real
        val = val.T if turned else val
        return f"layers_{int(n) + opts['first']}/w", val.astype(np.float32) * opts["scale"]

    @translator.add(r"split/(\w+)")
    def split(opts: Any, key: str, val: Any, name: str) -> Any:
        return (None, None) if name == "unused" else (name, jnp.concatenate([val[1:], val[:1] + 1]))

    arrays = {
        f"enc/{i}/w{turned}": np.arange(24, dtype=ml_dtypes.bfloat16).reshape(4, 6) + i
        for i, turned in enumerate(["", "_T", ""])
    } | {"split/a": np.arange(6, dtype=np.float32), "split/unused": np.ones(3, np.float32)}
    save_state(tmp_path / "in", arrays)
    options = {"first": 2, "scale": np.float32(0.3)}
    recipe = ckpt_surgery.from_t5x_translator(translator, source=tmp_path / "in", **options)
    expected = in_t5x(translator.rules, arrays, **options)
    found = flat(ckpt_surgery.restore(recipe, tmp_path / "in"))
    assert_same(found, {key: np.asarray(value) for key, value in expected.items()})


def test_translators_take_open_checkpoints(variables: Arrays, checkpoint: Path) -> None:
    translator = importer()
    with ckpt_surgery.open(checkpoint) as opened:
        found = translator.apply(opened)
        assert all(isinstance(value, LazyArray) for key, value in found.items() if key != "state/step")
        fetched = {key: np.asarray(value) for key, value in found.items()}
        assert_same(fetched, in_numpy(translator, variables))
        # what it gives is a source itself
        state = ckpt_surgery.restore(None, nested(with_missing_slots(found)))
        assert_same(flat(state), with_missing_slots(fetched))
        by_recipe = ckpt_surgery.restore(ckpt_surgery.from_t5x_translator(translator, source=opened), opened)
        assert_same(flat(by_recipe), fetched)


@pytest.mark.slow("trains and restores states of Flax")
def test_a_plan_of_a_function_of_flat_dicts(variables: Arrays, checkpoint: Path) -> None:
    translator = importer()
    plan = ckpt_surgery.plan_restore(lambda flat: translator.apply(flat), checkpoint, flat=True)
    assert {step.leaf.key.text for step in plan.steps} == in_numpy(translator, variables).keys()
    assert_same(flat(ckpt_surgery.restore(plan)), in_numpy(translator, variables))


# --- flat dicts -------------------------------------------------------------------------------------------


def test_what_the_function_does_not_give_is_the_target_s() -> None:
    source = {"params": {"w": np.ones(2, np.float32), "old": np.zeros(1, np.float32)}}
    target = {"params": {"w": jnp.zeros(2), "new": jnp.full(3, 7.0)}}
    found = ckpt_surgery.restore(
        lambda flat: {key: value for key, value in flat.items() if key != "params/old"},
        source,
        target=target,
        flat=True,
    )
    assert_same(flat(found), {"params/w": np.ones(2, np.float32), "params/new": np.full(3, 7, np.float32)})


def test_load_and_transform_has_flat_dicts_too() -> None:
    found = ckpt_surgery.load_and_transform(
        {"a": {"b": np.ones(2)}}, lambda flat: {"c/d": flat["a/b"]}, flat=True
    )
    assert np.array_equal(found["c"]["d"], np.ones(2))


# --- train states -----------------------------------------------------------------------------------------


class Model(nn.Module):
    """A model that names its axes, of parameters and of a mutable."""

    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        normal = nn.initializers.normal()
        table = partitioning.param_with_axes("table", normal, (16, 8), axes=("vocab", "embed"))
        kernel = partitioning.param_with_axes("kernel", normal, (8, 16), axes=("embed", "mlp"))
        index = partitioning.variable_with_axes("cache", "index", jnp.zeros, (8,), axes=("batch",))
        index.value += 1
        return table[ids] @ kernel


class InT5X(struct.PyTreeNode):
    """T5X's `FlaxOptimTrainState`, written anew: Adafactor without factors, with momentum."""

    step: Any
    params: Any
    param_states: Any
    params_axes: Any
    flax_mutables: Any

    @classmethod
    def create(cls, variables: Any) -> Any:
        params = variables["params"]
        slots = jax.tree.map(lambda leaf: {"m": leaf * 0, "v": leaf * 0, "v_row": jnp.zeros(1)}, params)
        mutables = {"cache": variables["cache"]}
        return cls(jnp.zeros((), jnp.int32), params, slots, variables["params_axes"], mutables)

    def state_dict(self) -> Any:
        state = {"step": self.step, "param_states": self.param_states}
        return {"target": self.params, "state": state, "flax_mutables": self.flax_mutables}

    def restore_state(self, state: Any) -> Any:
        return self.replace(
            step=state["state"]["step"],
            params=state["target"],
            param_states=state["state"]["param_states"],
            flax_mutables=state["flax_mutables"],
        )

    def mesh_axes(self, rules: Any) -> Any:
        """What T5X's partitioner gives each leaf of the state dict; None for whole."""
        specs = {
            key: logical_to_mesh_axes(names, rules)
            for key, names in traverse_util.flatten_dict(
                partitioning.get_axis_names(self.params_axes), sep="/"
            ).items()
        }
        found: dict[str, Any] = {"state/step": None, "flax_mutables/cache/index": None}
        for key, spec in specs.items():
            slots = f"state/param_states/{key}"
            found |= {f"target/{key}": spec, f"{slots}/m": spec, f"{slots}/v": spec, f"{slots}/v_row": None}
        return found


@pytest.mark.slow("trains and restores states of Flax")
def test_a_program_restores_its_train_state(tmp_path: Path) -> None:
    """A trained state comes from a file of T5X, divided as T5X's partitioner divides it."""
    rules = (("vocab", "model"), ("mlp", "model"), ("embed", None), ("batch", "data"))
    mesh = eight_devices()
    variables, axes = ckpt_surgery.t5x.split_axes(Model().init(jax.random.key(0), jnp.zeros((2,), jnp.int32)))
    fresh = InT5X.create({**variables, "params_axes": axes["params"]})
    stored = filled({k: layouts.spec(v.shape, v.dtype.name) for k, v in flat(fresh.state_dict()).items()})
    path = save_state(tmp_path / "checkpoint_500", stored)
    state = fresh.restore_state(
        ckpt_surgery.restore(
            None,
            path,
            target=jax.eval_shape(fresh.state_dict),
            shardings=ckpt_surgery.LogicalAxes(mesh, rules, fresh.params_axes),
        )
    )
    assert_same(flat(state.state_dict()), stored)
    placed = traverse_util.flatten_dict(state.state_dict(), sep="/")
    for key, spec in fresh.mesh_axes(rules).items():
        assert placed[key].sharding == NamedSharding(mesh, spec or PartitionSpec()), key
    # `replace_step`
    recipe = {"version": 1, "rules": [{"match": "state/step", "value": "7"}]}
    again = fresh.restore_state(ckpt_surgery.restore(recipe, path, target=fresh.state_dict()))
    assert_same(flat(again.state_dict()), stored | {"state/step": np.array(7, np.int32)})


# --- what is refused --------------------------------------------------------------------------------------


def test_what_no_expression_says_is_refused_with_the_line_of_the_function() -> None:
    translator = CheckpointTranslator()

    @translator.add(".*")
    def asks(opts: Any, key: str, val: Any) -> Any:
        return (key, val) if float(val) > 0 else (None, None)

    line = asks.__code__.co_firstlineno + 2
    for made in (
        lambda: ckpt_surgery.from_t5x_translator(translator, source={"w": np.float32(1)}),
        lambda: ckpt_surgery.restore(lambda f: translator.apply(f), {"w": np.float32(1)}, flat=True),
    ):
        with pytest.raises(UsageError, match=rf"`__float__`.* \(.*{HERE}:{line}\)"):
            made()


def test_what_no_recipe_says_names_where_the_rules_begin() -> None:
    translator = CheckpointTranslator()

    @translator.add(".*")
    def made(opts: Any, key: str, val: Any) -> Any:
        return key, object()

    place = rf"{HERE}:{made.__code__.co_firstlineno}\) returns an object of type builtins.object at `w`"
    with pytest.raises(UsageError, match=rf"`CheckpointTranslator` \(.*{place}"):
        ckpt_surgery.from_t5x_translator(translator, source={"w": np.float32(1)})
