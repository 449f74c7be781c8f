"""Shardings: the leaves' own, prefixes of a tree as in `jax.jit`, rules, and what cannot be divided."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.live.shardings import sharding_flaw
from ckpt_surgery.live.tree import live_tree
from tests.support.shardings import refused, resolved, says, shape

P = PartitionSpec


def test_the_own_shardings_of_arrays_and_of_shapes(mesh: Mesh) -> None:
    rows, device = NamedSharding(mesh, P("data")), SingleDeviceSharding(jax.devices()[3])
    host = NamedSharding(mesh, P("model"), memory_kind=jax.devices()[0].default_memory().kind)
    found = resolved(
        {
            "a": jax.device_put(np.ones((8, 4)), rows),
            "b": shape(8, 4, sharding=host),
            "c": jax.device_put(np.ones(3), device),
            "d": jax.device_put(jax.random.split(jax.random.key(0), 4), rows),
            "e": shape(3),
            "f": jnp.ones(3),
        }
    )
    assert found == {"a": rows, "b": host, "c": device, "d": rows, "e": None, "f": None}
    assert found["b"].memory_kind == host.memory_kind


def test_what_is_no_array_of_jax_has_no_sharding(mesh: Mesh) -> None:
    tree = {"a": np.ones(8), "b": 1, "c": 2.0, "d": "text", "e": None, "f": np.float32(1), "g": abs}
    assert resolved({**tree, "h": jnp.ones(8)}, NamedSharding(mesh, P("data"))) == {
        "h": NamedSharding(mesh, P("data"))
    }


def test_shardings_of_shapes_over_explicit_axes_are_over_the_mesh_in_use() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        tree = jax.eval_shape(lambda: {"a": jnp.ones((8, 4), out_sharding=P("data"))})
        assert resolved(tree) == {"a": NamedSharding(mesh, P("data", None))}
    assert says(UsageError, tree, None) == (
        "the sharding of `a` is over an AbstractMesh {data: 2, model: 4}: it names no devices"
    )


def test_flaws_of_keys_and_of_other_leaves(mesh: Mesh) -> None:
    tree = live_tree({"keys": jax.random.split(jax.random.key(0), 4), "text": "a"})
    assert sharding_flaw(tree.leaves["keys"], NamedSharding(mesh, P("model"))) is None
    assert sharding_flaw(tree.leaves["keys"], NamedSharding(mesh, P(None, "data"))) == (
        "has 1 of the 2 axes that the spec P(None, 'data') is for"
    )
    assert sharding_flaw(tree.leaves["keys"], None) is None
    assert sharding_flaw(tree.leaves["text"], NamedSharding(mesh, P("model"))) is None
    assert sharding_flaw(tree.leaves["keys"], SingleDeviceSharding(jax.devices()[0])) is None


# --- prefixes of a tree -----------------------------------------------------------------------------------


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
    "a key too few": (lambda a, tree: {"params": a, "list": a, "state": a}, ": it has a dict with list, p"),
    "another container": (lambda a, tree: {**tree, "list": (a, a)}, " at `list`: it has a tuple with 0, 1, "),
    "deeper": (lambda a, tree: {**tree, "params": {"kernel": [a], "bias": a}}, " at `params/kernel`: it has"),
    "an empty container": (lambda a, tree: {**tree, "params": {}}, " at `params`: it has a dict, the tree a"),
    "many keys": (lambda a, tree: dict.fromkeys("abcdefg", a), ": it has a dict with a, b, c, d, e, …, the"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_prefix_that_does_not_fit_is_refused_with_its_place(
    case: str, mesh: Mesh, tree: dict[str, Any]
) -> None:
    make, expected = MISFITS[case]
    nothing = dict.fromkeys(tree)
    prefix = make(NamedSharding(mesh, P("data")), nothing)
    assert says(UsageError, tree, prefix).startswith(f"`shardings` does not fit the tree{expected}")
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


# --- rules ------------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_a_whole_key_wins(mesh: Mesh) -> None:
    arrays = {"kernel": shape(8, 4), "bias": shape(8, 4)}
    tree = {"params": arrays, "list": [shape(8, 4), (shape(8, 4),)], "kernel": shape(8, 4)}
    rules = [("kernel", P("data")), (r".*/kernel", P("data", "model")), (r".*/\w+", P(None, "model"))]
    found = resolved(tree, (mesh, rules))
    assert found == {
        "list/0": NamedSharding(mesh, P(None, "model")),
        "list/1/0": NamedSharding(mesh, P(None, "model")),
        "params/bias": NamedSharding(mesh, P(None, "model")),
        "params/kernel": NamedSharding(mesh, P("data", "model")),
        "kernel": NamedSharding(mesh, P("data")),
    }
    assert list(found) == list(resolved(tree))
    assert resolved(tree, [mesh, dict(rules)]) == found
    assert resolved(tree, (mesh, iter(rules))) == found


def test_rules_win_over_the_leaves_own_shardings(mesh: Mesh) -> None:
    tree = {"a": shape(8, 4, sharding=NamedSharding(mesh, P("data")))}
    assert resolved(tree, (mesh, {"a": P("model")})) == {"a": NamedSharding(mesh, P("model"))}


def test_leaves_without_a_rule_are_listed(mesh: Mesh) -> None:
    tree = {**{f"layer_{i}": shape(8) for i in range(5)}, "x": shape(8), "step": shape(), "number": 3}
    assert says(PlanError, tree, (mesh, {"x": P("data")})) == (
        "no rule of `shardings` matches `layer_{0..4}`, `step`"
    )
    assert says(PlanError, tree, (mesh, {"layer.*|x": P("data")})) == (
        "no rule of `shardings` matches `step`"
    )


def test_specs_that_do_not_fit_a_shape_are_told_together(mesh: Mesh) -> None:
    tree = {"a": [shape(8, 6), shape(4, 6)], "b": shape(7), "c": shape(8), "d": shape(8, 4)}
    rules = {"a/.": P("data", "model"), "b": P(("data",)), "c": P(None, "data"), "d": P(("data", "model"))}
    assert [message for message, _ in refused(PlanError, tree, (mesh, rules))] == [
        "`a/{0,1}` (2 leaves) has 6 along axis 1, which does not divide into 4 parts (model: 4); the "
        "sharding is P('data', 'model') on the mesh {data: 2, model: 4}",
        "`b` has 7 along axis 0, which does not divide into 2 parts (data: 2); the sharding is P('data') on "
        "the mesh {data: 2, model: 4}",
        "`c` has 1 of the 2 axes that the spec P(None, 'data') is for; the sharding is P(None, 'data') on "
        "the mesh {data: 2, model: 4}",
    ]
    assert len(refused(PlanError, tree, NamedSharding(mesh, P("data", "model")))) == 3


WRONG: dict[str, tuple[Callable[[Mesh], Any], str]] = {
    "no such axis": (lambda mesh: (mesh, {"a": P("modle")}), "no axis `modle`; did you mean `model`?"),
    "two values after the mesh": (lambda mesh: (mesh, {"a": P("data")}, 3), "instead of rules"),
    "unconstrained": (lambda mesh: (mesh, {"a": P(P.UNCONSTRAINED)}), "`UNCONSTRAINED` says nothing about"),
    "no regex": (lambda mesh: (mesh, {"a(": P()}), "the rule `a(` of `shardings`: not a regular expression"),
    "no spec": (lambda mesh: (mesh, [("a", "data")]), "it is not a regex with a PartitionSpec"),
    "a mesh alone": (lambda mesh: mesh, "after the mesh of `shardings` comes nothing instead of rules"),
    "no rules": (lambda mesh: (mesh, "a"), "after the mesh of `shardings` comes ['a'] instead of rules"),
    "an abstract mesh": (lambda mesh: (mesh.abstract_mesh, {"a": P()}), "AbstractMesh, which names no dev"),
}


@pytest.mark.parametrize("case", WRONG)
def test_rules_that_are_wrong_for_any_tree_are_refused(case: str, mesh: Mesh) -> None:
    make, message = WRONG[case]
    assert message in says(UsageError, {"a": shape(8)}, make(mesh))


@pytest.mark.slow("waits until the limit of time")
def test_a_pattern_that_takes_forever_is_stopped(mesh: Mesh) -> None:
    [(message, hint)] = refused(UsageError, {"a" * 60 + "b": shape(8)}, (mesh, {"(a|a)+(a|a)+c": P()}))
    named = "the rule `(a|a)+(a|a)+c` of `shardings`: "
    assert message.startswith(f"{named}the regular expressions took more than")
    assert "without nesting" in str(hint)
