"""Plans backwards: what comes back, by which expression, and why the rest does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.inference.drafts.drafting import draft_recipe
from tests.inference.going_back import (
    applied,
    backwards,
    computed,
    random_arrays,
    reasons,
    recipe,
    values,
)
from tests.support.comparing import assert_same
from tests.support.effort import examples
from tests.support.plans import plan_of

W = {"w": "float32[4,6]"}
LAYERS = {f"l{i}/w": "bfloat16[4,6]" for i in range(3)}
STACK = {"w": "float32[3,4,6]"}

BACK = [
    # source, rule, the expressions of what comes back
    (W, "match: w, to: v", {"w": "x"}),
    (W, "match: w, value: x.T", {"w": "x.T"}),
    (W, "match: w, value: 'transpose(x, (1, 0))'", {"w": "x.T"}),
    (W, "match: w, value: 'reshape(x, (2, 12))'", {"w": "reshape(x, (4, 6))"}),
    (W, "match: w, value: 'reshape(x, (3, 8))'", {"w": "reshape(x, (4, 6))"}),
    (
        W,
        "match: w, value: \"rearrange(x, 'a (h d) -> h a d', h=2)\"",
        {"w": "rearrange(x, 'a b c -> b (a c)')"},
    ),
    (W, "match: w, value: 'flip(x, 1)'", {"w": "flip(x, axis=-1)"}),
    (W, "match: w, value: 'x[::-1]'", {"w": "flip(x, axis=-2)"}),
    (W, "match: w, value: 'expand_dims(x, 1)'", {"w": "reshape(x, (4, 6))"}),
    ({"w": "int8[4,1,6]"}, "match: w, value: 'squeeze(x, 1)'", {"w": "reshape(x, (4, 1, 6))"}),
    (W, "match: w, value: 'take(x, [2, 0, 1, 3], 0)'", {"w": "take(x, [1, 2, 0, 3], axis=-2)"}),
    (W, "match: w, value: 'repeat(x, 2, 1)'", {"w": "x[..., ::2]"}),
    (W, "match: w, value: 'tile(x, (3, 1))'", {"w": "x[:4]"}),
    (W, "match: w, value: 'pad(x, 1, 8)'", {"w": "x[:, :6]"}),
    (W, "match: w, value: \"cast(x, 'float64')\"", {"w": "cast(x, 'float32')"}),
    ({"w": "bfloat16[4,6]"}, "match: w, value: \"cast(x, 'float32').T\"", {"w": "cast(x.T, 'bfloat16')"}),
    ({"w": "int8[4]"}, "match: w, value: \"cast(x, 'float16')\"", {"w": "cast(x, 'int8')"}),
    (
        W,
        "match: w, to: {a: 'reshape(x, (24,))[:10]', b: 'reshape(x, (24,))[10:]'}",
        {"w": "reshape(concat(xs), (4, 6))"},
    ),
    (
        W,
        "match: w, to: {a: \"bitcast(x, 'int16')[..., :1]\", b: \"bitcast(x, 'int16')[..., 1:]\"}",
        {"w": "bitcast(concat(xs, axis=1), 'float32')"},
    ),
    (W, "match: w, value: \"bitcast(x, 'int32')\"", {"w": "bitcast(x, 'float32')"}),
    (W, "match: w, value: \"bitcast(x, 'int16')\"", {"w": "bitcast(x, 'float32')"}),
    (W, "match: w, value: 'x * 4'", {"w": "x / 4.0"}),
    (W, "match: w, value: 'x / 4'", {"w": "x * 4.0"}),
    ({"w": "bfloat16[4]"}, "match: w, value: '-x * 0.25'", {"w": "-(x * 4.0)"}),
    ({"w": "int32[4]"}, "match: w, value: '5 - (x * 3 + 1)'", {"w": "((5 - x) - 1) // 3"}),
    (
        LAYERS,
        "match: 'l(?P<i>.)/w', to: w, by: int(i), value: 'stack(xs)'",
        {"l0/w": "x[0]", "l1/w": "x[1]", "l2/w": "x[2]"},
    ),
    (
        LAYERS,
        "match: 'l(?P<i>.)/w', to: w, by: int(i), value: \"rearrange(stack(xs, axis=1), 'a l b -> b l a')\"",
        {"l0/w": "x[:, 0].T", "l1/w": "x[:, 1].T", "l2/w": "x[:, 2].T"},
    ),
    (LAYERS, "match: 'l(?P<i>.)/w', to: w, by: int(i), value: 'stack(xs, count=5, fill=0.0)'", 3),
    (
        LAYERS,
        "match: 'l(?P<i>.)/w', to: w, by: int(i), value: 'concat(xs, axis=1)'",
        {"l0/w": "x[:, :6]", "l1/w": "x[:, 6:12]", "l2/w": "x[:, 12:]"},
    ),
    (STACK, "match: w, for: {i: range(3)}, to: 'l${i}', value: 'x[i]'", {"w": "stack(xs)"}),
    (STACK, "match: w, for: {i: range(4)}, to: 'l${i}', value: 'x[:, i]'", {"w": "stack(xs, axis=1)"}),
    (
        STACK,
        "match: w, for: {i: range(3)}, to: 'l${i}', value: 'x[i].T / 2'",
        {"w": "rearrange(stack(xs), 'l a b -> l b a') * 2.0"},
    ),
    (
        STACK,
        "match: w, for: {i: range(3), j: range(4)}, to: 'l${i}/${j}', value: 'x[i, j]'",
        {"w": "rearrange(stack(xs), '(l e) a -> l e a', l=3)"},
    ),
    (W, "match: w, to: {a: 'x[:1]', b: 'x[1:3]', c: 'x[3:]'}", {"w": "concat(xs)"}),
    (W, "match: w, to: {a: 'x[:1].T', b: 'x[1:].T'}", {"w": "concat([xs[0].T, xs[1].T])"}),
    (W, "match: w, to: {a: 'x[:3]', b: 'x[1:]'}", {"w": "concat([xs[0], xs[1][2:]])"}),
    (W, "match: w, to: {a: 'x[:, ::2]', b: 'x[:, 1::2]'}", {"w": "rearrange(stack(xs), 'l a b -> a (b l)')"}),
    (
        STACK,
        "match: w, for: {i: range(3)}, to: {'l${i}/a': 'x[i, :2]', 'l${i}/b': 'x[i, 2:]'}",
        {"w": "concat([stack(xs[0:3]), stack(xs[3:6])], axis=1)"},
    ),
    (
        STACK,
        "match: w, for: {i: range(3)}, to: {'l${i}/a': 'x[i, :1]', 'l${i}/b': 'x[i, 1:]'}",
        {"w": "concat([stack(xs[0:3]), stack(xs[3:6])], axis=1)"},
    ),
    (W, "match: w, to: {a: 'x[:2]', b: x.T, c: x}", {"w": "x.T"}),
    (
        {"w": "float16[4,6]"},
        "match: w, to: {a: \"cast(x[:2], 'float32')\", b: \"cast(x[2:], 'float64')\"}",
        {"w": "concat([cast(xs[0], 'float16'), cast(xs[1], 'float16')])"},
    ),
    ({"w": "float32[0,6]"}, "match: w, value: x.T", {"w": "reshape(x, (0, 6))"}),
    (
        {"a": "float32[0]", "b": "float32[2]"},
        "match: ., to: w, value: 'concat(xs)'",
        {"a": "x[:0]", "b": "x"},
    ),
    ({"s": "scalar:int64"}, "match: s, value: x + 1", {"s": "x - 1"}),
]


@pytest.mark.parametrize(("source", "rule", "wanted"), BACK, ids=[rule for _, rule, _ in BACK])
def test_what_comes_back(source: dict[str, str], rule: str, wanted: dict[str, str] | int) -> None:
    inverse = backwards(recipe(rule), source)
    assert reasons(inverse) == {}
    if isinstance(wanted, dict):
        assert values(inverse) == wanted
    assert tuple(one.target for one in inverse.findings.formations) == tuple(source)
    if "s" not in source:
        arrays = random_arrays(source)
        there = computed(plan_of(recipe(rule), source), arrays)
        assert_same(applied(inverse.findings.formations, there), arrays)


LOST = [
    (W, "match: w, value: 'x * 3.0'", "`* 3.0` rounds"),
    (W, "match: w, value: '1 + x'", "`1 +` rounds"),
    (W, "match: w, value: '2 / x'", "`2 /` rounds"),
    (W, "match: w, value: 'sqrt(x)'", "no expression undoes `sqrt`"),
    (W, "match: w, value: \"cast(x, 'bfloat16')\"", "keeps bfloat16 of its float32"),
    ({"w": "int32[4]"}, "match: w, value: \"cast(x, 'float32')\"", "keeps float32 of its int32"),
    (W, "match: w, value: \"quantize(x, 'int8')[0]\"", "keeps int8 of its float32"),
    (W, "match: w, value: 'sum(x, 0)'", "no expression undoes `sum`"),
    (W, "match: w, value: x + x", "no expression undoes `+`"),
    (W, "match: w, value: 'x[:, :3]'", "no output holds all of it: [:, 3:6]"),
    (W, "match: w, to: {a: 'x[:1]', b: 'x[2:3]'}", "no output holds all of it: [1:2], [3:4]"),
    (W, "match: w, to: {a: 'x[:1]', b: 'x[:, 1:]'}", "no output holds all of it"),
    (W, "match: w, value: 'take(x, [0, 2], 0)'", "no output holds all of it"),
]


@pytest.mark.parametrize(("source", "rule", "why"), LOST, ids=[rule for _, rule, _ in LOST])
def test_what_does_not_come_back(source: dict[str, str], rule: str, why: str) -> None:
    inverse = backwards(recipe(rule), source)
    assert reasons(inverse) == {"w": why}
    assert inverse.findings.formations == ()
    assert inverse.findings.target_keys == ("w",)
    assert inverse.findings.dropped == inverse.findings.source_keys


def test_what_is_computed_from_several() -> None:
    inverse = backwards(recipe("match: '.*', to: w, value: mean(xs)"), LAYERS)
    assert reasons(inverse) == dict.fromkeys(LAYERS, "computed from 3 leaves")


def test_what_is_dropped() -> None:
    text = recipe("match: a, to: b", "match: c, drop: true")
    assert reasons(backwards(text, {"a": "int8[1]", "c": "int8[1]"})) == {"c": "dropped by rules[1]"}
    text = recipe("match: a, to: b").replace("version: 1", "version: 1\nunmatched: drop")
    assert reasons(backwards(text, {"a": "int8[1]", "c": "int8[1]"})) == {"c": "unmatched: drop"}


def test_leaves_that_are_no_arrays_come_back_under_their_names() -> None:
    source = {"a": "string", "b": "empty", "c": "prng_key", "d": "scalar:int64"}
    inverse = backwards(recipe("match: '(?P<k>.)', to: 'new/${k}'"), source)
    assert reasons(inverse) == {}
    moved = {one.target: one.sources for one in inverse.findings.formations}
    assert moved == {key: (f"new/{key}",) for key in source}
    assert set(values(inverse).values()) == {"x"}


def test_what_was_added_or_is_the_targets_is_dropped() -> None:
    text = recipe("match: a, to: b", "add: c, value: \"zeros((2,), 'int8')\"", "fill: d, fallback: true")
    target = dict.fromkeys("bd", "float32[2,3]") | {"c": "int8[2]"}
    inverse = backwards(text, {"a": "float32[2,3]"}, target=target)
    assert values(inverse) == {"a": "x"}
    assert sorted(inverse.findings.dropped) == ["c", "d"]


def test_a_leaf_comes_back_from_the_first_that_holds_it() -> None:
    inverse = backwards(recipe("match: w, to: {p: x.T, q: x}"), W)
    assert [one.sources for one in inverse.findings.formations] == [("p",)]
    assert inverse.findings.dropped == ("q",)


def test_numbers_that_differ_are_holes() -> None:
    value = "rearrange(stack(xs), 'l a (h d) -> l h d a', h=2)"
    rule = f"match: 'l(?P<i>.)/w', to: w, by: int(i), value: \"{value}\""
    formations = backwards(recipe(rule), LAYERS).findings.formations
    assert {one.value.text for one in formations} == {"rearrange(x[{0}], 'a b c -> c (a b)')"}
    assert [one.value.numbers for one in formations] == [(0,), (1,), (2,)]


def test_slices_of_one_array_are_one_rule() -> None:
    """Slices at the ends, which leave out a bound, belong to it as well."""
    layers = {f"l{i}": "float32[4,6]" for i in range(6)}
    inverse = backwards(recipe("match: 'l(?P<i>.)', to: w, by: int(i), value: 'concat(xs)'"), layers)
    assert draft_recipe(inverse.findings).document["rules"] == [
        {"match": "w", "for": {"i": "range(6)"}, "to": "l${i}", "value": "x[i * 4:i * 4 + 4]"}
    ]


def test_passes_are_followed_to_the_source() -> None:
    text = """
version: 1
passes:
- rules:
  - {match: 'l(?P<i>.)/w', to: 'm/${i}', value: "rearrange(x, 'a (h d) -> h d a', h=2)"}
- rules:
  - {match: 'm/(?P<i>.)', to: w, by: int(i), value: 'stack(xs, axis=1)'}
"""
    inverse = backwards(text, LAYERS)
    assert values(inverse)["l2/w"] == "rearrange(x[:, 2], 'a b c -> c (a b)')"
    arrays = random_arrays(LAYERS)
    assert_same(applied(inverse.findings.formations, computed(plan_of(text, LAYERS), arrays)), arrays)


def test_a_long_chain_of_arithmetic_is_given_up() -> None:
    doubled = "- rules: [{match: w, value: x * 2}]\n- rules: [{match: w, value: -x}]\n"
    inverse = backwards("version: 1\npasses:\n" + doubled * 40, W)
    assert reasons(inverse) == {"w": "undoing it takes more than 40 functions"}


STEPS = st.lists(
    st.sampled_from(
        [
            "x.T",
            "flip(x, 0)",
            "reshape(x, (x.size // 4, 4))",
            "reshape(x, (x.size // 6, 2, 3))",
            "rearrange(x, '... (h d) -> h ... d', h=2)",
            "rearrange(x, 'a ... -> ... a')",
            "expand_dims(x, 0)",
            "squeeze(x)",
            "x * 2",
            "concat([x[:2], x[2:]])",
            "stack([x, x], axis=1)[:, 1]",
            "concat([x[1:], x[:1]])",
            "pad(x, 0, x.shape[0] + 2)",
            "cast(x, 'float64')",
        ]
    ),
    max_size=5,
)
SPLITS = st.sampled_from(
    [
        "to: {p: 'x[:2]', q: 'x[2:]'}",
        "to: {p: 'x[::2]', q: 'x[1::2]'}",
        "for: {i: 'range(x.shape[0])'}, to: 'p/${i}', value: 'x[i]'",
        "for: {i: 'range(x.shape[-1])'}, to: 'p/${i}', value: 'x[..., i]'",
        "to: p",
    ]
)


@examples(60)
@given(steps=STEPS, split=SPLITS, joined=st.booleans())
def test_random_plans_of_layouts_come_back(steps: list[str], split: str, joined: bool) -> None:
    """For every plan, the leaves that come back are equal bit for bit, and all that can come back do."""
    source = {f"l{i}": "float32[4,6]" for i in range(2)} if joined else W
    passes = [f'- rules: [{{match: ".*", value: "{step}"}}]' for step in steps]
    if joined:
        passes.insert(0, "- rules: [{match: 'l.', to: w, value: 'stack(xs, axis=1)'}]")
    text = "version: 1\npasses:\n" + "\n".join([*passes, f"- rules: [{{match: w, {split}}}]"])
    try:
        plan = plan_of(text, source)
    except PlanError:
        return  # the steps do not fit the shapes
    inverse = backwards(text, source)
    arrays = random_arrays(source)
    back = applied(inverse.findings.formations, computed(plan, arrays))
    for key, array in back.items():
        assert np.array_equal(array, arrays[key])
        assert array.dtype == arrays[key].dtype
    crossing = any("reshape" in step for step in steps)
    assert crossing or len(back) == len(source)
