"""Which rules of several passes did the work on a leaf, as plans, documents and reports name them."""

import pytest

from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.html import decided_by, page_data
from ckpt_surgery.report.plan import plan_rows
from tests.support.documents import plan_json
from tests.support.plans import plan_of

A, B = (f"passes[{i}].rules" for i in range(2))


def recipe(*passes: list[str], head: str = "") -> str:
    """A recipe of several passes, each rule on a line of its own."""
    listed = "".join("- rules:\n" + "".join(f"  - {{{rule}}}\n" for rule in rules) for rules in passes)
    return f"version: 1\n{head}passes:\n{listed}"


def attributed(plan: Plan) -> dict[str, tuple[str | None, list[str]]]:
    """For each leaf of the result the rule that did the work, and all that changed it."""
    return {leaf["key"]: (leaf["rule"], leaf["rules"]) for leaf in plan_json(plan)["leaves"]}


@pytest.mark.parametrize(
    ("passes", "key", "rule", "rules"),
    [
        # A value in the first pass, and a name in the last.
        ([["match: a, value: x * 2"], [r"match: '(.*)', to: 'p/\1'"]], "p/a", "A0", "A0 B0"),
        ([[r"match: '(.*)', to: 'p/\1'"], ["match: p/a, value: x * 2"]], "p/a", "B0", "A0 B0"),
        # A rule that claims the leaf, and changes nothing.
        ([["match: a, to: b"], ["match: '(.*)'"]], "b", "A0", "A0"),
        ([["match: a, to: b"], [r"match: '(.*)', to: {'\1': x}"]], "b", "A0", "A0"),
        ([["match: '(.*)'"], ["match: a"]], "a", "B0", "B0"),
        ([["match: a, to: b"], ["match: c, drop: true"]], "b", "A0", "A0"),
        # Several of each.
        ([["match: a, to: b"], [r"match: '(.*)', to: 'p/\1'"]], "p/b", "A0", "A0 B0"),
        (
            [["match: a, value: -x"], ["match: a, to: b"], ["match: b, value: x.T, to: d"]],
            "d",
            "A0",
            "A0 B0 C0",
        ),
        # Leaves that are made of others: claimed together, looked up, added.
        (
            [["match: a, value: -x", "match: c, to: b"], ["match: '[ab]', to: s, value: stack(xs)"]],
            *("s", "A0", "A0 A1 B0"),
        ),
        ([["match: c, value: -x"], ["match: a, value: \"x + source['c']\""]], "a", "B0", "B0"),
        ([["match: a, to: b"], ["add: n, value: \"source['b'] * 2\""]], "n", "B0", "B0"),
        ([["add: n, value: 'ones([2], \"float32\")'"], ["match: n, to: m"]], "m", "A0", "A0 B0"),
        # One value under two keys: each has its own way.
        ([["match: a, to: b", "add: n, value: \"source['a']\""], ["match: b, to: d"]], "d", "A0", "A0 B0"),
        ([["match: a, to: b", "add: n, value: \"source['a']\""], ["match: n, to: d"]], "d", "A1", "A1 B0"),
        ([["match: a, to: {b: 'x[:1]', d: 'x[1:]'}"], ["match: b, to: e"]], "d", "A0", "A0"),
        (
            [["match: a, for: {i: range(2)}, to: 'b/${i}', value: 'x[i]'"], ["match: b/0, to: b/z"]],
            *("b/1", "A0", "A0"),
        ),
    ],
)
def test_leaves_are_attributed_to_the_rule_that_changed_them(
    passes: list[list[str]], key: str, rule: str, rules: str
) -> None:
    plan = plan_of(recipe(*passes), {"a": "float32[2,3]", "c": "float32[2,3]"})
    paths = {name: f"passes[{'ABC'.index(name[0])}].rules[{name[1]}]" for name in rules.split()}
    assert attributed(plan)[key] == (paths[rule], list(paths.values()))


def test_mirrored_leaves_have_the_rules_of_their_params() -> None:
    text = recipe(
        [r"match: 'p/(.*)', value: x.T"],
        [r"match: '(.*)', to: 'state/\1'"],
    ).replace("passes:\n- rules:", "passes:\n- mirror: {p: [opt/mu]}\n  rules:")
    plan = plan_of(text, {"p/w": "float32[2,3]", "opt/mu/w": "float32[2,3]"})
    changed = (f"{A}[0]", [f"{A}[0]", f"{B}[0]"])
    assert attributed(plan) == {"state/p/w": changed, "state/opt/mu/w": changed}


def test_leaves_of_a_target_have_the_rules_of_all_passes() -> None:
    text = recipe(
        ["match: a, value: x * 2", "match: b, to: d"],
        ["fill: a", "fill: e, from: d", "fill: f, fallback: true"],
        head="target: {dtype: target}\n",
    )
    plan = plan_of(
        text,
        ["a", "b", "c"],
        target={"a": "float16[2,3]", "c": "float16[2,3]", "e": "float32[2,3]", "f": "float32[2,3]"},
    )
    assert attributed(plan) == {
        "a": (f"{A}[0]", [f"{A}[0]"]),
        "c": (None, []),  # the cast is the target's
        "e": (f"{A}[1]", [f"{A}[1]", f"{B}[1]"]),
        "f": (f"{B}[2]", [f"{B}[2]"]),
    }


def test_dropped_leaves_have_the_rule_that_dropped_them_and_count_at_earlier_ones() -> None:
    text = recipe(
        [r"match: 'a/(.*)', to: 'b/\1'", "match: never, optional: true"],
        ["match: b/w, drop: true", "match: '(.*)'"],
    )
    plan = plan_of(text, ["a/v", "a/w", "c"])
    assert [(gone["source"], gone["rule"]) for gone in plan_json(plan)["dropped"]] == [
        ("source:a/w", f"{B}[0]")
    ]
    # Rules without leaves are muted in the report.
    assert decided_by(plan) == {f"{A}[0]": 2, f"{B}[0]": 1, f"{B}[1]": 2}


def test_rows_are_folded_only_where_all_rules_agree() -> None:
    text = recipe(
        ["match: l0/w, value: x * 2", "match: l1/w, value: 2 * x", "match: 'l[23]/w', value: x + 1"],
        [r"match: '(.*)', to: 'p/\1'"],
    )
    rows = plan_rows(plan_of(text, [f"l{i}/w" for i in range(4)]))
    assert [(row.key, row.rule and row.rule.path) for row in rows] == [
        ("p/l0/w", f"{A}[0]"),
        ("p/l1/w", f"{A}[1]"),
        ("p/l{2,3}/w", f"{A}[2]"),
    ]
    assert [rule.path for rule in rows[0].rules] == [f"{A}[0]", f"{B}[0]"]


def test_the_report_has_every_rule_that_changed_a_leaf() -> None:
    text = recipe(["match: a, to: b"], ["match: b, value: x * 2", "match: c"])
    data = page_data(plan_of(text, ["a", "c"]))
    (b, c) = ([data["rules"][number][0] for number in leaf[2]] for leaf in data["leaves"])
    assert (b, c) == ([f"{A}[0]", f"{B}[0]"], [f"{B}[1]"])


def test_chains_of_passes_share_what_they_record() -> None:
    text = recipe(*([r"match: 'l(\d+)/(.*)', to: 'l\1/x\2'"],) * 20)
    plan = plan_of(text, [f"l{i}/w" for i in range(300)])
    assert len({id(step.effects) for step in plan.steps}) == 1
    assert len(plan.steps[0].rules) == 20


def test_a_rule_whose_leaf_is_only_looked_up_later_counts_there() -> None:
    text = recipe(["match: c, value: -x"], ["match: a, value: \"x + source['c']\"", "match: c, drop: true"])
    plan = plan_of(text, ["a", "c"])
    assert attributed(plan) == {"a": (f"{B}[0]", [f"{B}[0]"])}
    assert decided_by(plan) == {f"{A}[0]": 1, f"{B}[0]": 1}
