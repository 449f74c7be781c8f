"""The target decides which leaves there are, which of the offers each becomes, and what `...` takes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.folding import sentences
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Read, reads
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.planner.entries import Entry, SourceLeaves
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import Target, fitted, target_leaves
from tests.support.passes import Described, pass_run_of, rules_of, target_of, tree_of
from tests.support.plans import fates, plan_of, problems_of


def fit(target: Target, given: Described = (), matched: Described = (), kept: Described = ()) -> PassRun:
    """The target met with entries of three sources, called after what they stand for."""
    run = pass_run_of(rules_of("match: nothing, optional: true"), ["x"], target=target)
    offers = [
        tree_of(name, leaves)
        for name, leaves in zip(("given", "matched", "kept"), (given, matched, kept), strict=True)
    ]
    unclaimed = {"kept": offers[2]}
    run.tree = fitted(run, target, offers[0], offers[1], offers[2].values(), unclaimed)
    return run


def origins(run: PassRun) -> dict[str, str]:
    """The source of every leaf of the result."""
    return {text: reads(entry.value)[0].source for text, entry in run.tree.items()}


def test_the_first_offer_that_there_is() -> None:
    target = target_of([*"abcd"], missing="fallback")
    run = fit(target, ["a"], ["a", "b"], ["a", "b", "c"])
    assert origins(run) == {"a": "given", "b": "matched", "c": "kept", "d": "target"}
    assert run.problems.is_empty
    assert sorted((reads(d.entry.value)[0].source, d.entry.key.text, d.why) for d in run.drops) == [
        ("kept", "a", "another value was taken"),
        ("kept", "b", "another value was taken"),
        ("matched", "a", "another value was taken"),
    ]


def test_what_the_target_does_not_have_is_dropped() -> None:
    run = fit(target_of(["a"]), (), ["a", "b"], ["c"])
    assert [(d.entry.key.text, d.rule, d.why) for d in run.drops] == [
        ("b", None, "not in target"),
        ("c", None, "not in target"),
    ]
    assert sentences(run.problems.notices) == ["None makes `b`, which the target does not have"]


def message_of(run: PassRun) -> tuple[str, str | None]:
    (problem,) = problems_of(run.problems.raise_all)
    return problem.message, problem.hint


def test_missing_leaves_and_the_rule_that_would_fill_them() -> None:
    target = target_of(["a/0/w", "a/1/w", "b/w", "b/v"])
    message, hint = message_of(fit(target, (), (), ["b/w"]))
    assert message == "3 target leaves have no source: `a/{0,1}/w`, `b/v`"
    assert hint == "Add rules for them."  # most of the model would be random numbers
    _, hint = message_of(fit(target, (), (), ["b/w", "b/v"]))
    assert "`{fill: 'a/.*', fallback: true}` takes the target's." in (hint or "")
    _, hint = message_of(fit(target_of(["l/0/w", "l/1/w", "m/7"]), (), (), ["l/1/w", "m/7"]))
    assert "{fill: 'l/0/.*', fallback: true}" in (hint or "")  # of any number, it would match l/1/w too


@pytest.mark.parametrize(
    ("wanted", "offered", "says"),
    [
        ("float32[2]", "float32[3]", "`a` has shape [3], the target has [2]"),
        ("string", "float32[3]", "`a` is an array, the target has a string there"),
        ("float32[]", "scalar:float32", None),  # an array and a scalar are the same
        ("float32[2]", "int8[2]", None),  # the source's dtype is kept
    ],
)
def test_offers_that_do_not_fit(wanted: str, offered: str, says: str | None) -> None:
    run = fit(target_of({"a": wanted}), {"a": offered})
    if says is None:
        assert origins(run) == {"a": "given"}
        assert run.problems.is_empty
        return
    assert message_of(run)[0] == says
    run = fit(target_of({"a": wanted}, on_shape_mismatch="fallback"), {"a": offered})
    assert origins(run) == {"a": "target"}
    assert sentences(run.problems.notices) == [f"{says}: the target's value is used"]


NAMES = st.lists(st.sampled_from([*"abcdef"]), unique=True)


@given(NAMES.filter(bool), NAMES, NAMES, NAMES, st.sampled_from(["source", "target"]))
def test_the_result_has_the_targets_structure_and_every_offer_is_used_or_dropped(
    names: list[str], given: list[str], matched: list[str], kept: list[str], prefer: str
) -> None:
    run = fit(target_of(names, prefer=prefer, missing="fallback"), given, matched, kept)
    assert run.problems.is_empty
    assert list(run.tree) == names
    used = {id(entry.value) for entry in run.tree.values()}
    left: list[Entry] = [drop.entry for drop in run.drops]
    assert used.isdisjoint(id(entry.value) for entry in left)
    offered = len(matched) + len(kept)  # what `fill` rules give is not there without them
    taken = sum(origin in ("matched", "kept") for origin in origins(run).values())
    assert len(left) == offered - taken


def test_some_leaves_of_a_target_have_no_value() -> None:
    target = replace(target_of([*"abc"], missing="fallback"), without_values=frozenset("bc"))
    message, hint = message_of(fit(target, (), (), ["c"]))
    assert message == "1 target leaf has no source: `b`; the target has no values for them"
    assert hint == "Add rules for it, or give a target that has values."
    run = fit(target, (), (), ["b", "c"])
    assert (origins(run), run.problems.is_empty) == ({"a": "target", "b": "kept", "c": "kept"}, True)


SQUARES = {"a": "float32[2,2]", "b": "float32[2,2]"}


def test_only_leaves_without_values_cannot_be_read() -> None:
    leaves = target_leaves(replace(target_of([*"ab"]), without_values=frozenset("b")))
    assert isinstance(leaves, SourceLeaves)
    leaves.require_values([leaves.lookup("a"), 1, "b"])
    with pytest.raises(PlanError, match="the target has no value for `b`"):
        leaves.require_values([[leaves.lookup("a")], [leaves.lookup("b")]])


@pytest.mark.parametrize("readable", [True, False])
def test_metadata_of_a_target_needs_no_values(readable: bool) -> None:
    rule = "fill: b, value: \"zeros(target['b'].shape, target['b'].T.dtype) if has(target['b']) else x\""
    plan = plan_of(rules_of(rule), SQUARES, target=SQUARES, readable=readable)
    assert fates(plan) == {"a": "kept", "b": "added"}


def test_a_cast_that_is_not_possible_is_a_problem_of_its_leaf() -> None:
    run = fit(target_of({"a": "float32[2]"}, dtype="target"), (), (), {"a": "complex64[2]"})
    with pytest.raises(
        PlanError, match="`a`: `cast` from complex64 to float32 would drop the imaginary part"
    ):
        run.problems.raise_all()


def test_an_empty_node_that_both_have_is_kept_and_not_dropped_besides() -> None:
    nothing = Leaf(Key.parse("n"), LeafKind.EMPTY, empty="None")
    target = Target({"n": nothing}, TargetPolicy())
    run = pass_run_of("version: 1\n", ["a"], target=target)
    kept = Entry(nothing.key, nothing, Read("source", nothing))
    own = {"n": target.own_value(nothing)}
    assert fitted(run, target, own, {}, [kept], {})["n"].value is kept.value
    assert run.drops == []
    other = Leaf(nothing.key, LeafKind.EMPTY, empty="Dict")
    differs = fitted(run, target, own, {}, [replace(kept, leaf=other, value=Read("source", other))], {})
    assert isinstance(differs["n"].value, Read)
    assert differs["n"].value.source == "target"
    assert [drop.entry.leaf for drop in run.drops] == [other]


def test_the_target_s_values_are_not_advised_for_what_the_source_has_under_several_prefixes() -> None:
    source = {"ema/w": "float32[2,3]", "raw/w": "float32[2,3]", "m": "float32[2]"}
    wanted = {"params/w": "float32[2,3]", "m": "float32[2]", "head/b": "float32[7]"}
    hint = problems_of(plan_of, "version: 1\n", source, target=wanted)[0].hint or ""
    assert "`ema/w`, `raw/w`" in hint
    assert "head/" in hint
    assert "params" not in hint


@pytest.mark.parametrize("policy", ["{}", "{on_shape_mismatch: fallback}"])
def test_no_value_of_a_target_is_advised_or_used_that_it_has_not(policy: str) -> None:
    given, wanted = {"a": "float32[2,3]", "b": "float32[4]"}, {"a": "float32[2,4]", "b": "float32[4]"}
    (problem,) = problems_of(plan_of, f"version: 1\ntarget: {policy}\n", given, target=wanted, readable=False)
    assert problem.code is Code.TARGET_MISFIT
    assert "`a`" in problem.message
    assert "has no value" in problem.message
    assert "fallback" not in (problem.hint or "")


def test_a_source_and_a_target_that_are_exchanged() -> None:
    recipe = "version: 1\nrules:\n  - {match: '([ab])', to: 'x/\\1'}\n"
    inner, outer = {"a": "float32[2]", "b": "float32[3]"}, {"x/a": "float32[2]", "x/b": "float32[3]"}
    assert set(fates(plan_of(recipe, inner, target=outer)).values()) == {"renamed"}
    for readable in (True, False):
        missing, unused = problems_of(plan_of, recipe, outer, target=inner, readable=readable)
        assert (missing.code, missing.hint) == (Code.TARGET_MISSING, None)  # no rule that makes it fit
        assert unused.code is Code.CLAIMS_NOTHING
        assert "`a` of the target" in unused.message
        assert "the other way round" in (unused.hint or "")


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


@pytest.mark.parametrize("policy", [{}, {"missing": "fallback"}, {"prefer": "target"}])
def test_what_no_rule_claims_stays(policy: dict[str, Any]) -> None:
    found, gone = restored([], {"a": ..., "b": W, "new": ...}, recipe={"target": policy})
    assert found["a"] is found["new"] is ...
    assert (gone[("source", "a")], gone[("target", "new")]) == ("placeholder", "placeholder")
    assert gone[("source", "n")] == "not in target"


@pytest.mark.each
@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({"match": "a", "to": "w", "value": "x * 2"}, W * 2),
        ({"fill": "w", "from": "a"}, W),
        ({"fill": ".*", "from": "a"}, W),
        ({"fill": "w", "value": "source['a'] + 1"}, W + 1),
        ({"add": "w", "value": "source['x/z']"}, W + 1),
    ],
)
def test_what_a_rule_claims_gets_its_value(rule: dict[str, Any], wanted: np.ndarray) -> None:
    found, gone = restored([rule], {"w": ..., "b": np.zeros(3, np.float32)})
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
    (problem,) = problems_of(restored, [{"match": "a", "to": "x/w"}], {"x": ..., "b": W})
    assert problem.code is Code.TARGET_MISFIT
    assert all(key in problem.message for key in ("`x`", "x/y", "x/z", "x/w"))
    with pytest.raises(PlanError, match="below it"):
        ckpt_surgery.restore(None, SOURCE, target=...)
    with pytest.raises(PlanError, match="below it"):
        restored([], {"x": ..., "b": W}, recipe={"unmatched": "drop"})
    found, _ = restored([{"match": "x/.*", "drop": True}], {"x": ..., "b": W})  # rules drop what is below it
    assert found["x"] is ...


def test_a_target_of_nothing_else_gives_nothing() -> None:
    problems = problems_of(restored, [], {"a": ..., "b": ...})
    assert {problem.code for problem in problems} == {Code.NOTHING_LEFT}


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
