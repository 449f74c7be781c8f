"""Objects of trees that no checkpoint holds: refused, dropped on request, and reported; `...` stays."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax.traverse_util import empty_node, flatten_dict

import ckpt_surgery
from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.planner.plan import Plan

W = np.arange(3, dtype=np.float32)


class Wrapped:
    """An array of a library that nobody knows; it can be called, as some can."""

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        return W

    def __call__(self) -> None: ...


OBJECTS = {
    "torch.Tensor": torch.ones(3),
    "torch.nn.parameter.Parameter": torch.nn.Parameter(torch.ones(3)),
    "torch.nn.modules.linear.Linear": torch.nn.Linear(2, 2),
    f"{__name__}.Wrapped": Wrapped(),
    "bytes": b"x",
}


def refused(*args: Any, **options: Any) -> list[tuple[Code | None, str]]:
    """Code and message of each problem, which `restore` and `plan` have in common."""
    problems = []
    for function in (ckpt_surgery.restore, ckpt_surgery.plan):
        with pytest.raises(PlanError) as caught:
            function(*args, **options)
        problems.append([(problem.code, problem.message) for problem in caught.value.problems])
    assert problems[0] == problems[1]
    return problems[0]


def rules(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "rules": list(listed)}


@pytest.mark.parametrize("type", OBJECTS)
@pytest.mark.parametrize("fallback", [{}, {"missing": "fallback"}, {"prefer": "target"}])
def test_an_object_in_a_target_is_refused(type: str, fallback: dict[str, str]) -> None:
    recipe = {"version": 1, "target": fallback}
    for source in ({"w": W, "n": [W]}, {"w": W}):
        (problem,) = refused(recipe, source, target={"w": W, "n": [OBJECTS[type]]})
        assert problem[0] is Code.TARGET_MISFIT
        assert problem[1].startswith(f"`n/0` of the target is of type {type},")


@pytest.mark.parametrize("type", OBJECTS)
def test_an_object_in_a_source_is_refused_unless_a_rule_drops_it(type: str) -> None:
    source = {"w": W, "n": {"t": OBJECTS[type]}}
    for target in (None, {"w": W}, {"w": W, "n": {"t": W}}):
        (problem,) = refused(None, source, target=target)
        assert problem[0] is Code.NOT_AN_ARRAY
        assert problem[1].startswith(f"`n/t` is of type {type},")
    dropped = {"match": "n/t", "drop": True}
    for target in (None, {"w": W}):
        plans: list[Plan] = []
        result = ckpt_surgery.restore(rules(dropped), source, target=target, on_plan=plans.append)
        np.testing.assert_array_equal(result["w"], W)
        assert [(gone.leaf.key.text, gone.leaf.type) for gone in plans[0].dropped] == [("n/t", type)]


@pytest.mark.parametrize(
    "rule",
    [
        {"match": "t", "to": "u"},
        {"match": "t", "value": "x * 2"},
        {"match": "w|t", "to": "s", "value": "stack(xs)"},
        {"match": "w", "value": "x + source['t']"},
    ],
)
def test_a_rule_that_uses_an_object_is_where_it_is_refused(rule: dict[str, Any]) -> None:
    source = {"w": W, "t": torch.ones(3)}
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore(rules(rule, {"match": "t", "drop": True, "optional": True}), source)
    (problem,) = caught.value.problems
    assert (problem.code, problem.place is not None) == (Code.NOT_AN_ARRAY, True)
    assert "`t` is of type torch.Tensor," in problem.message


def test_in_any_source_and_a_policy_can_drop_it() -> None:
    recipe = {"version": 1, "sources": ["one", "two"], "rules": []}
    (problem,) = refused(recipe, {"w": W}, {"t": torch.ones(3)})
    assert problem[0] is Code.NOT_AN_ARRAY
    policy = {**rules({"match": "w"}), "unmatched": "drop"}
    assert list(ckpt_surgery.restore(policy, {"w": W, "t": torch.ones(3)})) == ["w"]


def test_inspect_and_diff_report_objects() -> None:
    tree = {"w": W, "t": torch.ones(3), "f": print, "p": ...}
    listed = [(leaf.key.text, leaf.kind, leaf.type) for leaf in ckpt_surgery.inspect(tree).leaves]
    objects = [("p", LeafKind.OBJECT, "ellipsis"), ("t", LeafKind.OBJECT, "torch.Tensor")]
    assert listed == [*objects, ("w", LeafKind.ARRAY, None)]
    assert [leaf.key.text for leaf in ckpt_surgery.diff(tree, {"w": W}).only_a] == ["p", "t"]
    for other, what in ((W, "kind"), (b"x", "value")):
        (change,) = ckpt_surgery.diff({"a": torch.ones(3)}, {"a": other}).changed
        assert change.what == (what,)
    same = ckpt_surgery.diff({"a": torch.ones(3)}, {"a": torch.zeros(3)}, values=True)
    assert ([one.key for one in same.uncompared], same.different) == (["a"], True)


@pytest.mark.slow("imports every library of trees")
def test_functions_and_empty_nodes_stay_what_they_are() -> None:
    module = eqx.nn.MLP(2, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    assert ckpt_surgery.restore(None, module, target=module).activation is jnp.tanh
    flat = flatten_dict({"a": {}, "w": W}, keep_empty_nodes=True)
    assert ckpt_surgery.restore(None, flat, target=flat)[("a",)] is empty_node
    assert ckpt_surgery.inspect(flat).leaves[0].kind is LeafKind.EMPTY


def test_a_placeholder_stays_where_one_was_requested(tmp_path: Path) -> None:
    source = {"w": W, "opt": (W, W + 1, W + 2)}
    plans: list[Plan] = []
    target = {"w": ..., "opt": (..., W, W)}
    result = ckpt_surgery.restore(None, source, target=target, on_plan=plans.append)
    assert result["w"] is result["opt"][0] is ...
    np.testing.assert_array_equal(np.stack(result["opt"][1:]), [W + 1, W + 2])
    assert {gone.leaf.key.text for gone in plans[0].dropped} == {"w", "opt/0"}
    with pytest.raises(PlanError, match="`opt` has 2 elements but none at index 0"):
        ckpt_surgery.apply(None, source, dst=tmp_path / "c", target=target)
    ends = ckpt_surgery.restore(rules({"match": "opt/2", "drop": True}), source)  # the end of a list can go
    np.testing.assert_array_equal(np.stack(ends["opt"]), [W, W + 1])
