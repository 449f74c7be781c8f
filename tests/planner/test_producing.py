"""What rules make of the leaves that they claimed."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.planner.claiming import claim
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.producing import produce
from ckpt_surgery.planner.running import PassRun
from tests.support.comparing import same
from tests.support.passes import Described, pass_run_of, rules_of
from tests.support.plans import problems_of


def produced(run: PassRun) -> list[tuple[int | None, Entry]]:
    """The new entries, each with the number of its rule."""
    claim(run)
    return [(rule and rule.index, entry) for rule, entry in produce(run)]


def made_by(leaves: Described, *rules: str) -> list[tuple[int | None, str, tuple[str, ...]]]:
    """Number of the rule, key, and keys that the value reads, of every entry; there must be no problem."""
    run = pass_run_of(rules_of(*rules), leaves)
    found = produced(run)
    run.problems.raise_all()
    return [
        (index, entry.key.text, tuple(read.leaf.key.text for read in reads(entry.value)))
        for index, entry in found
    ]


def problem_of(leaves: Described, *rules: str) -> str:
    run = pass_run_of(rules_of(*rules), leaves)
    produced(run)
    (problem,) = problems_of(run.problems.raise_all)
    return problem.message


@pytest.mark.parametrize(
    ("leaves", "rules", "wanted"),
    [
        (["a", "b"], ["match: b", "match: a, to: z"], [(0, "b", ("b",)), (1, "z", ("a",))]),  # by rules
        (["a"], ["match: a, to: {b: 'x[0]', c: x}"], [(0, "b", ("a",)), (0, "c", ("a",))]),  # one to many
        ({"a": "string"}, ["match: a, to: {b: x, c: x}"], [(0, "b", ("a",)), (0, "c", ("a",))]),  # any kind
        (
            ["l10", "l2", "l1"],
            [r"match: 'l\d+', to: l, value: stack(xs)"],
            [(0, "l", ("l1", "l2", "l10"))],  # by number
        ),
        (
            ["l1", "l2"],
            [r"match: 'l(?P<n>\d)', to: l, by: '-int(n) + 2', value: stack(xs)"],
            [(0, "l", ("l2", "l1"))],  # as `by` says
        ),
        (
            ["a"],
            ["match: a, to: 'b${i}', for: {i: 'range(2)'}, value: 'x[i]'"],
            [(0, "b0", ("a",)), (0, "b1", ("a",))],
        ),
        (
            ["a"],
            ["add: 'n${i}', for: {i: 'range(3)'}, when: i != 1, value: i"],
            [(0, "n0", ()), (0, "n2", ())],
        ),
        (
            ["a"],
            ["add: 'n${i}${j}', for: {i: 'range(2)', j: '[\"a\", \"b\"]'}, value: i"],
            [(0, "n0a", ()), (0, "n0b", ()), (0, "n1a", ()), (0, "n1b", ())],  # the last one changes first
        ),
        (["a"], ["match: a, value: '0'"], [(0, "a", ("a",))]),  # in its place, so it is not dropped
        (["a"], ["match: a, to: b, value: 'zeros(3, ''int8'')'"], [(0, "b", ("a",))]),
        (["a"], ["match: a, to: {a: x, n: '0'}"], [(0, "a", ("a",)), (0, "n", ())]),  # `n` is in no place
        ({"s": "string"}, ["match: s, to: t"], [(0, "t", ("s",))]),  # what is no array can be renamed
    ],
)
def test_what_is_made(leaves: Described, rules: list[str], wanted: list[object]) -> None:
    assert made_by(leaves, *rules) == wanted


def test_who_is_dropped_and_who_only_if_unused() -> None:
    run = pass_run_of(rules_of("match: a, drop: true", "match: b, value: x + 1", "match: c"), [*"abc"])
    found = produced(run)
    assert [(str(d.rule), d.entry.key.text, d.why) for d in run.drops] == [("rules[0] (line 3)", "a", "drop")]
    assert [(str(d.rule), d.entry.key.text, d.why) for d in run.unused] == [
        ("rules[1] (line 4)", "b", "no output uses it")
    ]
    assert [entry.key.text for _, entry in found] == ["b", "c"]


def unread(*_: object) -> np.ndarray:
    raise AssertionError("no element of the leaf is read")


@pytest.mark.parametrize(
    ("described", "number", "wanted"),
    [
        ("int32[]", "0", np.zeros((), np.int32)),
        ("scalar:int64", "7", np.array(7)),
        ("bfloat16[2,3]", "0.5", np.full((2, 3), 0.5, dtype_named("bfloat16"))),
        ("float32[2]", "x.shape[0]", np.full(2, 2, np.float32)),
        ("bool[]", "True", np.array(True)),
    ],
)
def test_a_number_keeps_the_leafs_kind_shape_and_dtype(
    described: str, number: str, wanted: np.ndarray
) -> None:
    run = pass_run_of(rules_of(f"match: a, to: b, value: '{number}'"), {"a": described})
    ((_, entry),) = produced(run)
    assert entry.leaf.kind == run.trees["source"]["a"].leaf.kind
    assert [read.leaf.key.text for read in reads(entry.value)] == ["a"]
    assert same(evaluate(entry.value, Region((0,) * wanted.ndim, wanted.shape), unread), wanted)


@pytest.mark.each
@pytest.mark.parametrize(
    ("leaves", "rule", "says"),
    [
        (["a"], "match: b", "the rule claims nothing: no key matches"),
        ({"s": "string"}, "match: s, value: '1'", "`s` is a string: no value can take its place (at `s`)"),
        (
            ["a"],
            "match: a, for: {i: 'range(0)'}, to: 'b${i}'",
            "`for` has no values, so that nothing is made (at `a`)",
        ),
        (
            ["a"],
            "match: a, to: b, for: {i: 'range(2)'}, value: 'stack(xs)'",
            "`xs` would have `a` 2 times: every value of `for` gives it this key (at `b`)",
        ),
        (
            ["a"],
            "add: 'b${i}', value: i, for: {i: '3'}",  # and not besides that it makes nothing
            "`for` needs a list or a `range(n)` (at `b$\\{i\\}`)",
        ),
    ],
)
def test_problems(leaves: Described, rule: str, says: str) -> None:
    assert problem_of(leaves, rule) == says


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (r"match: '(?P<n>\d)', to: 'l/{n}'", "`{n}` stays as it is; `${n}` inserts what it stands for"),
        (r"match: '(\d)', to: 'l/{1}'", "`{1}` stays as it is; `\\1` inserts what it stands for"),
        (r"match: '(\d)', to: 'l/{2}'", None),  # there is no such group
        (r"match: '(?P<n>\d)', to: 'l/${n}'", None),
        (
            "add: 'n/{i}', for: {i: 'range(1)'}, value: i",
            "`{i}` stays as it is; `${i}` inserts what it stands for",
        ),
    ],
)
def test_names_in_mere_braces(rule: str, says: str | None) -> None:
    run = pass_run_of(rules_of(rule), ["1"])
    assert braces_of(run.rules[0].rule) == says
    produced(run)
    warnings = [f"rules[0] (line 3): {says}"] if says else []
    assert [notice.before for notice in run.problems.notices] == warnings
