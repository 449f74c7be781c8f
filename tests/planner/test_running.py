"""What patterns, expressions and templates of a pass give, and where their problems point."""

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError, SurgeryError
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.language.expressions.regexes import MatchBudget
from ckpt_surgery.language.expressions.scope import Unavailable
from ckpt_surgery.planner.entries import SourceLeaves, x_of
from ckpt_surgery.planner.running import FAILED, FAILED_RANGES, RuleRun, combinations_of, count_of
from tests.support.passes import Described, pass_run_of, rules_of, tree_of

SEVERAL = "version: 1\nsources: [base, lora, ema]\nrules:\n"


def only_rule(rule: str, leaves: Described) -> RuleRun:
    """The one rule of a pass over one source."""
    (only,) = pass_run_of(rules_of(rule), leaves).rules
    return only


def problems_of(rule: RuleRun) -> list[str]:
    """The messages of all problems that were noted."""
    with pytest.raises(PlanError) as caught:
        rule.pass_run.problems.raise_all()
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("", ["base"]),  # the first one
        (", source: lora", ["lora"]),
        (", source: '*'", ["base", "lora", "ema"]),
        (", source: [ema, base]", ["ema", "base"]),  # in the rule's own order
    ],
)
def test_the_sources_that_a_rule_reads(source: str, wanted: list[str]) -> None:
    run = pass_run_of(f"{SEVERAL}- {{match: a{source}}}", ["a"], ["a"], ["a"])
    assert run.rules[0].sources == wanted


def test_names_at_a_key() -> None:
    rule = only_rule(r"match: '(?P<n>\d+)/(?:(?P<m>x)|(y))'", ["1/y"])
    match = rule.match("1/y")
    assert match is not None
    names = rule.names_at(match, "1/y")
    assert (names["n"], names["m"], names["key"]) == ("1", "", "1/y")
    assert [names["g"].text(i) for i in range(4)] == ["1/y", "1", "", "y"]
    assert names["sources"] == ("source",)
    assert names["source"].keys() == {"1/y"}
    assert rule.match("1/y/z") is None  # of the whole key


def test_a_value_and_its_problem() -> None:
    rule = only_rule("match: a, value: x + 1", ["a"])
    value = rule.rule.value
    assert value is not None
    names = {"x": x_of(rule.pass_run.trees["source"]["a"])}
    assert isinstance(rule.value(("value",), value, names, "a"), Array)
    assert rule.pass_run.problems.is_empty
    assert rule.value(("value",), value, {"x": "text"}, "a") is FAILED
    assert problems_of(rule) == ["`+` does not take the text 'text' and the number 1 (at `a`)"]


@pytest.mark.parametrize(
    ("when", "holds", "says"),
    [
        ("1 < 2", True, None),
        ("1 > 2", False, None),
        ("x", FAILED, "an array float32[2,3] is neither true nor false (at `k`)"),
        ("int('x') > 0", FAILED, "`int`: 'x' is not an integer (at `k`)"),
    ],
)
def test_conditions(when: str, holds: object, says: str | None) -> None:
    rule = only_rule(f'match: a, when: "{when}"', ["a"])
    names = {"x": x_of(rule.pass_run.trees["source"]["a"])}
    assert rule.holds(names, "k") is holds
    assert rule.pass_run.problems.is_empty == (says is None)
    if says is not None:
        assert problems_of(rule) == [says]


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ("", [{}]),
        ("i: 'range(2)'", [{"i": 0}, {"i": 1}]),
        (
            "i: 'range(2)', j: '[\"a\", \"b\"]'",  # the last one changes first
            [{"i": 0, "j": "a"}, {"i": 0, "j": "b"}, {"i": 1, "j": "a"}, {"i": 1, "j": "b"}],
        ),
        ("i: 'range(0)', j: 'range(2)'", []),
        ("i: '3'", None),
        ("i: '\"ab\"'", None),  # text is no list
    ],
)
def test_combinations(variables: str, wanted: list[dict[str, object]] | None) -> None:
    loop = f", for: {{{variables}}}" if variables else ""
    template = "".join(f"${{{name}}}" for name in "ij" if f"{name}:" in variables)
    rule = only_rule(f"match: a, to: 'b{template}'{loop}", ["a"])
    ranges = rule.ranges(rule.pass_run.names, "a")
    assert (None if ranges is FAILED_RANGES else list(combinations_of(ranges))) == wanted
    if wanted is None:
        assert problems_of(rule) == ["`for` needs a list or a `range(n)` (at `a`)"]


def test_keys_that_templates_give() -> None:
    rule = only_rule("add: 'l/1/${n}', value: '1', for: {n: '[1]'}", ["l/[0]"])
    template = rule.rule.add
    assert template is not None
    spelled = rule.spelled(template, None, {"n": "b"})
    assert (spelled.text, spelled.sequences) == ("l/1/b", (False, True, False))  # `l` is a list already
    with pytest.raises(SurgeryError, match="empty component"):
        rule.spelled(template, None, {"n": ""})


def test_what_was_looked_up() -> None:
    run = pass_run_of(
        "version: 1\nsources: [a, b]\nrules: [{match: x, value: \"reshape(x, b['y'].shape)\"}]",
        ["x"],
        ["y", "z"],
    )
    assert run.looked_up() == set()
    value = run.rules[0].rule.value
    assert value is not None
    names = {**run.names, "x": x_of(run.trees["a"]["x"])}
    run.rules[0].value(("value",), value, names, "x")
    assert run.looked_up() == {id(run.trees["b"]["y"])}  # its shape alone was asked for


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


def test_x_of_a_leaf_without_an_array_fails_when_it_is_used() -> None:
    x = x_of(tree_of("source", {"s": "string"})["s"])
    assert isinstance(x, Unavailable)
    assert x.message == "`s` is a string, not an array"


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
