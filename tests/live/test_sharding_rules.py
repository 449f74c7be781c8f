"""Shardings by rules: a mesh, regular expressions and PartitionSpecs."""

from collections.abc import Callable
from typing import Any

import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.errors import PlanError, UsageError
from tests.support.shardings import refused, resolved, says, shape

P = PartitionSpec


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
        "no rule of `shardings` matches `layer_{0..4}`, `step`: 6 arrays have no sharding"
    )
    assert says(PlanError, tree, (mesh, {"layer.*|x": P("data")})) == (
        "no rule of `shardings` matches `step`: an array has no sharding"
    )


def test_specs_that_do_not_fit_a_shape_are_told_together(mesh: Mesh) -> None:
    tree = {"a": [shape(8, 6), shape(4, 6)], "b": shape(7), "c": shape(8), "d": shape(8, 4)}
    rules = {"a/.": P("data", "model"), "b": P(("data",)), "c": P(None, "data"), "d": P(("data", "model"))}
    assert [message for message, _ in refused(PlanError, tree, (mesh, rules))] == [
        "`a/{0,1}` (2 leaves) has 6 along axis 1, which does not divide into 4 parts (model: 4); the "
        "sharding is P('data', 'model') on the mesh {data: 2, model: 4}",
        "`b` has 7 along axis 0, which does not divide into 2 parts (data: 2); the sharding is P('data') on "
        "the mesh {data: 2, model: 4}",
        "`c` has 1 axis, the spec P(None, 'data') is for 2; the sharding is P(None, 'data') on the mesh "
        "{data: 2, model: 4}",
    ]
    assert len(refused(PlanError, tree, NamedSharding(mesh, P("data", "model")))) == 3


WRONG: dict[str, tuple[Callable[[Mesh], Any], str]] = {
    "no such axis": (
        lambda mesh: (mesh, {"a": P("modle")}),
        "the rule `a` of `shardings`: in P('modle'), the mesh has no axis `modle`; did you mean `model`?",
    ),
    "two values after the mesh": (
        lambda mesh: (mesh, {"a": P("data")}, 3),
        "after the mesh of `shardings` come 2 values instead of one",
    ),
    "an axis twice": (
        lambda mesh: (mesh, {"a": P("data", "data")}),
        "the rule `a` of `shardings`: in P('data', 'data'), `data` is twice in one spec: a mesh axis can "
        "divide only one axis of an array",
    ),
    "unconstrained": (
        lambda mesh: (mesh, {"a": P(P.UNCONSTRAINED)}),
        "the rule `a` of `shardings`: in P(UNCONSTRAINED), `UNCONSTRAINED` says nothing about where an "
        "array lies",
    ),
    "no regex": (
        lambda mesh: (mesh, {"a(": P()}),
        "the rule `a(` of `shardings`: not a regular expression: missing ), unterminated subpattern",
    ),
    "no spec": (
        lambda mesh: (mesh, [("a", "data")]),
        "`shardings` has the rule ('a', 'data'): it is not a regex with a PartitionSpec",
    ),
    "a mesh alone": (
        lambda mesh: mesh,
        "`shardings` is a mesh: it does not say how arrays are divided over it",
    ),
    "no rules": (lambda mesh: (mesh, "a"), "after the mesh of `shardings` comes 'a' instead of rules"),
    "an abstract mesh": (
        lambda mesh: (mesh.abstract_mesh, {"a": P()}),
        "the mesh of the rules in `shardings` is an AbstractMesh, which names no devices",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_rules_that_are_wrong_for_any_tree_are_refused(case: str, mesh: Mesh) -> None:
    make, message = WRONG[case]
    assert says(UsageError, {"a": shape(8)}, make(mesh)) == message


@pytest.mark.slow("waits until the limit of time")
def test_a_pattern_that_takes_forever_is_stopped(mesh: Mesh) -> None:
    [(message, hint)] = refused(UsageError, {"a" * 60 + "b": shape(8)}, (mesh, {"(a|a)+(a|a)+c": P()}))
    named = "the rule `(a|a)+(a|a)+c` of `shardings`: "
    assert message.startswith(f"{named}the regular expression took more than")
    assert "without nesting" in str(hint)
