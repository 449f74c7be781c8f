"""What patterns, expressions, templates and names of `let` give, and where their problems point."""

import json
import sys
from collections.abc import Mapping

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import Code, PlanError, SurgeryError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Apply, inputs_first
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.language.expressions.regexes import MatchBudget
from ckpt_surgery.planner.entries import SourceLeaves
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.running import count_of
from tests.support.passes import pass_run_of, rules_of, tree_of
from tests.support.plans import plan_of, problems_of


def test_names_at_a_key() -> None:
    (rule,) = pass_run_of(rules_of(r"match: '(?P<n>\d+)/(?:(?P<m>x)|(y))'"), ["1/y"]).rules
    match = rule.match("1/y")
    assert match is not None
    names = rule.names_at(match, "1/y")
    assert (names["n"], names["m"], names["key"]) == ("1", "", "1/y")
    assert [names["g"].text(i) for i in range(4)] == ["1/y", "1", "", "y"]
    assert names["sources"] == ("source",)
    assert names["source"].keys() == {"1/y"}
    assert rule.match("1/y/z") is None  # of the whole key


def test_leaves_as_expressions_see_them() -> None:
    leaves = SourceLeaves("source", tree_of("source", {"a": "float32[2]", "s": "string"}))
    assert (leaves.kind("a"), leaves.kind("s"), leaves.kind("b")) == ("array", "string", None)
    assert leaves.lookup("b") is None
    found = leaves.lookup("a")
    assert found is not None
    assert found.node.spec.shape == (2,)
    with pytest.raises(SurgeryError, match="`s` is a string, not an array"):
        leaves.lookup("s")
    assert leaves.seen == {"a", "b", "s"}


def test_keys_are_counted_whole() -> None:
    assert count_of(r"l\d", tree_of("source", ["l0", "l1", "l1/w", "ml2"]), MatchBudget()) == 2


def test_sources_that_are_called_like_functions() -> None:
    """A call is the function, a subscript the source."""
    rules = [
        {"match": "a", "value": "clip(x + mean['a'], 0, 1)", "when": "has(mean['a'])"},
        {"match": "b", "value": "mean([clip['b'], mean['b']])"},
    ]
    trees = [{"a": np.array([0.25, 0.75], np.float32), "b": np.float32([start])} for start in (1, 2)]
    result = ckpt_surgery.restore({"version": 1, "sources": ["clip", "mean"], "rules": rules}, *trees)
    np.testing.assert_array_equal(result["a"], [0.5, 1.0])
    np.testing.assert_array_equal(result["b"], [1.5])


LEAVES = {"p/w": "float32[2,3]", "p/v": "float32[2,3]", "mu/w": "float32[2,3]"}


def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    """Values that differ from source to source and from leaf to leaf."""
    assert leaf.spec is not None
    first = 10 * (source == "other") + len(leaf.key.text) + ord(leaf.key.text[-1]) % 7
    return (np.arange(leaf.spec.size).reshape(leaf.spec.shape) + first)[region.slices].astype(leaf.spec.dtype)


def values_of(plan: Plan) -> dict[str, list[object]]:
    """The values of all outputs, by key."""
    return {
        step.leaf.key.text: evaluate(step.value, Region.whole(step.leaf.spec.shape), read).tolist()
        for step in plan.steps
        if step.leaf.spec is not None
    }


def recipe_of(rule: Mapping[str, object], **head: object) -> str:
    return json.dumps({"version": 1, **head, "rules": [rule]})


INIT = "init('lecun_normal', x.shape, x.dtype)"
GATHER = {"match": "p/(?P<m>.)", "to": "s"}
LOOP = {"match": "p/w", "for": {"i": "range(2)"}, "to": "r${i}"}
ADD = {"add": "n/${i}", "for": {"i": "range(2)"}}
SOURCES, MIRROR = ["source", "other"], {"p": ["mu"]}
WITH_CONSTANTS = {"params": {"f": 0.5}, "tables": {"t": {"w": 3}}}


@pytest.mark.parametrize(
    ("rule", "written_out", "head"),
    [
        (
            {"match": "p/w", "let": {"a": "x.T", "n": "len(key)"}, "to": {"q/${key}": "a + n", "r": "a"}},
            {"match": "p/w", "to": {"q/${key}": "x.T + len(key)", "r": "x.T"}},
            {},
        ),
        (
            {**GATHER, "let": {"s": "stack(xs)", "n": "s.shape[0]"}, "value": "s * n"},
            {**GATHER, "value": "stack(xs) * 2"},
            {},
        ),
        ({**LOOP, "let": {"row": "x[i]"}, "value": "row * i"}, {**LOOP, "value": "x[i] * i"}, {}),
        (
            {**ADD, "let": {"a": "source['p/w']", "b": "len(key)"}, "value": "a[i] + b"},
            {**ADD, "value": "source['p/w'][i] + len(key)"},
            {},
        ),
        (  # random values depend on the key of the output
            {"match": "p/w", "let": {"a": INIT}, "to": {"a/w": "a", "b/w": "a"}},
            {"match": "p/w", "to": {"a/w": INIT, "b/w": INIT}},
            {},
        ),
        (
            {"match": "p/w", "value": "x * a", "let": {"a": "t['w'] * f", "unused": "x @ x"}},
            {"match": "p/w", "value": "x * 1.5"},
            WITH_CONSTANTS,
        ),
        (
            {"match": "p/(.)", "let": {"a": "x * 2", "b": "x + 1"}, "value": "a", "mirror_value": "b"},
            {"match": "p/(.)", "value": "x * 2", "mirror_value": "x + 1"},
            {"mirror": MIRROR},
        ),
        (
            {"match": ".*", "let": {"a": "x", "b": "other[key]"}, "value": "a + b"},
            {"match": ".*", "value": "x + other[key]"},
            {"sources": SOURCES},
        ),
    ],
)
def test_a_name_stands_for_its_expression(
    rule: Mapping[str, object], written_out: Mapping[str, object], head: Mapping[str, object]
) -> None:
    sources = [LEAVES] * len(head.get("sources", ["source"]))  # type: ignore[arg-type]
    named, plain = (plan_of(recipe_of(one, **head), *sources) for one in (rule, written_out))
    assert values_of(named) == values_of(plain)


def test_names_in_a_last_resort_apply_to_source_leaves() -> None:
    rule = {"fill": ".*", "fallback": "missing", "let": {"a": "x + 1"}, "value": "a"}
    target = {"p/w": "float32[2,3]", "q": "float32[3]"}
    found = values_of(plan_of(recipe_of(rule), ["p/w"], target=target))
    assert found["p/w"] == values_of(plan_of(recipe_of({"match": "p/w", "value": "x + 1"}), ["p/w"]))["p/w"]
    assert found["q"] == values_of(plan_of("version: 1", {"q": "float32[3]"}))["q"]


def test_a_name_is_evaluated_when_it_is_used_and_once_for_each_output() -> None:
    rule = {"match": "p/(.)", "to": r"q/\1", "let": {"a": "x + 1", "b": "source['missing']"}}
    plan = plan_of(recipe_of({**rule, "value": "a * a if x.ndim else b"}), ["p/w", "p/v"])
    products = [node for step in plan.steps for node in inputs_first([step.value])]
    assert sum(isinstance(node, Apply) and isinstance(node.function, Binary) for node in products) == 4


@pytest.mark.parametrize(
    ("rule", "path", "column", "says"),
    [
        ("match: p/w, let: {a: 'x + 1', b: 'x @ a'}, value: b", "rules[0].let.b", 38, "`@`"),
        (
            "match: p/w, let: {a: \"source['no']\"}, to: {q: a, r: a}",
            "rules[0].let.a",
            26,
            "`source` has no leaf",
        ),
    ],
)
def test_problems_point_into_the_entry(rule: str, path: str, column: int, says: str) -> None:
    (problem,) = problems_of(plan_of, rules_of(rule), LEAVES)
    assert problem.place is not None
    assert (problem.place.path, problem.place.line, problem.place.column) == (path, 3, column)
    assert problem.message.startswith(says)


def test_a_target_without_values_gives_names_a_shape_but_no_value() -> None:
    def planned(let: Mapping[str, str], value: str) -> Plan:
        rule = {"fill": "p/w", "let": {"t": "target[key]", **let}, "value": value}
        leaves, target = {"p/w": "float32[6]"}, {"p/w": "float32[2,3]"}
        return plan_of(recipe_of(rule), leaves, target=target, readable=False)

    assert values_of(planned({"s": "t.shape"}, "reshape(x, s)"))
    assert problems_of(planned, {"u": "t + 1"}, "u")[0].code is Code.NO_TARGET


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [("x", "{0} + {0}", "a39"), ("'x'", "{0} + {0}", "a39"), ("[1, 2]", "[{0}, {0}]", "len(a39)")],
)
def test_names_that_double_are_small_or_refused(first: str, later: str, value: str) -> None:
    let = {"a0": first} | {f"a{i}": later.format(f"a{i - 1}") for i in range(1, 40)}
    rule = {"match": "a", "let": let, "value": value}
    if first == "x":
        (step,) = plan_of(recipe_of(rule), {"a": "float32[2]"}).steps
        assert len(list(inputs_first([step.value]))) == 39
        return
    with pytest.raises(PlanError, match="too long"):
        plan_of(recipe_of(rule), {"a": "float32[2]"})


def test_the_deepest_names_fit_the_stack() -> None:
    """Calls nest deepest in Python's stack."""
    deep = "abs(" * 47 + "{}" + ")" * 47
    let = {"a": deep.format("x"), "b": deep.format("a")}
    rule = {"match": "a", "let": let, "value": "abs(" * 63 + "b" + ")" * 63}
    plan = plan_of(recipe_of(rule), {"a": "float32[2]"})
    assert len(list(inputs_first([plan.steps[0].value]))) == 2 * 47 + 63
    assert sys.getrecursionlimit() == 1000
