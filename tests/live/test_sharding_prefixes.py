"""Prefixes of a tree, understood as `jax.jit` understands them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.errors import UsageError
from tests.support.shardings import refused, resolved, says, shape

P = PartitionSpec


class Pair(NamedTuple):
    mu: Any
    nu: Any


@pytest.fixture
def tree() -> dict[str, Any]:
    """Arrays of 8 by 4 in containers of several kinds."""
    return {
        "params": {"kernel": jnp.ones((8, 4)), "bias": jnp.ones((8, 4))},
        "list": [jnp.ones((8, 4)), (jnp.ones((8, 4)),)],
        "state": Pair(jnp.ones((8, 4)), None),
        "empty": {},
    }


PREFIXES: dict[str, Callable[[Any, Any], Any]] = {
    "one for all": lambda a, b: a,
    "some": lambda a, b: {"params": a, "list": b, "state": a, "empty": a},
    "deeper": lambda a, b: {
        "params": {"kernel": a, "bias": b},
        "list": [a, (b,)],
        "state": Pair(a, None),
        "empty": {},
    },
    "above a tuple": lambda a, b: {"params": b, "list": [b, a], "state": Pair(mu=b, nu=a), "empty": {}},
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_are_understood_as_by_jit(prefix: str, mesh: Mesh, tree: dict[str, Any]) -> None:
    shardings = PREFIXES[prefix](NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model")))
    made = jax.jit(lambda: tree, out_shardings=shardings)()
    assert resolved(tree, shardings) == resolved(made)
    assert len(resolved(tree, shardings)) == 5


def test_none_in_a_prefix_stands_for_the_leaves_own(mesh: Mesh) -> None:
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "model"))
    tree = {"a": {"x": shape(8, 4, sharding=rows), "y": shape(8, 4)}, "b": shape(8, 4, sharding=rows)}
    assert resolved(tree, {"a": None, "b": columns}) == {"a/x": rows, "a/y": None, "b": columns}


def test_a_spec_is_over_the_mesh_in_use_as_in_jit(mesh: Mesh, tree: dict[str, Any]) -> None:
    with jax.set_mesh(mesh):
        made = jax.jit(lambda: tree, out_shardings=P("data"))()
        assert resolved(tree, P("data")) == resolved(made)
        message = says(UsageError, tree, {"params": P("rows"), "list": None, "state": None, "empty": None})
    assert message == "`shardings` at `params`: in P('rows'), the mesh has no axis `rows`; it has data, model"


MISFITS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a key too few": (
        lambda a, tree: {"params": a, "list": a, "state": a},
        ": it has a dict with list, params, state, the tree a dict with empty, list, params, state",
    ),
    "another container": (
        lambda a, tree: {**tree, "list": (a, a)},
        " at `list`: it has a tuple with 0, 1, the tree a list with 0, 1",
    ),
    "deeper than the tree": (
        lambda a, tree: {**tree, "params": {"kernel": [a], "bias": a}},
        " at `params/kernel`: it has a list with 0, the tree an ArrayImpl",
    ),
    "an empty container": (
        lambda a, tree: {**tree, "params": {}},
        " at `params`: it has a dict, the tree a dict with bias, kernel",
    ),
    "many keys": (
        lambda a, tree: dict.fromkeys("abcdefg", a),
        ": it has a dict with a, b, c, d, e, …, the tree a dict with empty, list, params, state",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_prefix_that_does_not_fit_is_refused_with_its_place(
    case: str, mesh: Mesh, tree: dict[str, Any]
) -> None:
    make, expected = MISFITS[case]
    nothing = dict.fromkeys(tree)
    prefix = make(NamedSharding(mesh, P("data")), nothing)
    assert says(UsageError, tree, prefix) == f"`shardings` does not fit the tree{expected}"
    with pytest.raises(ValueError, match="pytree structure error"):
        jax.jit(lambda: tree, out_shardings=prefix)()


def test_static_fields_of_another_tree_do_not_fit() -> None:
    def boxed(value: Any, names: tuple[str, ...]) -> Any:
        return nn.Partitioned(value, names)

    message = says(UsageError, {"a": boxed(shape(8), ("x",))}, {"a": boxed(None, ("y",))})
    assert message == (
        "`shardings` does not fit the tree at `a`: it has a Partitioned with value, the tree one with "
        "other static fields"
    )


def test_what_is_no_sharding_is_refused_with_its_place(mesh: Mesh, tree: dict[str, Any]) -> None:
    nothing = dict.fromkeys(tree)
    rows = NamedSharding(mesh, P("data"))
    layout = Format(Layout((0, 1)), rows)
    assert says(UsageError, tree, {**nothing, "list": [layout, None]}) == (
        "`shardings` has a Format at `list/0`, which is not a sharding"
    )
    assert says(UsageError, tree, jax.devices()[0]) == "`shardings` has a Device, which is not a sharding"
    assert says(UsageError, tree, "data") == "`shardings` has a str, which is not a sharding"
    [(message, hint)] = refused(UsageError, tree, {**nothing, "params": P("data")})
    assert message == "`shardings` has P('data') at `params`, and no mesh is known for it"
    assert hint == "Give `NamedSharding(mesh, spec)`, or call it inside `with jax.set_mesh(mesh):`."
    abstract = NamedSharding(mesh.abstract_mesh, P("data"))
    assert says(UsageError, tree, {**nothing, "params": abstract}) == (
        "`shardings` has a sharding at `params` over an AbstractMesh, which names no devices"
    )
