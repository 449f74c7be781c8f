"""Bounds on what a recipe can ask for, and recipes that nobody means well with: refused, or they work."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError, PlanError, RecipeError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import MOST_GROWTH
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.graph.walks import MOST_CHUNKS
from ckpt_surgery.planner import limits, planning, problems, running
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.prepared import value_digests
from tests.support.calls import record_calls
from tests.support.effort import examples
from tests.support.hostile import LEAVES, hostile_recipe
from tests.support.plans import fates, plan_of, problems_of

HEAD = "version: 1\n"


def problem_of(text: str, leaves: dict[str, str] | list[str]) -> tuple[str, str]:
    """The path and the message of the one problem of a recipe."""
    (problem,) = problems_of(plan_of, HEAD + text, leaves)
    assert problem.place is not None
    return problem.place.path, problem.message


MANY = "the rules of this pass up to here make {} leaves; a plan can have 1,000,000"


@pytest.mark.parametrize(
    ("rules", "place", "message"),
    [
        (
            "[{add: 'z${i}/${j}', for: {i: range(1000000), j: range(1000000)}, value: '1'}]",
            "rules[0].for.j",
            MANY.format("1,000,000,000,000"),
        ),
        (
            "[{match: '.*', to: {'y${i}': x, 'z${i}': x}, for: {i: range(250001)}}]",
            "rules[0].for",
            MANY.format("1,000,004"),
        ),
    ],
)
def test_combinations_are_counted_before_a_rule_makes_any(
    rules: str, place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_ADDED", 10**7)
    monkeypatch.setattr(limits, "MOST_MADE", 10**7)
    monkeypatch.setattr(running, "computed", None)  # nothing is made
    assert problem_of(f"rules: {rules}", ["a", "b"]) == (place, message)


def test_combinations_count_with_those_that_earlier_rules_have_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_LEAVES", 1000)
    rule = "{{add: '{}${{i}}', for: {{i: range(600)}}, value: '1'}}"
    found = problem_of(f"rules: [{rule.format('y')}, {rule.format('z')}]", ["a"])
    assert found == ("rules[1].for", MANY.format("1,200").replace("1,000,000", "1,000"))


def test_variables_without_values_make_nothing_of_the_others() -> None:
    rule = "{add: 'z${i}/${j}', for: {i: range(100000), j: range(0)}, value: '1', optional: true}"
    assert fates(plan_of(f"{HEAD}rules: [{rule}]", ["a"])) == {"a": "kept"}


def test_the_leaves_of_a_plan_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_LEAVES", 3)
    text = "rules: [{match: a, to: {y: x, z: x}}]"
    assert len(plan_of(HEAD + text, ["a", "b"]).steps) == 3
    assert problem_of(text, ["a", "b", "c"]) == ("unmatched", "the pass gives 4 leaves; a plan can have 3")
    assert problem_of("rules: [{match: '.*', to: {'${key}/y': x, '${key}/z': x}}]", ["a", "b"]) == (
        "rules[0].match",
        "the rules of this pass up to here make 4 leaves; a plan can have 3",
    )


@pytest.mark.parametrize(
    ("rules", "place"),
    [
        (r"[{match: '(.)', to: '\1/abcdefgh'}]", "rules[0].to"),
        ("[{match: '(?P<n>.)', to: {'${n}/abcdefgh': x * 2}}]", "rules[0].to['${n}/abcdefgh']"),
        ("[{add: '${i}/abcdefgh', for: {i: range(9)}, value: '1'}]", "rules[0].add"),
        (r"[{match: a, to: é/abcdefg}, {match: b, to: éé/abcdefg}]", "rules[1].to"),
    ],
)
def test_the_names_of_all_leaves_are_bounded(rules: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_NAME_BYTES", 19)
    assert problem_of(f"rules: {rules}", ["a", "b"]) == (
        place,
        "the names of the leaves are too long: more than 0 MiB together",
    )


def test_the_functions_that_rules_make_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their inputs: six of the first leaf's value, of which three follow in each pass."""
    monkeypatch.setattr(limits, "MOST_FUNCTIONS", 12)
    twice = "passes:\n- rules: [{match: '.', value: x + x}]\n- rules: [{match: '.', value: x + x}]\n"
    plan_of(HEAD + twice, ["a", "b"])
    monkeypatch.setattr(limits, "MOST_FUNCTIONS", 11)
    assert problem_of(twice, ["a", "b"]) == (
        "passes[1].rules[0].value",
        "the rules up to here make more than 4,194,304 functions and their inputs (at `b`)",
    )


def test_indices_count_as_much_as_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_FUNCTIONS", 1000)
    path, _ = problem_of("rules: [{match: a, value: 'take(x, range(999), 0)'}]", {"a": "float32[1000]"})
    assert path == "rules[0].value"


def test_what_outputs_share_counts_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Because it is computed for each: outputs by the million that share a long chain would not end."""
    monkeypatch.setattr(planning, "MOST_FUNCTIONS", 1000)
    deep = "- rules: [{match: '.', value: x + x}]\n" * 30
    outputs = ", ".join(f"z{i}: x * {i}" for i in range(20))
    split = f"- rules: [{{match: a, to: {{{outputs}}}}}]"
    assert problem_of(f"passes:\n{deep}{split}", ["a"]) == (
        "passes[30].rules[0]",
        "`z10`: up to this one, the outputs are computed from more than 4,194,304 functions and their inputs",
    )


def test_a_rule_that_fails_at_thousands_of_keys_ends_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = record_calls(monkeypatch, running.RuleRun, "spelled", lambda *_: None)
    rule = "{match: a, to: 'z/${x}/${i}', for: {i: range(100000)}, value: x}"
    path, message = problem_of(f"rules: [{rule}]", ["a"])
    assert path == "rules[0].to"
    assert message.startswith("a key is made of text and integers, not an array")
    assert len(tried) == problems.MOST_NOTED


def test_patterns_of_count_are_bounded() -> None:
    rules = """rules: [{add: 'z${i}', for: {i: range(300)}, value: "zeros((count(f'a{i}'),), 'int8')"}]"""
    path, message = problem_of(rules, ["a"])
    assert path == "rules[0].value"
    assert message.startswith("`count` is asked for more than 256 different patterns (at `z{256..299}`")


def test_a_long_pattern_of_count_is_told_as_a_long_pattern() -> None:
    text = f"params: {{p: '{'a' * 70_000}'}}\nrules: [{{match: a, when: count(p) > 0}}]"
    assert problem_of(text, ["a"]) == (
        "rules[0].when",
        "a regular expression of 70000 characters; the limit is 2000 (at `a`)",
    )


DOUBLED = r"- rules: [{match: '(.*)', to: {'\1/a': x, '\1/b': x}}]"


GROWN = "- rules: [{match: 'a', to: 'a/${i}', for: {i: range(%d)}}]"
CUT_BACK = "- rules: [{match: a/0, to: a}, {match: a/.*, drop: true}]"


def test_passes_that_grow_and_cut_back_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pass drops again was made all the same: the second time is refused before anything is made."""
    monkeypatch.setattr(limits, "MOST_ADDED", 1000)
    passes = "\n".join([GROWN % 700, CUT_BACK] * 6)
    path, message = problem_of(f"passes:\n{passes}", ["a"])
    assert path == "passes[2].rules[0].for.i"
    assert "1,398 more leaves, with those of the passes before, out of the 1 that are given" in message
    once = "\n".join([GROWN % 700, *(["- rules: [{match: '.*', value: x * 2}]"] * 3), CUT_BACK])
    assert len(plan_of(f"{HEAD}passes:\n{once}", ["a"]).steps) == 1


def test_passes_that_make_leaves_anew_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_MADE", 300)
    leaves, anew = [f"a{i}" for i in range(10)], "- rules: [{match: '(.*)', to: '\\1/x'}]"
    assert len(plan_of(HEAD + "passes:\n" + "\n".join([anew] * 30), leaves).steps) == 10
    path, message = problem_of("passes:\n" + "\n".join([anew] * 31), leaves)
    assert path.startswith("passes[30].rules[0]")
    assert "310 leaves, with those of the passes before," in message


def test_what_is_given_may_be_doubled_however_many_passes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_ADDED", 8)
    text = "passes:\n" + "\n".join([DOUBLED] * 2)
    assert len(plan_of(HEAD + text, [f"a{i}" for i in range(10)]).steps) == 40
    with pytest.raises(PlanError):
        plan_of(HEAD + text + "\n" + DOUBLED, [f"a{i}" for i in range(10)])


@pytest.mark.parametrize(
    "value", ["concat([x, x])", "concat([x * 2, x])", "stack([x, x])[0:2]", "concat([source['a'], x, x])"]
)
def test_arrays_that_grow_from_pass_to_pass_are_refused(value: str) -> None:
    passes = "\n".join([f'- rules: [{{match: a, value: "{value}"}}]'] * 31)
    _, message = problem_of(f"passes:\n{passes}", {"a": "float32[65536]"})
    assert "would make" in message or "axes" in message


def test_chunks_that_are_repeated_are_limited_for_the_whole_plan(tmp_path: Path) -> None:
    """As many values as repeat chunks without end share one limit, which those that are too large use up."""
    save_file({f"a{i}": np.ones(2, np.float32) for i in range(4)}, tmp_path / "a.safetensors")
    for doublings, linked in ((17, 2), (19, 0)):
        rules = [{"match": "(.*)", "value": "concat([x, x])"}]
        recipe = {"version": 1, "passes": [{"rules": rules}] * doublings}
        plan = ckpt_surgery.plan(recipe, tmp_path / "a.safetensors", format="orbax")
        stored = [step.stored for step in plan.steps]
        assert [one is not None for one in stored] == [at < linked for at in range(4)]
        assert sum(len(one.chunks) for one in stored if one is not None) <= MOST_CHUNKS + 4 * MOST_GROWTH


SMALL = 1 << 20
"""Bytes of outputs that are evaluated."""


def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    assert leaf.spec is not None
    return np.ones(region.shape, leaf.spec.dtype)


def evaluated(plan: Plan) -> None:
    for step in plan.steps:
        if step.leaf.spec is None or step.leaf.spec.nbytes > SMALL or step.cut is None:
            continue
        value_digests([step.value])
        if step.cut.working_set > 64 * SMALL:
            continue
        try:
            block = evaluate(step.value, Region.whole(step.leaf.spec.shape), read)
        except DataError:
            continue
        assert (block.shape, block.dtype) == (step.leaf.spec.shape, step.leaf.spec.dtype)


@examples(60)
@given(number=st.integers(0, 2**60))
def test_any_recipe_is_refused_or_works(number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOST_LEAVES", 2000)
        try:
            plan = plan_of(json.dumps(hostile_recipe(number)), LEAVES)
        except (PlanError, RecipeError) as error:
            assert all(problem.place or "there was none" in problem.message for problem in error.problems)
            return
        evaluated(plan)


@pytest.mark.slow("plans until a limit is reached")
@examples(3000)
@given(number=st.integers(0, 2**60))
def test_thousands_of_recipes(number: int) -> None:
    test_any_recipe_is_refused_or_works.hypothesis.inner_test(number)  # type: ignore[attr-defined]


NODES = {"a": "float32[4,4]", "b": "float32[4,4]"}


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("x + x", 1500),
        ("where(x > 0, x, -x)", 100),
        ("concat([x, x])[:4]", 100),
        ("x @ x.T", 100),
        ("x + source['b']", 100),
    ],
)
def test_passes_take_what_each_of_them_takes(value: str, count: int) -> None:
    """Where each pass uses the one before twice, there are 2^count paths to the leaf."""
    plan = plan_of("version: 1\npasses:\n" + f'- rules: [{{match: a, value: "{value}"}}]\n' * count, NODES)
    step = plan.steps[0]
    assert step.cut is not None
    assert step.cut.read <= 4 * 4 * 4 * 4
    reads: list[str] = []

    def zeros(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        reads.append(leaf.key.text)
        return np.zeros(region.shape, np.float32)

    assert not evaluate(step.value, Region.whole((4, 4)), zeros).any()
    assert len(reads) <= 4


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("repeat(x, 10**12, 0)", "`repeat` would make float32[4000000000000,4], 58.2 TiB out of 64 B"),
        ("tile(x, (10**6, 10**6))", "`tile` would make float32[4000000,4000000], 58.2 TiB out of 64 B"),
        ("pad(x, 0, 10**15)", "`pad` would make float32[1000000000000000,4]"),
        ("stack([x], count=10**12, fill=0)", "`stack` would make float32[1000000000000,4,4]"),
        ("stack([x], count=10**12)", "no array has the index 1, 2, 3, 4, 5, …"),
        (
            "zeros((10**9, 10**9), 'float32')",
            "`zeros` would make float32[1000000000,1000000000]",
        ),
        ("zeros((0, 10**30), 'float32')", "`zeros` would make an axis of 2^99 or more elements"),
        ("init('normal', (10**9, 10**9), 'float32')", "`init` would make float32[1000000000,1000000000]"),
        ("arange(10**18, dtype='int64')", "`arange` would make int64[1000000000000000000]"),
        ("expand_dims(x, range(10**6))", "`expand_dims`: 1,000,000 axes; the limit is 32"),
        ("zeros(range(10**6), 'int8')", "`zeros`: 1,000,000 axes; the limit is 32"),
        ("reshape(x, range(10**6))", "`reshape`: 1,000,000 axes; the limit is 32"),
    ],
)
def test_sizes_are_refused(value: str, says: str) -> None:
    (problem,) = problems_of(plan_of, f'version: 1\nrules: [{{match: a, value: "{value}"}}]', NODES)
    assert says in problem.message
    assert problem.place is not None
    assert (problem.place.path, problem.place.width) == ("rules[0].value", len(value))


@pytest.mark.parametrize(
    "value",
    ["repeat(x, 10**9, 0)", "tile(x, (10**9, 1))", "tile(tile(x, (10**5, 1)), (10**4, 1))[1:10**8:3]",
     "pad(x, 0, 10**9)", "repeat(repeat(x, 10**4, 0), 10**5, 0)[::7]"],
)  # fmt: skip
def test_large_outputs_are_planned_without_listing_their_indices(value: str) -> None:
    plan = plan_of(f'version: 1\nrules: [{{match: a, value: "{value}"}}]', NODES)
    assert plan.steps[0].leaf.spec is not None
    assert plan.steps[0].leaf.spec.size > 10**8
