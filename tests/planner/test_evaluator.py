"""What patterns, expressions and templates of a pass give, and where their problems point."""

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError, SurgeryError
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.language.patterns import MatchingTime
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.evaluator import FAILED, Evaluator, SourceLeaves, combinations_of, count_of, x_of
from tests.support.passes import evaluator_of, pass_of, rules_of, tree_of

SEVERAL = "version: 1\nsources: [base, lora, ema]\nrules:\n"


def problems_of(evaluator: Evaluator) -> list[str]:
    """The messages of all problems that were noted."""
    with pytest.raises(PlanError) as caught:
        evaluator.problems.raise_all()
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
    evaluator = evaluator_of(f"{SEVERAL}- {{match: a{source}}}", ["a"], ["a"], ["a"])
    assert evaluator.sources_of(pass_of(evaluator).rules[0]) == wanted


def test_names_at_a_key() -> None:
    evaluator = evaluator_of(rules_of(r"match: '(?P<n>\d+)/(?:(?P<m>x)|(y))'"), ["1/y"])
    pattern = pass_of(evaluator).rules[0].match
    assert pattern is not None
    match = evaluator.match(0, ("match",), pattern, "1/y")
    assert match is not None
    names = evaluator.names_at(match, "1/y")
    assert (names["n"], names["m"], names["key"]) == ("1", "", "1/y")
    assert [names["g"].text(i) for i in range(4)] == ["1/y", "1", "", "y"]
    assert names["sources"] == ("source",)
    assert names["source"].keys() == {"1/y"}
    assert evaluator.match(0, ("match",), pattern, "1/y/z") is None  # of the whole key


def test_a_value_and_its_problem() -> None:
    evaluator = evaluator_of(rules_of("match: a, value: x + 1"), ["a"])
    value = pass_of(evaluator).rules[0].value
    assert value is not None
    names = {"x": x_of(evaluator.trees["source"]["a"])}
    assert isinstance(evaluator.evaluate(0, ("value",), value, names, "a"), Array)
    assert evaluator.problems.is_empty
    assert evaluator.evaluate(0, ("value",), value, {"x": "text"}, "a") is FAILED
    assert problems_of(evaluator) == ["`+` does not take the text 'text' and the number 1 (at `a`)"]


@pytest.mark.parametrize(
    ("when", "holds", "says"),
    [
        ("1 < 2", True, None),
        ("1 > 2", False, None),
        ("x", None, "an array float32[2,3] is neither true nor false (at `k`)"),
        ("int('x') > 0", None, "`int`: 'x' is not an integer (at `k`)"),
    ],
)
def test_conditions(when: str, holds: bool | None, says: str | None) -> None:
    evaluator = evaluator_of(rules_of(f'match: a, when: "{when}"'), ["a"])
    names = {"x": x_of(evaluator.trees["source"]["a"])}
    condition = pass_of(evaluator).rules[0].when
    assert condition is not None
    assert evaluator.condition(0, condition, names, "k") is holds
    assert evaluator.problems.is_empty == (says is None)
    if says is not None:
        assert problems_of(evaluator) == [says]


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
    evaluator = evaluator_of(rules_of(f"match: a, to: 'b{template}'{loop}"), ["a"])
    rule = pass_of(evaluator).rules[0]
    ranges = evaluator.ranges(0, rule, evaluator.names, "a", rule)
    assert (None if ranges is None else list(combinations_of(ranges))) == wanted
    if wanted is None:
        assert problems_of(evaluator) == ["`for` needs a list or a `range(n)` (at `a`)"]


def test_keys_that_templates_give() -> None:
    evaluator = evaluator_of(rules_of("add: 'l/1/${n}', value: '1', for: {n: '[1]'}"), ["l/[0]"])
    template = pass_of(evaluator).rules[0].add
    assert template is not None
    spelled = evaluator.spell(0, ("add",), template, None, {"n": "b"}, "")
    assert spelled is not None
    assert (spelled.text, spelled.sequences) == ("l/1/b", (False, True, False))  # `l` is a list already
    assert evaluator.spell(0, ("add",), template, None, {"n": ""}, "") is None
    assert len(problems_of(evaluator)) == 1


def test_what_was_looked_up() -> None:
    evaluator = evaluator_of(
        "version: 1\nsources: [a, b]\nrules: [{match: x, value: \"reshape(x, b['y'].shape)\"}]",
        ["x"],
        ["y", "z"],
    )
    assert evaluator.looked_up() == set()
    value = pass_of(evaluator).rules[0].value
    assert value is not None
    names = {**evaluator.names, "x": x_of(evaluator.trees["a"]["x"])}
    evaluator.evaluate(0, ("value",), value, names, "x")
    assert evaluator.looked_up() == {id(evaluator.trees["b"]["y"])}  # its shape alone was asked for


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
    assert count_of(r"l\d", tree_of("source", ["l0", "l1", "l1/w", "ml2"]), MatchingTime()) == 2


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
