"""The placeholder `...` in targets: a value only where a rule claims it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.planner.plan import Plan

W = np.arange(3, dtype=np.float32)
SOURCE: dict[str, Any] = {
    "a": W,
    "b": jnp.asarray(W),
    "n": 7,
    "s": "text",
    "e": {},
    "x": {"y": W, "z": W + 1},
}


def restored(rules: list[dict[str, Any]], target: Any, source: Any = SOURCE, **options: Any) -> Any:
    """The result, and the reasons for which leaves were dropped by source and key."""
    plans: list[Plan] = []
    recipe = {"version": 1, "rules": rules, **options.pop("recipe", {})}
    found = ckpt_surgery.restore(recipe, source, target=target, on_plan=plans.append, **options)
    (plan,) = plans
    return found, {(gone.source, gone.leaf.key.text): gone.why for gone in plan.dropped}


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"target": {"missing": "fallback"}},
        {"target": {"prefer": "target"}},
        {"target": {"extra": "keep"}},
    ],
)
def test_what_no_rule_claims_stays(policy: dict[str, Any]) -> None:
    policy = {} if policy == {"target": {"extra": "keep"}} else policy
    found, gone = restored([], {"a": ..., "b": W, "new": ...}, recipe=policy)
    assert found["a"] is found["new"] is ...
    assert (gone[("source", "a")], gone[("target", "new")]) == ("placeholder", "placeholder")
    assert gone[("source", "n")] == "not in target"


RULES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "match": ([{"match": "a", "to": "w"}], W),
    "in place": ([{"match": "(?:a)|(?:w)", "to": "w", "value": "x * 2"}], W * 2),
    "fill": ([{"fill": "w", "from": "a"}], W),
    "fill all": ([{"fill": ".*", "from": "a"}], W),
    "fill with a value": ([{"fill": "w", "value": "source['a'] + 1"}], W + 1),
    "add": ([{"add": "w", "value": "source['x/z']"}], W + 1),
    "two passes": ([{"match": "x/y", "to": "w"}], W),
}


@pytest.mark.parametrize("case", RULES)
def test_what_a_rule_claims_gets_its_value(case: str) -> None:
    rules, wanted = RULES[case]
    found, gone = restored(rules, {"w": ..., "b": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(found["w"], wanted)
    assert "placeholder" not in gone.values()


def test_any_kind_of_leaf_is_taken_as_it_is() -> None:
    target = dict.fromkeys(["a", "b", "n", "s", "e"], ...)
    found, _ = restored([{"match": "[abnse]"}], target)
    assert (found["a"] is W, found["b"] is SOURCE["b"], found["n"], found["s"]) == (True, True, 7, "text")
    assert found["e"] == {}


def test_a_rule_that_takes_the_targets_own_value_leaves_it() -> None:
    rules = [{"fill": "a", "fallback": True}, {"fill": "n.*", "fallback": "missing"}]
    found, gone = restored(rules, {"a": ..., "n": ..., "new": ..., "b": W})
    assert found["a"] is found["new"] is ...
    assert found["n"] == 7
    assert (gone[("target", "a")], gone[("target", "new")]) == ("placeholder", "placeholder")


def test_nothing_that_stays_is_read() -> None:
    class Unread(np.ndarray):
        def __array_finalize__(self, obj: Any) -> None:
            assert obj is None or type(obj) is np.ndarray, "it was read"

    source = {"a": W.view(Unread), "b": W}
    found, _ = restored([], {"a": ..., "b": W + 1}, source)
    assert found["a"] is ...
    np.testing.assert_array_equal(found["b"], W)


def test_a_written_result_lacks_what_stays(tmp_path: Path) -> None:
    recipe = {"version": 1, "rules": [{"match": "a", "to": "w"}]}
    ckpt_surgery.apply(recipe, SOURCE, dst=tmp_path / "out", target={"w": ..., "b": ..., "n": 1})
    assert sorted(ckpt_surgery.restore(None, tmp_path / "out")) == ["n", "w"]


def test_one_for_a_subtree_is_refused_with_its_leaves() -> None:
    with pytest.raises(PlanError) as caught:
        restored([{"match": "a", "to": "x/w"}], {"x": ..., "b": W})
    (problem,) = caught.value.problems
    assert problem.code is Code.TARGET_MISFIT
    assert all(key in problem.message for key in ("`x`", "x/y", "x/z", "x/w"))
    with pytest.raises(PlanError, match="below it"):
        ckpt_surgery.restore(None, SOURCE, target=...)
    with pytest.raises(PlanError, match="below it"):
        restored([], {"x": ..., "b": W}, recipe={"unmatched": "drop"})


def test_one_for_a_subtree_that_rules_drop_stays() -> None:
    found, _ = restored([{"match": "x/.*", "drop": True}], {"x": ..., "b": W})
    assert found["x"] is ...


def test_a_target_of_nothing_else_gives_nothing() -> None:
    with pytest.raises(PlanError) as caught:
        restored([], {"a": ..., "b": ...})
    assert {problem.code for problem in caught.value.problems} == {Code.NOTHING_LEFT}


def test_arrays_of_checkpoints_are_those_that_restore_makes(tmp_path: Path) -> None:
    source = {"w": W, "wide": np.arange(3), "n": 7, "key": jax.random.key(0)}
    ckpt_surgery.apply(None, source, dst=tmp_path / "c")
    target = dict.fromkeys(source, ...)
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    rules = (mesh, {"w": PartitionSpec("x"), ".*": PartitionSpec()})
    for shardings in (None, rules):
        found, _ = restored([{"match": ".*"}], target, tmp_path / "c", shardings=shardings)
        types = {key: type(value) for key, value in found.items()}
        assert (types["wide"], types["n"]) == (np.ndarray, int)
        assert isinstance(found["w"], jax.Array)
        assert jax.random.key_data(found["key"]).tolist() == [0, 0]
        if shardings is not None:
            assert found["w"].sharding == NamedSharding(mesh, PartitionSpec("x"))


def test_an_array_that_is_only_moved_keeps_its_sharding_and_is_not_donated() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    array = jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec("x")))
    own = jnp.zeros(3)
    found, _ = restored([{"match": "a"}], {"a": ..., "b": own}, {"a": array, "b": W}, donate=True)
    assert found["a"] is array
    assert (array.is_deleted(), own.is_deleted()) == (False, True)
