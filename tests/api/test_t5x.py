"""Programs of T5X as recipes: translators and what they need around them, traced and carried out."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import traverse_util
from jax.sharding import NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery import LazyArray
from ckpt_surgery.core.errors import UsageError
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
    function = lambda flat: with_shared_biases(with_missing_slots(translator.apply(flat)))  # noqa: E731
    state = ckpt_surgery.restore(function, checkpoint, target=target, flat=True)
    assert_same(flat(state), expected)
    assert state["target"]["token_embedder"]["embedding"].sharding == replicated


def test_nothing_is_read_while_planning(variables: Arrays) -> None:
    """Shapes and dtypes are enough."""
    abstract = {
        k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in variables.items() if v.dtype.itemsize < 8
    }
    source = nested(abstract | {"global_step": jax.ShapeDtypeStruct((), jnp.int32)})
    recipe = ckpt_surgery.from_t5x_translator(importer(), source=source)
    assert len(ckpt_surgery.plan(recipe, source).steps) == len(variables)


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


# --- flat dicts -------------------------------------------------------------------------------------------


def test_what_the_function_does_not_give_is_the_target_s() -> None:
    source = {"params": {"w": np.ones(2, np.float32), "old": np.zeros(1, np.float32)}}
    target = {"params": {"w": jnp.zeros(2), "new": jnp.full(3, 7.0)}}
    wanted = {"params/w": np.ones(2, np.float32), "params/new": np.full(3, 7, np.float32)}
    for function in (ckpt_surgery.restore, ckpt_surgery.load_and_transform):
        found = function(lambda flat: {"params/w": flat["params/w"]}, source, target=target, flat=True)
        assert_same(flat(found), wanted)


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
