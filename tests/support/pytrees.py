"""Pytrees of training programs: every kind of container, each with the keys that its leaves have."""

import collections
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState

# --- classes ----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


class Nothing(NamedTuple):
    """A NamedTuple without fields, such as optax's EmptyState."""


@jax.tree_util.register_dataclass
@dataclass
class Point:
    x: Any
    y: Any


@flax.struct.dataclass
class Settled:
    weights: Any
    name: str = flax.struct.field(pytree_node=False, default="static")


@jax.tree_util.register_pytree_node_class
class Keyless:
    """A node that was registered without names of its children."""

    def __init__(self, *children: Any):
        self.children = children

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> "Keyless":
        return cls(*children)


class Perceptron(eqx.Module):
    layers: list[Any]
    activation: Callable[..., Any]
    width: int = eqx.field(static=True, default=7)


class Dense(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(x)


class Boxed(nn.Module):
    """A layer whose parameters have names of axes, in boxes of flax."""

    box: Callable[..., Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x @ self.param("kernel", self.box(nn.initializers.ones, ("in", "out")), (2, 3))


class Blocks(nnx.Module):
    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(2, 3, rngs=rngs)
        self.rest = nnx.List([nnx.Linear(3, 3, use_bias=False, rngs=rngs)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs)


# --- trees ------------------------------------------------------------------------------------------------


def ones(*shape: int) -> jax.Array:
    return jnp.ones(shape or (3,))


def chain() -> optax.GradientTransformation:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


def train_state() -> TrainState:
    """A TrainState of linen, whose `apply_fn` and `tx` are static."""
    model = Dense()
    params = model.init(jax.random.key(0), ones(1, 2))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=chain())


def equinox_module() -> Perceptron:
    """A module with a function, and with a static field."""
    return Perceptron([eqx.nn.Linear(2, 3, key=jax.random.key(0))], jax.nn.relu)


def boxed(box: Callable[..., Any]) -> Any:
    return Boxed(box).init(jax.random.key(0), ones(1, 2))


def masked() -> Any:
    """The state of an optimizer that leaves out `b`."""
    params = {"a": ones(), "b": ones()}
    return optax.masked(optax.trace(0.9), {"a": True, "b": False}).init(params)


@dataclass(frozen=True)
class Kind:
    """A tree with one kind of container, and the keys of its leaves."""

    build: Callable[[], Any]
    keys: Mapping[str, str]
    """By the text of the key: `d` for each component in a dict, `l` for each in a list."""


OF_BLOCKS = {
    "dropout/rngs/count": "ddd",
    "dropout/rngs/key": "ddd",
    "first/bias": "dd",
    "first/kernel": "dd",
    "rest/0/kernel": "ddd",
}
"""Keys of the variables of `Blocks`."""


def with_value(keys: Mapping[str, str]) -> dict[str, str]:
    """Keys of variables with the attribute that holds their array."""
    return {f"{text}/value": f"{kinds}d" for text, kinds in keys.items()}


OF_NNX_ADAM = {
    "opt_state/1/0/count/value": "ddddd",
    "step/value": "dd",
    **{
        f"opt_state/1/0/{moment}/{text}/value": "ddddd" + OF_BLOCKS[text]
        for moment in ("mu", "nu")
        for text in ("first/bias", "first/kernel", "rest/0/kernel")
    },
}

KINDS: Mapping[str, Kind] = {
    "dict": Kind(lambda: {"b": {"c": ones()}, "a": ones()}, {"a": "d", "b/c": "dd"}),
    "FrozenDict": Kind(lambda: flax.core.freeze({"b": {"c": ones()}}), {"b/c": "dd"}),
    "OrderedDict": Kind(lambda: collections.OrderedDict(z=ones(), a=ones()), {"z": "d", "a": "d"}),
    "defaultdict": Kind(lambda: collections.defaultdict(list, q=ones()), {"q": "d"}),
    "numbers as keys": Kind(lambda: {2: {10: ones()}, 1: ones()}, {"1": "d", "2/10": "dd"}),
    "other keys": Kind(lambda: {(1, True): ones()}, {"(1, True)": "d"}),
    "slashes and dots in keys": Kind(
        lambda: {"a/b": ones(), "c.d": {"e/": ones()}}, {"a/b": "d", "c.d/e/": "dd"}
    ),
    "empty names": Kind(lambda: {"": ones(), "x": {"": ones()}}, {"": "d", "x/": "dd"}),
    "list": Kind(lambda: {"l": [ones(), [ones()]]}, {"l/0": "dl", "l/1/0": "dll"}),
    "tuple": Kind(lambda: (ones(), {"x": ones()}), {"0": "l", "1/x": "ld"}),
    "long list": Kind(lambda: [ones()] * 11, {str(i): "l" for i in range(11)}),
    "NamedTuple": Kind(
        lambda: Pair(ones(), Pair(ones(), [ones()])),
        {"first": "d", "second/first": "dd", "second/second/0": "ddl"},
    ),
    "dataclass": Kind(lambda: {"p": Point(ones(), [ones()])}, {"p/x": "dd", "p/y/0": "ddl"}),
    "flax.struct": Kind(lambda: Settled({"w": ones()}), {"weights/w": "dd"}),
    "node without names": Kind(lambda: {"k": Keyless(ones(), {"x": ones()})}, {"k/0": "dl", "k/1/x": "dld"}),
    "Equinox": Kind(
        lambda: eqx.filter(equinox_module(), eqx.is_array),
        {"layers/0/weight": "dld", "layers/0/bias": "dld", "activation": "d"},
    ),
    "Adam": Kind(
        lambda: optax.adam(1e-3).init({"w": ones()}),
        {"0/count": "ld", "0/mu/w": "ldd", "0/nu/w": "ldd", "1": "l"},
    ),
    "chain of optimizers": Kind(
        lambda: chain().init([ones()]),
        {"0": "l", "1/0/count": "lld", "1/0/mu/0": "lldl", "1/0/nu/0": "lldl", "1/1": "ll"},
    ),
    "masked optimizer": Kind(masked, {"inner_state/trace/a": "ddd", "inner_state/trace/b": "ddd"}),
    "TrainState": Kind(
        train_state,
        {
            "step": "d",
            "params/Dense_0/kernel": "ddd",
            "params/Dense_0/bias": "ddd",
            "opt_state/0": "dl",
            "opt_state/1/0/count": "dlld",
            **{f"opt_state/1/0/{m}/Dense_0/{p}": "dllddd" for m in ("mu", "nu") for p in ("bias", "kernel")},
            "opt_state/1/1": "dll",
        },
    ),
    "Partitioned": Kind(lambda: boxed(nn.with_partitioning), {"params/kernel/value": "ddd"}),
    "LogicallyPartitioned": Kind(lambda: boxed(nn.with_logical_partitioning), {"params/kernel/value": "ddd"}),
    "nnx.State": Kind(lambda: nnx.state(Blocks()), with_value(OF_BLOCKS)),
    "nnx.to_pure_dict": Kind(lambda: nnx.to_pure_dict(nnx.state(Blocks())), OF_BLOCKS),
    "nnx.Optimizer": Kind(lambda: nnx.state(nnx.Optimizer(Blocks(), chain(), wrt=nnx.Param)), OF_NNX_ADAM),
    "nnx.Param": Kind(lambda: {"w": nnx.Param(ones())}, {"w/value": "dd"}),
}
"""One tree for each kind of container."""

EMPTY: Mapping[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "None"),
    "dict": (dict, "Dict"),
    "FrozenDict": (lambda: flax.core.freeze({}), "Dict"),
    "OrderedDict": (collections.OrderedDict, "Dict"),
    "nnx.State": (lambda: nnx.State({}), "Dict"),
    "list": (list, "List"),
    "tuple": (tuple, "Tuple"),
    "EmptyState": (optax.EmptyState, "None"),
    "MaskedNode": (optax.MaskedNode, "None"),
    "NamedTuple": (Nothing, "None"),
    "node without names": (Keyless, "None"),
    "Equinox": (eqx.nn.Identity, "None"),
}
"""Nodes without children, and what Orbax calls them."""


def state(**leaves: Any) -> dict[str, Any]:
    """A tree with these leaves, and with one array more: Orbax saves no tree of empty nodes alone."""
    return {"array": np.arange(3), **leaves}
