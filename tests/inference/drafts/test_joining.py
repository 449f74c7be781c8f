"""Rules that differ in one slot, as one: a tree, a word, a layer; and keys by what they end with."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from ckpt_surgery.inference.drafts.bundle_rules import draft_rules
from ckpt_surgery.inference.drafts.drafting import draft_recipe
from ckpt_surgery.inference.drafts.joining import TREE, by_endings, join_rules
from ckpt_surgery.inference.drafts.key_patterns import NAMES, Universe
from ckpt_surgery.inference.drafts.loops import NAMES as LOOPS
from ckpt_surgery.inference.drafts.parts import Kind, RuleDraft, Tables
from ckpt_surgery.inference.drafts.subtree_rules import made_parts
from ckpt_surgery.inference.drafts.writing import template
from ckpt_surgery.language.expressions.naming import name_problem
from tests.support.findings import Made, found


def of(moves: Sequence[Made], others: Sequence[str] = ()) -> list[RuleDraft]:
    findings, tables = found(moves, others=others), Tables()
    keys = Universe(findings.source_keys)
    return join_rules(draft_rules(made_parts(findings), keys, tables), keys, tables)


def patterns(rules: Sequence[RuleDraft]) -> list[str]:
    return [rule.pattern.regex() for rule in rules if rule.pattern is not None]


@pytest.mark.parametrize(
    ("moves", "joined"),
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
        (  # a word that a component ends with, and one that is followed by another
            [
                (f"{w}{i}/w", f"a_{o}{i}/w", "x.T")
                for w, o in (("A", "a"), ("B", "b"), ("c/", "c"))
                for i in range(3)
            ],
            [r"(?P<word>a_a|a_b)(?P<n>\d+)/w", r"a_c(?P<n>\d+)/w"],
        ),
    ],
)
def test_which_rules_are_one(moves: Sequence[Made], joined: list[str]) -> None:
    assert patterns(of(moves)) == joined


def test_leaves_that_are_looked_up_have_the_same_word() -> None:
    moves: list[Made] = [
        (f"l/{i}/{w}", [f"l/{i}/{w}/w", f"l/{i}/{w}/lora"], "xs[0] + xs[1]") for i in range(3) for w in "qk"
    ]
    (rule,) = of(moves)
    assert rule.outputs[0].value == "x + source[f'l/{n}/{word}/lora']"
    assert template(rule.outputs[0].to) == "l/${n}/${word}"
    assert (len(rule.claims), rule.makes) == (6, 6)


def test_long_lists_of_words_are_several_rules() -> None:
    words = ["a_long_name_of_a_leaf_" + "".join(two) for two in itertools.product("abcdefghij", repeat=2)]
    rules = of([(f"n/{word.upper()}", f"o/{word}/w", "x.T") for word in words])
    assert len(rules) == 2
    assert sum(len(rule.claims) for rule in rules) == 100
    assert all(len(pattern) < 1600 for pattern in patterns(rules))


def test_names_are_allowed() -> None:
    assert [name for name in (*NAMES, TREE, "rest", *LOOPS) if name_problem(name, {})] == []
    assert [
        name for name in ("names", "names2", "numbers", "order", "members") if name_problem(name, {})
    ] == []


# --- layers -----------------------------------------------------------------------------------------------


def rules(moves: list[Made], dropped: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return draft_recipe(found(moves, dropped)).document["rules"]


def stacks(names: tuple[str, ...], layers: int) -> list[Made]:
    """One stack for each name, of every so manieth layer."""
    count = len(names)
    return [
        (f"top/{name}/w", [f"h/{i}/w" for i in range(at, layers, count)], "stack(xs)")
        for at, name in enumerate(names)
    ]


def test_a_remainder_that_is_in_the_key() -> None:
    (rule,) = rules(stacks(("phase_0", "phase_1"), 6))
    assert rule["to"] == "top/phase_${int(n) % 2}/w"
    assert (rule["match"], rule["by"], "when" in rule) == (r"h/(?P<n>\d+)/w", "int(n) // 2", False)


def test_words_by_a_remainder() -> None:
    draft = draft_recipe(found(stacks(("local", "other", "global"), 9)))
    (rule,) = draft.document["rules"]
    assert rule["to"] == "top/${choices[str(int(n) % 3)]}/w"
    assert draft.document["tables"] == {"choices": {"0": "local", "1": "other", "2": "global"}}
    assert draft.rules[0].outputs == 3


def test_what_is_not_meant_is_left_out_by_a_condition() -> None:
    moves = stacks(("local", "global"), 6)
    assert [rule.get("when") for rule in rules(moves, ("h/6/w", "h/7/w"))] == ["int(n) < 6", "int(n) >= 6"]


@pytest.mark.parametrize(
    "moves",
    [
        [("a", [f"{i}" for i in (0, 2, 4)], "stack(xs)"), ("b", [f"{i}" for i in (1, 3, 5)], "stack(xs)")],
        [
            ("t/a/w", [f"h/{i}/w" for i in (0, 2, 4)], "stack(xs)"),
            ("t/b/w", [f"h/{i}/w" for i in (1, 3, 5)], "stack(xs, axis=1)"),
        ],
    ],
    ids=["keys with nothing in common", "other values"],
)
def test_rules_that_stay_apart(moves: list[Made]) -> None:
    assert len(rules(moves)) == 2


# --- endings ----------------------------------------------------------------------------------------------

STATE = [f"state/{name}/{slot}" for name in ("a/kernel", "b/kernel", "c/scale") for slot in ("m", "v", "vr")]


@pytest.mark.parametrize(
    ("keys", "others", "pattern"),
    [
        ([key for key in STATE if key.endswith("/m")], ["m", "target/m"], "state/.*/m"),
        (["state/a/kernel/v", "state/b/kernel/v"], [], "state/.*/kernel/v"),
        (["state/a/kernel/v", "state/b/kernel/v", "state/c/scale/vr"], [], "state/.*/(?:kernel/v|scale/vr)"),
        (["state/a/kernel/v", "state/c/scale/vr"], [], None),  # what tells the first from others is all of it
        (["state/a/kernel/m"], [], None),  # one key is its own rule
        (["x/m", "state/m"], ["deep/state/m"], None),  # a whole key ends as another one does
    ],
)
def test_patterns(keys: list[str], others: list[str], pattern: str | None) -> None:
    universe = Universe([*STATE, *keys, *others])
    rule = by_endings(Kind.DROPPED, keys, universe)
    assert (None if rule is None else rule.pattern.regex(())) == pattern
    if rule is not None:
        assert universe.matched(rule.pattern).keys() == set(rule.claims) == set(keys)


def test_too_many_endings_are_no_rule() -> None:
    keys = [f"s/{i}/{chr(97 + i)}" for i in range(13)]
    assert by_endings(Kind.FILLED, keys, Universe(keys)) is None
    assert by_endings(Kind.FILLED, keys[1:], Universe(keys)).makes == 12


def test_a_word_within_a_word_needs_no_table() -> None:
    (rule,) = of([(f"n/my_{w}_proj", f"o/{w}/w", "x.T") for w in ("query", "key")])
    assert template(rule.outputs[0].to) == "n/my_${word}_proj"
