"""One pass: what rules make, and what the policy does with the leaves that none claims."""

import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.folding import sentences
from ckpt_surgery.language.schema.field_types import Unmatched
from ckpt_surgery.planner.decisions import run_pass
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import Target
from tests.support.passes import Described, pass_run_of, rules_of, target_of
from tests.support.plans import problems_of

TWO = "sources: [base, lora]\n"


def run(
    recipe: str,
    *sources: Described,
    policy: Unmatched | None = None,
    last: bool = True,
    target: Target | None = None,
) -> PassRun:
    done = pass_run_of(recipe, *sources, target=target)
    done.policy = policy or done.policy
    run_pass(done, target, last)
    return done


def message_of(done: PassRun) -> str:
    (problem,) = problems_of(done.problems.raise_all)
    assert problem.place is not None
    return f"{problem.place.line}: {problem.message}\n{problem.hint}"


def drops_of(done: PassRun) -> list[tuple[str, str]]:
    return [(drop.entry.key.text, drop.why) for drop in done.drops]


def test_what_no_rule_claims_is_kept() -> None:
    done = run(rules_of("match: a, to: z"), ["a", "b"])
    assert done.problems.is_empty
    assert list(done.tree) == ["z", "b"]
    assert done.tree["b"] is done.trees["source"]["b"]  # as it is
    assert not done.outputs  # what they are made of is kept for those who watch the passes
    assert drops_of(done) == []


def test_or_a_problem_unless_a_rule_uses_it() -> None:
    rules = rules_of("match: a, value: \"x + source['b']\"", head="unmatched: error\n")
    done = run(rules, ["a", "b"], policy="error")
    assert done.problems.is_empty
    done = run(rules, [*"abcd"], policy="error")
    assert message_of(done) == (
        "2: `unmatched: error`, and no rule claims `c`, `d` (2 in all)\n"
        "Add a rule for them, or `drop: true` to remove them."
    )


def test_a_leaf_that_a_fill_rule_takes_is_used() -> None:
    target, rules = target_of(["c"]), rules_of("fill: c, from: b")
    assert run(rules, ["b"], policy="error", target=target).problems.is_empty
    done = run(rules, ["b", "d"], policy="error", target=target)
    with pytest.raises(PlanError, match="no rule claims `d` "):
        done.problems.raise_all()


def test_other_sources_are_left_for_later_passes() -> None:
    rules = rules_of("match: x, source: lora, drop: true", head=TWO)
    early = run(rules, ["a"], [*"xy"], last=False)
    assert drops_of(early) == [("x", "drop")]
    assert early.decided_ids == {id(early.trees["lora"]["x"])}
    assert drops_of(run(rules, ["a"], [*"xy"])) == [("x", "drop"), ("y", "not claimed")]


MIRRORED = "version: 1\npasses:\n- mirror: {params: [mu, nu]}\n  rules: [%s]\n"


def test_a_mirrored_tree_without_leaves() -> None:
    done = run(MIRRORED % "{match: params/a}", ["params/a", "mu/a", "nv/a"])
    assert message_of(done) == (
        "3: no leaf lies under `nu`\n"
        "Where only some checkpoints have these leaves, mirror them in a pass with `when`."
    )


def test_added_leaves_without_slots() -> None:
    rule = "{add: params/%s, value: '1'}"
    rules = ", ".join(["{match: b, to: params/b}", *(rule % text for text in ("n/0", "n/1"))])
    done = run(MIRRORED % rules, ["params/a", "mu/a", "nu/a", "mu/n/0", "mu/n/1", "nu/n/1", "b"])
    assert sentences(done.problems.notices) == [
        "passes[0].rules[1] (line 4) adds `params/n/0`, and nothing adds its slot in `nu`: "
        "`add` is not mirrored"
    ]
