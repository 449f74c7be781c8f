"""One pass: what rules make, and what the policy does with the leaves that none claims."""

import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.notices import sentences
from ckpt_surgery.language.field_types import Unmatched
from ckpt_surgery.planner.evaluator import Evaluator
from ckpt_surgery.planner.passes import PassResult, run_pass
from ckpt_surgery.planner.target import Target
from tests.support.passes import Described, evaluator_of, pass_of, rules_of, target_of

TWO = "sources: [base, lora]\n"


def run(
    recipe: str,
    *sources: Described,
    default: Unmatched = "keep",
    settled: frozenset[int] = frozenset(),
    last: bool = True,
    target: Target | None = None,
) -> tuple[PassResult, Evaluator]:
    evaluator = evaluator_of(recipe, *sources, target=target)
    return run_pass(pass_of(evaluator), default, evaluator, target, settled, last), evaluator


def message_of(evaluator: Evaluator) -> str:
    with pytest.raises(PlanError) as caught:
        evaluator.problems.raise_all()
    (problem,) = caught.value.problems
    assert problem.place is not None
    return f"{problem.place.line}: {problem.message}\n{problem.hint}"


def drops_of(result: PassResult) -> list[tuple[str, str]]:
    return [(drop.entry.key.text, drop.why) for drop in result.drops]


def test_what_no_rule_claims_is_kept() -> None:
    result, evaluator = run(rules_of("match: a, to: z"), ["a", "b"])
    assert evaluator.problems.is_empty
    assert list(result.tree) == ["z", "b"]
    assert result.tree["b"] is evaluator.trees["source"]["b"]  # as it is
    assert drops_of(result) == []


def test_or_dropped() -> None:
    result, _ = run(rules_of("match: a, to: z", "match: c, drop: true"), [*"abc"], default="drop")
    assert list(result.tree) == ["z"]
    assert drops_of(result) == [("c", "drop"), ("b", "unmatched: drop")]


def test_or_a_problem_unless_a_rule_uses_it() -> None:
    rules = rules_of("match: a, value: \"x + source['b']\"", head="unmatched: error\n")
    _, evaluator = run(rules, ["a", "b"], default="error")
    assert evaluator.problems.is_empty
    _, evaluator = run(rules, [*"abcd"], default="error")
    assert message_of(evaluator) == (
        "2: `unmatched: error`, and no rule claims `c`, `d` (2 in all)\n"
        "Add a rule for them, or `drop: true` to remove them."
    )


def test_a_leaf_that_a_fill_rule_takes_is_used() -> None:
    target, rules = target_of(["c"]), rules_of("fill: c, from: b")
    assert run(rules, ["b"], default="error", target=target)[1].problems.is_empty
    _, evaluator = run(rules, ["b", "d"], default="error", target=target)
    with pytest.raises(PlanError, match="no rule claims `d` "):
        evaluator.problems.raise_all()


def test_a_pass_has_a_policy_of_its_own() -> None:
    text = "version: 1\npasses:\n- {unmatched: drop, rules: [{match: a}]}\n"
    assert list(run(text, ["a", "b"], default="keep")[0].tree) == ["a"]


def test_other_sources_are_left_for_later_passes() -> None:
    rules = rules_of("match: x, source: lora, drop: true", head=TWO)
    early, evaluator = run(rules, ["a"], [*"xy"], last=False)
    assert drops_of(early) == [("x", "drop")]
    assert early.settled == {id(evaluator.trees["lora"]["x"])}
    assert drops_of(run(rules, ["a"], [*"xy"])[0]) == [("x", "drop"), ("y", "not claimed")]


def test_what_a_pass_before_has_settled_is_not_dropped() -> None:
    evaluator = evaluator_of(f"version: 1\n{TWO}", ["a"], ["x", "y"])
    settled = {id(evaluator.trees["lora"]["x"])}
    result = run_pass(pass_of(evaluator), "keep", evaluator, None, settled, True)
    assert drops_of(result) == [("y", "not claimed")]
    assert result.settled == settled


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            ["match: a, to: b"],
            "3: two leaves would be called `b`: rules[0] (line 3) makes it from `a`; "
            "`b` stays there (`unmatched: keep`)\nAdd a rule that renames or drops the one that stays.",
        ),
        (
            ["match: a, to: z", "match: b, to: z"],
            "4: two leaves would be called `z`: rules[0] (line 3) makes it from `a`; "
            "rules[1] (line 4) makes it from `b`\nNone",
        ),
        (
            ["match: '[ab]', to: z"],
            "3: two leaves would be called `z`: rules[0] (line 3) makes it from `a`; rules[0] (line 3) "
            "makes it from `b`\nTo make one leaf of several, say how with `value`: stack(xs), say.",
        ),
        (
            ["match: '(?P<n>[ab])', to: 'z{n}'"],
            "3: two leaves would be called `z{n}`: rules[0] (line 3) makes it from `a`; rules[0] (line 3) "
            "makes it from `b`\nIn the template `{n}` stays as it is; `${n}` inserts what it stands for.",
        ),
        (
            ["match: '[ab]', drop: true", "add: n, value: '1'", "add: n, value: '2'"],
            "5: two leaves would be called `n`: rules[1] (line 4) makes it; rules[2] (line 5) makes it\nNone",
        ),
    ],
)
def test_two_leaves_of_one_name(rules: list[str], says: str) -> None:
    assert message_of(run(rules_of(*rules), ["a", "b"])[1]) == says


def test_fill_rules_need_a_target() -> None:
    _, evaluator = run(rules_of("match: a", "fill: b", "fill: c"), ["a"])
    assert message_of(evaluator) == (
        "4: `fill` needs a target, and belongs to the last pass\nGive one: `target=PATH`."
    )


def test_a_target_gives_the_structure() -> None:
    target = target_of(["b", "c", "z"])
    rules = rules_of("fill: c, from: a", "match: a, to: z")
    result, evaluator = run(rules, ["a", "b", "d"], target=target)
    assert evaluator.problems.is_empty
    assert list(result.tree) == ["b", "c", "z"]
    assert drops_of(result) == [("d", "not in target")]


MIRRORED = "version: 1\npasses:\n- mirror: {params: [mu, nu]}\n  rules: [%s]\n"


def test_a_mirrored_tree_without_leaves() -> None:
    _, evaluator = run(MIRRORED % "{match: params/a}", ["params/a", "mu/a", "nv/a"])
    assert message_of(evaluator) == (
        "3: no leaf lies under `nu`\n"
        "Where only some checkpoints have these leaves, mirror them in a pass with `when`."
    )


def test_added_leaves_without_slots() -> None:
    rule = "{add: params/%s, value: '1'}"
    rules = ", ".join(["{match: b, to: params/b}", *(rule % text for text in ("n/0", "n/1"))])
    _, evaluator = run(MIRRORED % rules, ["params/a", "mu/a", "nu/a", "mu/n/0", "mu/n/1", "nu/n/1", "b"])
    assert sentences(evaluator.problems.notices) == [
        "passes[0].rules[1] (line 4) adds `params/n/0`, and nothing adds its slot in `nu`: "
        "`add` is not mirrored"
    ]
