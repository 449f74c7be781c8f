"""What `fill` rules give for the keys of the target."""

import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.filling import filled
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import Target
from tests.support.passes import pass_run_of, rules_of, target_of

TARGET = target_of(["a", "b", "l/0"])


def given_by(run: PassRun, target: Target = TARGET) -> dict[str, Entry]:
    return filled(run, target)


def test_the_first_rule_that_matches_wins() -> None:
    rules = rules_of(
        "fill: a, from: x", "fill: '[ab]', fallback: true", r"fill: 'l/(\d)', from: 'm\1', value: x.T"
    )
    run = pass_run_of(rules, ["x", "m0"], target=TARGET)
    given = given_by(run)
    run.problems.raise_all()
    assert {
        text: (str(entry.rule), [(r.source, r.leaf.key.text) for r in reads(entry.value)])
        for text, entry in given.items()
    } == {
        "a": ("rules[0] (line 3)", [("source", "x")]),
        "b": ("rules[1] (line 4)", [("target", "b")]),
        "l/0": ("rules[2] (line 5)", [("source", "m0")]),
    }
    assert given["l/0"].value.spec.shape == (3, 2)


def test_a_when_that_is_false_leaves_the_key_to_the_next_rule() -> None:
    rules = rules_of("fill: '[ab]', when: key == 'b'", "fill: a, from: b")
    given = given_by(pass_run_of(rules, ["a", "b"], target=TARGET))
    assert {text: str(entry.rule) for text, entry in given.items()} == {
        "a": "rules[1] (line 4)",
        "b": "rules[0] (line 3)",
    }


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (["fill: a"], "no source leaf is called `a` (at `a`)"),
        (["fill: a, from: kernal"], "no source leaf is called `kernal`; did you mean `kernel`? (at `a`)"),
        (["fill: l/1"], "the rule claims nothing: no key of the target matches; did you mean `l/0`?"),
        (["fill: l"], "the rule claims nothing: it matches only the beginning of keys such as `l/0`"),
        (["fill: a, when: 1 > 2"], "the rule claims nothing: `when` is false for `a`"),
        (
            ["fill: '[ab]', fallback: true", "fill: '[ab]', fallback: true"],
            "the rule claims nothing: earlier rules claimed all 2 keys that it matches",
        ),
        (["fill: a, when: int(key) > 0"], "`int`: 'a' is not an integer (at `a`)"),  # and nothing else
        (["fill: a, value: x + 1"], "no source leaf is called `a` (at `a`)"),  # only where `x` is used
    ],
)
def test_problems(rules: list[str], says: str) -> None:
    run = pass_run_of(rules_of(*rules), ["kernel"], target=TARGET)
    given_by(run)
    with pytest.raises(PlanError) as caught:
        run.problems.raise_all()
    assert [problem.message for problem in caught.value.problems] == [says]


def test_a_number_has_the_shape_and_dtype_that_the_target_wants() -> None:
    run = pass_run_of(rules_of("fill: a, value: '0'"), ["b"], target=target_of({"a": "bfloat16[4]"}))
    (entry,) = filled(run, target_of({"a": "bfloat16[4]"})).values()
    assert (entry.value.spec.shape, entry.value.spec.dtype.name) == ((4,), "bfloat16")


def test_an_optional_rule_may_claim_nothing() -> None:
    run = pass_run_of(rules_of("fill: z, optional: true"), ["a"], target=TARGET)
    assert given_by(run) == {}
    assert run.problems.is_empty


def test_a_listing_has_no_values_to_fall_back_on() -> None:
    listed = target_of(["a"], readable=False)
    run = pass_run_of(rules_of("fill: a, fallback: true"), ["a"], target=listed)
    assert given_by(run, listed) == {}
    with pytest.raises(PlanError, match="the target is only a listing: it has no values"):
        run.problems.raise_all()
