"""The same model in flax.linen and flax.nnx: real checkpoints of each, restored in the other one."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from ckpt_surgery import restore
from ckpt_surgery.api import applying
from tests.recipes.running import RECIPES, Run, Save, fails, planned
from tests.support.checkpoints import quiet, random, restored, restored_leaves, save_standard
from tests.support.comparing import assert_same

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
TOKENS = np.arange(6).reshape(2, 3) % 5
IMAGE = np.random.default_rng(0).standard_normal((2, 4, 4, 3)).astype(np.float32)


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        normed = nn.LayerNorm(name="norm")(x)
        x = x + nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, name="attention")(
            normed, deterministic=not train
        )
        up = nn.gelu(nn.Dense(16, name="up")(x))
        return x + nn.Dense(8, name="down")(nn.Dropout(0.1, deterministic=not train)(up))


class LinenHead(nn.Module):
    def setup(self) -> None:
        self.layers: Any = [nn.Dense(4), nn.relu, nn.Dense(3)]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x


class LinenModel(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array, image: jax.Array, train: bool = False) -> jax.Array:
        x = nn.Embed(5, 8, name="embed")(tokens)
        seen = nn.Conv(8, (3, 3), name="conv")(image)
        seen = nn.BatchNorm(use_running_average=not train, name="batch_norm")(seen)
        x = x + seen.mean((1, 2))[:, None]
        for i in range(2):
            x = LinenBlock(name=f"blocks_{i}")(x, train)
        return LinenHead(name="head")(x)


class NnxBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, dropout_rate=0.1, decode=False, rngs=rngs)
        self.up = nnx.Linear(8, 16, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.down = nnx.Linear(16, 8, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm(x))
        return x + self.down(self.dropout(nnx.gelu(self.up(x))))


class NnxModel(nnx.Module):
    def __init__(self, seed: int):
        rngs = nnx.Rngs(seed)
        self.rngs = rngs
        self.embed = nnx.Embed(5, 8, rngs=rngs)
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.batch_norm = nnx.BatchNorm(8, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])
        self.head = nnx.Sequential(nnx.Linear(8, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 3, rngs=rngs))

    def __call__(self, tokens: jax.Array, image: jax.Array) -> jax.Array:
        x = self.embed(tokens)
        x = x + self.batch_norm(self.conv(image)).mean((1, 2))[:, None]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class LinenState(TrainState):
    batch_stats: Any


def linen_output(state: LinenState, params: Any) -> jax.Array:
    return state.apply_fn({"params": params, "batch_stats": state.batch_stats}, TOKENS, IMAGE)


def linen_step(state: LinenState) -> LinenState:
    grads = jax.grad(lambda params: (linen_output(state, params) ** 2).sum())(state.params)
    return state.apply_gradients(grads=grads)


def linen_state(seed: int) -> LinenState:
    """A state in the middle of a training: statistics and slots are not what they were at the start."""
    model = LinenModel()
    variables = jax.jit(model.init)(jax.random.key(seed), TOKENS, IMAGE)
    _, changed = model.apply(
        variables, TOKENS, IMAGE, train=True, rngs={"dropout": jax.random.key(1)}, mutable=["batch_stats"]
    )
    state = LinenState.create(apply_fn=model.apply, params=variables["params"], tx=TX, **changed)
    return linen_step(state)


def nnx_step(model: NnxModel, optimizer: Any) -> None:
    grads = nnx.grad(lambda m: (m(TOKENS, IMAGE) ** 2).sum())(model)
    optimizer.update(model, grads)


def nnx_state(seed: int) -> tuple[NnxModel, Any]:
    model = NnxModel(seed)
    optimizer = nnx.Optimizer(model, TX, wrt=nnx.Param)
    model.train()
    model(TOKENS, IMAGE)
    model.eval()
    nnx_step(model, optimizer)
    return model, optimizer


def tree_of(model: Any, optimizer: Any) -> dict[str, Any]:
    """What a training program saves of both; states stay as they are."""
    return {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}


def restored_as(path: Path, target: Any) -> Any:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def same_after_a_step(linen: LinenState, model: NnxModel, optimizer: Any) -> None:
    """The outputs now, and those after one more step of both optimizers, are the same to the last bit."""
    for _ in range(2):
        ours = np.asarray(model(TOKENS, IMAGE))
        np.testing.assert_array_equal(ours, np.asarray(linen_output(linen, linen.params)))
        linen = linen_step(linen)
        nnx_step(model, optimizer)
    assert int(optimizer.step[...]) == int(linen.step) == 3


@pytest.mark.slow("trains states of Flax")
def test_a_training_goes_on_in_the_other_framework(tmp_path: Path) -> None:
    linen, (model, optimizer) = linen_state(3), nnx_state(5)
    save_standard(tmp_path / "linen", linen)
    save_standard(tmp_path / "fresh", tree_of(model, optimizer))
    applying.apply("@linen-to-nnx", tmp_path / "linen", dst=tmp_path / "new", target=tmp_path / "fresh")
    new = restored_as(tmp_path / "new", tree_of(model, optimizer))
    nnx.update(model, new["model"])
    nnx.update(optimizer, new["optimizer"])
    same_after_a_step(linen, model, optimizer)
    other, (model, optimizer) = linen_state(6), nnx_state(4)
    save_standard(tmp_path / "nnx", tree_of(model, optimizer))
    applying.apply("@nnx-to-linen", tmp_path / "nnx", dst=tmp_path / "other", target=tmp_path / "linen")
    same_after_a_step(restored_as(tmp_path / "other", other), model, optimizer)


# --- the same models, not computed ----------------------------------------------------------------


def with_values(tree: Any, seed: int) -> Any:
    """The tree with random values in the place of shapes; keys of random number streams too."""
    leaves, structure = jax.tree.flatten(tree)
    made = [
        jax.random.key(seed + i)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.asarray(random(leaf.shape, seed + i) * 100).astype(leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, made)


def linen_variables() -> Any:
    return with_values(jax.eval_shape(LinenModel().init, jax.random.key(0), TOKENS, IMAGE), 0)


def linen_whole() -> LinenState:
    variables = linen_variables()
    state = LinenState.create(
        apply_fn=None, params=variables["params"], tx=TX, batch_stats=variables["batch_stats"]
    )
    return state.replace(step=7, opt_state=with_values(state.opt_state, 100))


def nnx_whole(seed: int) -> dict[str, Any]:
    model = nnx.eval_shape(lambda: NnxModel(0))
    optimizer = nnx.eval_shape(lambda: nnx.Optimizer(NnxModel(0), TX, wrt=nnx.Param))
    return {
        "model": with_values(nnx.state(model), seed),
        "optimizer": with_values(nnx.state(optimizer), seed),
    }


def pure(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: nnx.to_pure_dict(state) for name, state in tree.items()}


def test_the_model_alone(save: Save, run: Run, tmp_path: Path) -> None:
    """Variables without an optimizer, and a state whose `params` are all variables; the model at the root."""
    variables, model = linen_variables(), nnx_whole(200)["model"]
    path, fresh = save("linen", variables), save("fresh", model)
    found = run("@linen-to-nnx", path, target=fresh, name="new")
    assert_same(run("@linen-to-nnx", save("within", {"params": variables}), target=fresh, name="same"), found)
    back = run("@nnx-to-linen", tmp_path / "new", target=path, name="back")
    assert_same(back, restored_leaves(variables))


EXAMPLES = {
    "model/blocks/1/attention/value/kernel": "params/blocks_1/attention/value/kernel",
    "model/head/layers/2/bias": "params/head/layers_2/bias",
    "model/batch_norm/var": "batch_stats/batch_norm/var",
    "optimizer/opt_state/1/0/nu/blocks/0/norm/scale": "opt_state/1/0/nu/blocks_0/norm/scale",
    "optimizer/opt_state/1/0/count": "opt_state/1/0/count",
}


@pytest.mark.parametrize("layout", [dict, pure])
def test_states_in_memory(layout: Callable[[Any], Any]) -> None:
    """`restore`, from tree to tree: what the program has afterwards is a state of the other kind."""
    linen, fresh = linen_whole(), layout(nnx_whole(200))
    new = restore("@linen-to-nnx", linen, target=fresh)
    assert repr(jax.tree.structure(new)) == repr(jax.tree.structure(fresh))
    found, old, before = (
        {key.replace(".", ""): leaf for key, leaf in restored_leaves(tree).items()}  # attributes as keys
        for tree in (new, linen, fresh)
    )
    end = "" if layout is pure else "/value"
    assert_same({key: found[key + end] for key in EXAMPLES}, {key: old[was] for key, was in EXAMPLES.items()})
    rngs = {key for key in found if "/rngs/" in key}
    assert len(rngs) == 10
    assert_same({key: found[key] for key in rngs}, {key: before[key] for key in rngs})
    step = found[f"optimizer/step{end}"]
    assert (int(step), step.dtype) == (7, np.uint32)
    back = restore("@nnx-to-linen", new, target=linen.replace(step=0))
    assert (type(back.step), back.step) == (int, 7)
    assert_same(restored_leaves(back), restored_leaves(linen))


def test_an_abstract_model() -> None:
    """It has shapes, but no random number streams that the result could keep."""
    variables = linen_variables()
    model = nnx.eval_shape(lambda: NnxModel(0))
    fails(
        "the target has no value for it: it has shapes and dtypes alone (at `blocks/{0,1}/attention/",
        lambda: restore("@linen-to-nnx", variables, target=nnx.state(model, nnx.RngState)),
    )
    new = restore("@linen-to-nnx", variables, target=nnx.state(model, nnx.Not(nnx.RngState)))
    found, wanted = (
        np.asarray(new["head"]["layers"][2]["bias"][...]),
        variables["params"]["head"]["layers_2"],
    )
    assert_same({"bias": found}, {"bias": np.asarray(wanted["bias"])})
    assert len(jax.tree.leaves(new)) == len(jax.tree.leaves(variables))


@pytest.mark.parametrize(
    ("recipe", "sources", "target", "says"),
    [
        ("linen-to-nnx", ["params/a/b"], ["a/b/value", "b/b/value"], "called `linen/b/b`"),
        ("linen-to-nnx", ["a/kernel"], ["a/kernel"], "the rule claims nothing: no key matches"),
        ("linen-to-nnx", ["params/a", "batch_stats/a"], ["a"], "two leaves would be called `linen/a`"),
        ("linen-to-nnx", ["params/a"], None, "`fill` needs a target"),
        ("linen-to-nnx", ["params/a"], ["a/value", "opt_state/0/n/value"], "called `opt_state/0/n`"),
        ("nnx-to-linen", ["a/kernel/value"], ["params/a/kernel", "cache/a/b"], "cache/a/b"),
        ("nnx-to-linen", ["a/0/b/value", "a_0/b/value"], ["params/a_0/b"], "would be called `nnx/a_0/b`"),
    ],
)
def test_what_is_refused(recipe: str, sources: list[str], target: list[str] | None, says: str) -> None:
    fails(says, lambda: planned(recipe, sources, target=target))


def test_other_collections_containers_and_streams() -> None:
    options = ["collections=[params, cache]", "model=", "rngs=[noise]"]
    linen, nnx_keys = ["params/model/a", "cache/model/b"], ["model/a/value", "model/b/value"]
    streams = ["model/noise/key/value", "noise/default/count/value"]
    plan = planned("linen-to-nnx", linen, target=nnx_keys + streams, overrides=options)
    assert {s.leaf.key.text: str(s.fate) for s in plan.steps} == {
        **dict.fromkeys(nnx_keys, "renamed"),
        **dict.fromkeys(streams, "defaulted"),
    }
    plan = planned("nnx-to-linen", nnx_keys + streams, target=linen, overrides=options)
    assert [s.leaf.key.text for s in plan.steps] == linen
    assert [d.leaf.key.text for d in plan.dropped] == streams


def test_modules_with_other_names(save: Save, run: Run, tmp_path: Path) -> None:
    """The pass that the header of the recipe shows."""
    text = (RECIPES / "linen-to-nnx.yaml").read_text()
    shown = re.search(r"((?:^#     .*\n)+)#\n# Parameters in boxes", text, re.MULTILINE)
    assert shown is not None
    added = "".join(f"  {line[6:]}\n" for line in shown[1].splitlines())
    path = save("linen", {"params": {"Dense_0": {"kernel": random((2, 3))}}})
    fresh = save("fresh", {"head": {"kernel": {"value": random((2, 3), 1)}}})
    new = run(text.replace("passes:\n", f"passes:\n{added}"), path, target=fresh)
    assert_same(new, {"head/kernel/value": random((2, 3))})


# --- optimizers -----------------------------------------------------------------------------------


class Small(nnx.Module):
    """Lists inside of lists, and a list of parameters."""

    def __init__(self) -> None:
        self.layers = nnx.List(
            [nnx.Dict({"heads": nnx.List([nnx.Param(jnp.ones((2, 3)) * i)])}) for i in range(2)]
        )
        self.scales = nnx.List([nnx.Param(jnp.ones(3) * i) for i in range(3)])
        self.model = nnx.Dict({"step": nnx.Param(jnp.zeros(2))})
        self.head = nnx.Param(jnp.ones(4))


SMALL = {
    **{f"layers_{i}": {"heads_0": jnp.ones((2, 3)) * i} for i in range(2)},
    **{f"scales_{i}": jnp.ones(3) * i for i in range(3)},
    "model": {"step": jnp.zeros(2)},
    "head": jnp.ones(4),
}


def labels(tree: Any) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, x: "wide" if x.ndim == 2 else "flat", tree)


OPTIMIZERS: Mapping[str, Callable[[], optax.GradientTransformation]] = {
    "momentum": lambda: optax.sgd(1e-2, momentum=0.9),
    "nested chains": lambda: optax.chain(optax.chain(optax.trace(0.9), optax.scale(2.0)), optax.adam(1e-2)),
    "masked": lambda: optax.masked(optax.adam(1e-2), lambda tree: jax.tree.map(lambda x: x.ndim == 2, tree)),
    "several": lambda: optax.multi_transform(
        {"wide": optax.adam(1e-2), "flat": optax.sgd(1e-2, 0.9)}, labels
    ),
    "every second": lambda: optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation(),
    "hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-2),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=1),
}


@pytest.mark.slow("trains states of Flax")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_of_optimizers(name: str, save: Save, run: Run) -> None:
    """The same steps in both frameworks: the converted state is the one that the other framework has."""
    tx = OPTIMIZERS[name]()
    state = TrainState.create(apply_fn=None, params=SMALL, tx=tx)
    model = Small()
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    for _ in range(3):
        state = state.apply_gradients(grads=jax.tree.map(lambda x: x + 1, state.params))
        optimizer.update(model, jax.tree.map(lambda x: x + 1, nnx.state(model, nnx.Param)))
    fresh = Small()
    zeros = tree_of(fresh, nnx.Optimizer(fresh, tx, wrt=nnx.Param))
    path, wanted = save("linen", state), save("trained", tree_of(model, optimizer))
    new = run("@linen-to-nnx", path, target=save("fresh", zeros), name="new")
    compared(new, restored(wanted), "optimizer/step/value")
    start = TrainState.create(apply_fn=None, params=SMALL, tx=tx)
    back = run("@nnx-to-linen", wanted, target=save("start", start), name="back")
    compared(back, restored(path), "step")


def compared(new: dict[str, Any], wanted: dict[str, Any], step: str) -> None:
    """All is the same; of the step, its value: a number in one framework, an array in the other."""
    assert int(new.pop(step)) == int(wanted.pop(step)) == 3
    assert_same(new, wanted)
