"""Rows and JSON documents from plans and listings made by hand."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.functions.create import Full, InPlaceOf
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.language.loading import ParamSource, ParamValue
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Costs, Dropped, Fate, Input, Plan, Step
from ckpt_surgery.planner.plan_json import counts
from ckpt_surgery.report.plan import has_changes, leaves_before, plan_rows
from tests.support.documents import plan_json
from tests.support.leaves import array_leaf, leaf

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)
FIRST = RuleRef("rules[0]", 12)
SECOND = RuleRef("rules[1]", 20)


def step(key: str, fate: Fate, sources=(), rule=None, leaf=None) -> Step:
    leaf = leaf or array_leaf(key)
    return Step(leaf, Read("source", leaf), fate, rule, tuple(sources))


def a_plan(steps, dropped=(), names=("source",)) -> Plan:
    inputs = tuple(Input(name, f"/ckpt/{name}", "orbax", 7, "f", 10, "state") for name in names)
    costs = Costs(600, 100, 200, 300, 650, 1024)
    return Plan("r.yaml", "ab12", inputs, tuple(steps), tuple(dropped), (), costs)


def test_rows_say_where_a_value_is_replaced():
    leaf = array_leaf("step")
    new = Apply(Full((2, 3), 0, F32), ())
    steps = [
        Step(leaf, value, Fate.TRANSFORMED, FIRST, (("source", "step"),))
        for value in (Apply(InPlaceOf(), (new, Read("source", leaf))), Apply(Cast(BF16), (new,)))
    ]
    (replaced,) = plan_rows(a_plan(steps[:1]))
    assert (replaced.spec, replaced.why) == ("f32[2,3]", "value replaced")
    assert [row.why for row in plan_rows(a_plan(steps[1:]))] == [""]


@pytest.mark.each
@pytest.mark.parametrize(
    ("other", "keys"),
    [
        (step("w_1", Fate.TRANSFORMED, [("source", "v_1")], FIRST), ["w_{0,1}"]),
        (step("w_1", Fate.RENAMED, [("source", "v_1")], FIRST), ["w_0", "w_1"]),
        (step("w_1", Fate.TRANSFORMED, [("source", "v_1")], SECOND), ["w_0", "w_1"]),
        (step("w_1", Fate.TRANSFORMED, [("source", "u_1")], FIRST), ["w_0", "w_1"]),
        *(
            (step("w_1", Fate.TRANSFORMED, [("source", "v_1")], FIRST, one), ["w_0", "w_1"])
            for one in (array_leaf("w_1", (3, 2)), array_leaf("w_1", dtype=BF16), leaf("w_1", "string"))
        ),
    ],
    ids=["same", "fate", "rule", "source", "shape", "dtype", "kind"],
)
def test_rows_differ_where_leaves_do(other, keys):
    one = step("w_0", Fate.TRANSFORMED, [("source", "v_0")], FIRST)
    assert [row.key for row in plan_rows(a_plan([one, other]))] == keys


def test_sources_are_named_where_there_are_several_and_the_target_always():
    steps = [step("w", Fate.TRANSFORMED, [("base", "w"), ("lora", "w/a")], FIRST)]
    gone = [Dropped("lora", array_leaf("x"), None, "no output uses it")]
    rows = plan_rows(a_plan(steps, gone, ("base", "lora")))
    assert rows[0].sources == ("base:w", "lora:w/a")
    assert rows[1].key == "lora:x"
    steps = [step("w", Fate.DEFAULTED, [("target", "w")])]
    assert plan_rows(a_plan(steps, names=("source", "target")))[0].sources == ("target:w",)


def test_a_plan_has_changes_unless_all_is_kept():
    kept, gone = step("w", Fate.KEPT), Dropped("source", array_leaf("x"), None, "drop")
    assert not has_changes(a_plan([]))
    assert not has_changes(a_plan([kept]))
    assert has_changes(a_plan([kept], [gone]))
    assert has_changes(a_plan([step("w", Fate.RENAMED)]))


def test_totals_count_the_sources_without_the_target():
    steps = [step("a", Fate.KEPT), step("b", Fate.ADDED), step("c", Fate.ADDED)]
    gone = [Dropped("base", array_leaf("x"), None, "drop")]
    by_fate = {"kept": 1, "renamed": 0, "transformed": 0, "defaulted": 0, "added": 2, "dropped": 1}
    plan = a_plan(steps, gone, ("base", "lora", "target"))
    assert (leaves_before(plan), counts(plan)) == (14, by_fate)


def test_params_of_the_document():
    params = [
        ParamValue("n", 4, ParamSource.CONFIG, "layers", "config.json"),
        ParamValue("m", ("a",), ParamSource.SET),
    ]
    assert plan_json(replace(a_plan([]), params=tuple(params)))["params"] == {
        "n": {"value": 4, "origin": "config", "entry": "layers", "note": "config.json"},
        "m": {"value": ["a"], "origin": "set", "entry": None, "note": None},
    }


# --- subtrees -----------------------------------------------------------------------------------------


def cast_of(key: str, shape=(2, 3)) -> Step:
    before = array_leaf(key, shape)
    return replace(
        step(key, Fate.TRANSFORMED, [("source", key)], FIRST, array_leaf(key, shape, BF16)),
        value=Read("source", before),
    )


def test_renamed_subtrees_and_their_mirrors_are_one_row():
    steps = [
        step(f"{tree}/h_{i + 1}/{name}", Fate.RENAMED, [("source", f"{tree}/b_{i}/{name}")], FIRST)
        for tree in ("opt/mu", "opt/nu", "params")
        for i in range(4)
        for name in ("w", "v")
    ]
    (row,) = plan_rows(a_plan(steps))
    assert (row.key, row.sources) == ("params/h_{1..4}/…", ("params/b_{0..3}/…",))
    assert (row.also, row.count, row.leaves, row.total) == (("opt/mu", "opt/nu"), 4, 2, 24)
    assert (row.spec, row.nbytes) == ("f32", 24 * 24)


def test_a_cast_of_a_subtree_shows_its_dtypes():
    """Leaves whose shapes change have rows of their own."""
    (row,) = plan_rows(a_plan([cast_of("p/a"), cast_of("p/b", (4,))]))
    assert (row.key, row.spec, row.leaves) == ("p/…", "f32 → bf16", 2)
    (row,) = plan_rows(a_plan([cast_of("p/a")]))
    assert (row.key, row.spec, row.leaves) == ("p/a", "f32[2,3] → bf16[2,3]", 1)
    turned = [replace(cast_of(f"p/{name}"), leaf=array_leaf(f"p/{name}", (3, 2))) for name in "ab"]
    assert [(row.key, row.spec) for row in plan_rows(a_plan(turned))] == [
        ("p/a", "f32[2,3] → f32[3,2]"),
        ("p/b", "f32[2,3] → f32[3,2]"),
    ]


def test_surprises_are_shown_leaf_by_leaf():
    for fate in (Fate.DEFAULTED, Fate.ADDED):
        steps = [step(f"p/{name}", fate, [("target", f"p/{name}")]) for name in "ab"]
        assert [row.key for row in plan_rows(a_plan(steps))] == ["p/a", "p/b"]


def test_averages_of_whole_trees_share_a_row() -> None:
    """As `@average` makes them: the same leaves of several sources, in params and in both moments."""
    names, trees = ("first", "second", "source_3"), ("opt/mu", "opt/nu", "params")

    def average(key: str) -> Step:
        leaf = array_leaf(key)
        mean = Apply(ListReduction("mean"), tuple(Read(name, leaf) for name in names))
        return Step(leaf, mean, Fate.TRANSFORMED, FIRST, tuple((name, key) for name in names))

    steps = [average(f"{tree}/layer_{n}/{name}") for tree in trees for n in range(13) for name in "qk"]
    count = step("opt/count", Fate.KEPT, [("third", "opt/count")])
    row, _ = plan_rows(a_plan([*steps, count], names=names))
    assert (row.averaged, row.key, row.sources) == (True, "params/…", ("*:params/…",))
    assert (row.leaves, row.gathers, row.also, row.total) == (26, 3, ("opt/mu", "opt/nu"), 78)
    # Of two of three sources: no line says that all have it.
    some = Step(steps[0].leaf, steps[0].value, Fate.TRANSFORMED, FIRST, steps[0].sources[:2])
    (row,) = plan_rows(a_plan([some], names=names))
    assert row.sources == ("first,second:opt/mu/layer_0/q",)


def test_what_several_sources_lose_shares_a_row() -> None:
    gone = [Dropped(name, array_leaf("step"), FIRST, "drop") for name in ("a", "b", "c", "d", "e")]
    rows = plan_rows(a_plan([], gone, ("a", "b", "c", "d", "e")))
    assert [(row.key, row.count, row.nbytes) for row in rows] == [("a,…,e:step", 5, 5 * 24)]
    other = Dropped("c", array_leaf("step"), None, "not claimed")
    assert [row.key for row in plan_rows(a_plan([], [*gone[:2], other], ("a", "b")))] == [
        *("a,b:step", "c:step")
    ]


def test_added_leaves_of_one_name_share_a_row() -> None:
    keys = [f"state/p/{layer}/w/m" for layer in ("q", "k", "o")] + ["state/p/o/w/v", "other/m"]
    steps = [step(key, Fate.ADDED, (), FIRST) for key in keys]
    rows = plan_rows(a_plan(steps))
    assert [(row.key, row.count, row.nbytes) for row in rows] == [
        ("state/p/…/m", 3, 3 * 24),
        ("state/p/o/w/v", 1, 24),
        ("other/m", 1, 24),
    ]
    assert len(plan_rows(a_plan(steps), full=True)) == 5
