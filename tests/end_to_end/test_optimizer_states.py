"""Training states between Orbax and Flax's MessagePack, with the optimizers of Optax."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import orbax.checkpoint as ocp
import pytest
from flax.core import freeze
from flax.training import dynamic_scale
from flax.training.train_state import TrainState

import ckpt_surgery
from tests.support.checkpoints import quiet, save_standard
from tests.support.effort import SHARE, THOROUGH

Tree = Any
PARAMS = {
    "dense": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)},
    "layers": {"0": {"w": jnp.ones((2, 2))}, "1": {"w": jnp.zeros((2, 2))}},  # a dict, not a list
}


def labels(params: Tree) -> Tree:
    return {"dense": "slow", "layers": "fast"}


def number(params: Tree) -> Tree:
    return {"dense": "0", "layers": "1"}


def is_matrix(params: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


NAMES = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan"),
    *("amsgrad", "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "radam", "rmsprop"),
    *("rprop", "sgd", "sign_sgd", "sm3", "yogi"),
)
OPTIMIZERS: Mapping[str, Callable[[], optax.GradientTransformation]] = {
    **{name: lambda name=name: getattr(optax, name)(1e-3) for name in NAMES},
    "optimistic": lambda: optax.optimistic_gradient_descent(1e-3),
    "momentum": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3), optax.identity()),
    "schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "masked": lambda: optax.adamw(1e-3, mask=is_matrix),
    "inner mask": lambda: optax.masked(optax.adam(1e-3), is_matrix),
    "several": lambda: optax.multi_transform({"slow": optax.adam(1e-4), "fast": optax.sgd(1e-2)}, labels),
    "labels 0 and 1": lambda: optax.multi_transform({"0": optax.adam(1e-4), "1": optax.sgd(1e-2)}, number),
    "nothing unmasked": lambda: optax.masked(optax.adam(1e-3), lambda p: jax.tree.map(lambda _: False, p)),
    "muon": lambda: optax.contrib.muon(1e-3),
    "hyperparameters": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "several steps": lambda: optax.MultiSteps(optax.adam(1e-3), 4).gradient_transformation(),
    "if finite": lambda: optax.apply_if_finite(optax.adam(1e-3), 3),
    "lookahead": lambda: optax.chain(optax.trace(0.9), optax.ema(0.99)),
    "flattened": lambda: optax.flatten(optax.adam(1e-3)),
}


TRIED = list(OPTIMIZERS)[:: 1 if THOROUGH else SHARE]


def state_of(optimizer: optax.GradientTransformation) -> TrainState:
    """A state whose moments are not those of its start."""
    state = TrainState.create(apply_fn=None, params=PARAMS, tx=optimizer)
    gradients = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5, leaf.dtype), PARAMS)
    _, opt_state = optimizer.update(gradients, state.opt_state, PARAMS)
    return state.replace(opt_state=opt_state, step=7)


@pytest.fixture(scope="module")
def states() -> dict[str, TrainState]:
    return {name: state_of(OPTIMIZERS[name]()) for name in TRIED}


@pytest.fixture(scope="module")
def converted(states: Mapping[str, TrainState], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All states in a checkpoint of Orbax and in a file of Flax, and each of them converted to the other."""
    directory = tmp_path_factory.mktemp("states")
    save_standard(directory / "orbax", states)
    (directory / "flax.msgpack").write_bytes(flax.serialization.to_bytes(states))
    ckpt_surgery.convert(directory / "orbax", directory / "from_orbax.msgpack")
    ckpt_surgery.convert(directory / "flax.msgpack", directory / "from_flax")
    return directory


def restored(path: Path, target: Tree = None) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def structure_of(tree: Tree) -> Any:
    return jax.tree.structure(tree)


def assert_equal(found: Tree, wanted: Tree) -> None:
    assert structure_of(found) == structure_of(wanted)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize("name", TRIED)
def test_flax_restores_what_orbax_saved(name: str, states: Mapping[str, TrainState], converted: Path) -> None:
    tree = flax.serialization.msgpack_restore((converted / "from_orbax.msgpack").read_bytes())
    assert_equal(flax.serialization.from_state_dict(states[name], tree[name]), states[name])


def test_orbax_restores_what_flax_saved(states: Mapping[str, TrainState], converted: Path) -> None:
    found = restored(converted / "from_flax", jax.eval_shape(lambda: states))
    for name, state in states.items():
        assert_equal(found[name], state)


def test_parameters_that_are_numbered_themselves(tmp_path: Path) -> None:
    """A chain has the keys of these parameters."""
    parameters = {"0": jnp.ones((2, 2)), "1": jnp.zeros(2)}
    chains = {
        "schedule": optax.chain(optax.scale_by_schedule(lambda _: 1.0), optax.trace(0.9)),
        "adam": optax.adam(1e-3),
        "empty": optax.chain(optax.identity(), optax.identity()),
    }
    states = {
        name: TrainState.create(apply_fn=None, params=parameters, tx=made) for name, made in chains.items()
    }
    (tmp_path / "in.msgpack").write_bytes(flax.serialization.to_bytes(states))
    ckpt_surgery.convert(tmp_path / "in.msgpack", tmp_path / "out")
    assert_equal(restored(tmp_path / "out", jax.eval_shape(lambda: states)), states)


def test_what_is_no_state_of_an_optimizer_stays_as_it_is(tmp_path: Path) -> None:
    moments = {"encoder": {"layer": {"0": np.ones(2), "1": np.ones(2)}}, "none": {}}
    tree = {
        "params": {"encoder": {"layer": {"0": np.ones(2), "1": np.ones(2)}}, "none": {}},
        "dynamic_scale": None,
        "batch_stats": {"0": {"mean": np.ones(2)}},
        "opt_state": {"0": {}, "1": {"mu": moments}},
    }
    (tmp_path / "in.msgpack").write_bytes(flax.serialization.msgpack_serialize(tree))
    ckpt_surgery.convert(tmp_path / "in.msgpack", tmp_path / "out")
    found = restored(tmp_path / "out")
    layers, wanted = tree["params"]["encoder"], tree["params"]
    assert structure_of(found["params"]) == structure_of(wanted)
    assert found["dynamic_scale"] is None
    assert list(found["batch_stats"]) == ["0"]
    assert isinstance(found["opt_state"], list)
    assert found["opt_state"][0] is None
    mu = found["opt_state"][1]["mu"]
    assert structure_of(mu["encoder"]) == structure_of(layers)
    assert mu["none"] == {}  # the parameters have it, too


def test_a_state_with_statistics_and_a_scale_goes_both_ways(tmp_path: Path) -> None:
    class State(TrainState):
        batch_stats: Any
        dynamic_scale: Any

    for number, scale in enumerate([None, dynamic_scale.DynamicScale()]):
        made = state_of(optax.adam(1e-3))
        state = State(**vars(made), batch_stats=freeze({"bn": {"mean": jnp.ones(3)}}), dynamic_scale=scale)
        save_standard(tmp_path / f"a{number}", state)
        ckpt_surgery.convert(tmp_path / f"a{number}", tmp_path / f"b{number}.msgpack")
        data = (tmp_path / f"b{number}.msgpack").read_bytes()
        assert_equal(flax.serialization.from_bytes(state, data), state)
        ckpt_surgery.convert(tmp_path / f"b{number}.msgpack", tmp_path / f"c{number}")
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        assert_equal(restored(tmp_path / f"c{number}", abstract), state)
