"""Rules that are alike but for words."""

import itertools
from collections.abc import Sequence

import pytest

from ckpt_surgery.inference.bundle_rules import drafts_of
from ckpt_surgery.inference.covering import made_parts
from ckpt_surgery.inference.key_patterns import Universe
from ckpt_surgery.inference.loops import NAMES as LOOPS
from ckpt_surgery.inference.merging import NAMES, TREE, merged
from ckpt_surgery.inference.rule_drafts import RuleDraft
from ckpt_surgery.inference.tables import Tables
from ckpt_surgery.inference.writing import template
from ckpt_surgery.language.expressions.naming import name_problem
from tests.support.findings import Made, found


def of(made: Sequence[Made], others: Sequence[str] = ()) -> list[RuleDraft]:
    findings, tables = found(made, others=others), Tables()
    keys = Universe(findings.source_keys)
    return merged(drafts_of(made_parts(findings), keys, tables), keys, tables)


def patterns(rules: Sequence[RuleDraft]) -> list[str]:
    return [rule.pattern.regex() for rule in rules if rule.pattern is not None]


@pytest.mark.parametrize(
    ("made", "found_patterns"),
    [
        ([("n/q", "o/q", "x.T"), ("n/k", "o/k", "x.T")], ["o/(?P<word>q|k)"]),
        ([("n/q", "o/q", "x.T"), ("n/k", "o/k", "x")], ["o/q", "o/k"]),  # not the same value
        ([("q", "a", "x.T"), ("k", "b", "x.T")], ["a", "b"]),  # nothing in common
        (
            [(f"{t}/{w}/k", f"{t}/{w}/w", "x.T") for t in ("params", "mu/0") for w in "qk"],
            ["(?P<tree>params|mu/0)/(?P<word>q|k)/w"],
        ),
        (
            [(f"{w}/n{v}", f"o/{w}/{v}", "x.T") for w in "ab" for v in ("q", "k")],
            ["o/(?P<word>a|b)/(?P<part>q|k)"],
        ),
        ([("n", "o/a", "x.T"), ("n/b", "o/b", "x.T")], ["o/a", "o/b"]),  # no whole components differ
    ],
)
def test_which_rules_are_one(made: Sequence[Made], found_patterns: list[str]) -> None:
    assert patterns(of(made)) == found_patterns


def test_leaves_that_are_looked_up_have_the_same_word() -> None:
    made: list[Made] = [
        (f"l/{i}/{w}", [f"l/{i}/{w}/w", f"l/{i}/{w}/lora"], "xs[0] + xs[1]") for i in range(3) for w in "qk"
    ]
    (rule,) = of(made)
    assert rule.outputs[0].value == "x + source[f'l/{n}/{word}/lora']"
    assert template(rule.outputs[0].to) == "l/${n}/${word}"
    assert (len(rule.claims), rule.makes) == (6, 6)


def test_long_lists_of_words_are_several_rules() -> None:
    words = ["a_long_name_of_a_leaf_" + "".join(two) for two in itertools.product("abcdefghijk", repeat=2)]
    rules = of([(f"n/{word.upper()}", f"o/{word}/w", "x.T") for word in words])
    assert len(rules) == 2
    assert sum(len(rule.claims) for rule in rules) == 121
    assert all(len(pattern) < 1600 for pattern in patterns(rules))


def test_names_are_allowed() -> None:
    assert [name for name in (*NAMES, TREE, "rest", *LOOPS) if name_problem(name, {})] == []
    assert [
        name for name in ("names", "names2", "numbers", "order", "members") if name_problem(name, {})
    ] == []
