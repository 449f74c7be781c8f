"""Hints: rules that are taken as true, stand first in the draft, and teach how all others go."""

import shlex
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ckpt_surgery import Inferred
from ckpt_surgery.core.errors import Code, PlanError, RecipeError, UsageError
from ckpt_surgery.inference.expressions.formations import Candidate, Evidence
from tests.inference.cases.running import Arrays, assert_found, carried_out, inferred, rules_of, undecided
from tests.inference.two_sides import normal
from tests.support.comparing import assert_same

Made = Mapping[str, np.ndarray]


def fresh(arrays: Arrays) -> dict[str, np.ndarray]:
    """A model of the same structure as its program initialises it."""
    return {key: normal(*one.shape, seed=99 + at) for at, (key, one) in enumerate(arrays.items())}


def evidence(inference: Inferred) -> dict[str, str]:
    return {one.target: str(one.evidence) for one in inference.findings.formations}


# --- what is not decided says what would decide it --------------------------------------------------------


def turned(old: Arrays) -> Made:
    names = {"q": "query", "k": "key", "out": "out"}
    return {
        f"layers_{i}/{new}/kernel": old[f"h.{i}.{name}.weight"].T
        for i in range(3)
        for name, new in names.items()
    }


def stacked(old: Arrays) -> Made:
    return {f"scan/{name}": np.stack([old[f"h/{i}/{name}"] for i in range(3)], axis=1) for name in ("q", "k")}


def apart(old: Arrays) -> Made:
    return {f"h/{i}/w": old["scan/w"][:, i].T for i in range(4)}


def of_experts(old: Arrays) -> Made:
    leaves = [[old[f"l/{i}/e/{j}/w"].T for j in range(4)] for i in range(2)]
    return {f"layers/{i}/experts/w": np.stack(each) for i, each in enumerate(leaves)}


def by_size(old: Arrays) -> Made:
    renamed = {"alpha": "zulu", "beta": "yankee"}
    return {f"t/{renamed[name]}_{i}": old[f"{name}_{i}"] for i in range(3) for name in renamed}


FRESH: dict[Callable[[Arrays], Made], Made] = {
    turned: {f"h.{i}.{name}.weight": normal(8, 8, seed=i) for i in range(3) for name in ("q", "k", "out")},
    stacked: {f"h/{i}/{name}": normal(3, 3, seed=i) for i in range(3) for name in ("q", "k")},
    apart: {"scan/w": normal(4, 4, 4)},
    of_experts: {f"l/{i}/e/{j}/w": normal(4, 4, seed=i) for i in range(2) for j in range(4)},
    by_size: {f"{name}_{i}": normal(5, seed=i) for i in range(3) for name in ("alpha", "beta")},
}
"""Sources by what makes their targets, which hold other values."""


def is_true(candidate: Candidate, old: Arrays, new: Made, wanted: tuple[str, ...]) -> bool:
    """True if the rules of a candidate make exactly the wanted leaves from the source."""
    inference = inferred(old, new, rules=candidate.rules, values="ignore")
    hinted = [key for key, said in evidence(inference).items() if said == Evidence.HINT]
    assert set(hinted) == set(wanted)
    every = {key: one for key, one in new.items() if key in wanted}
    alone = inferred(old, every, rules=candidate.rules, values="ignore")
    restored = carried_out(alone, old, None) if alone.decided else {}
    return all(np.array_equal(restored.get(key), one) for key, one in every.items())


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize("make", FRESH)
def test_hints_that_are_followed_to_the_letter_decide(make: Callable[[Arrays], Made]) -> None:
    """Each undecided line offers the true rules; following them all makes the target."""
    old = FRESH[make]
    truth = {key: np.ascontiguousarray(one) for key, one in make(old).items()}
    new, rules = fresh(truth), ()
    inference = inferred(old, new)
    assert not inference.decided
    while not inference.decided:
        (line, *_) = inference.findings.undecided
        assert all(len(candidate.rules) == 1 for candidate in line.candidates)
        right = [one for one in line.candidates if is_true(one, old, truth, line.targets)]
        assert right, line
        rules = (*rules, *right[0].rules)
        inference = inferred(old, new, rules=rules)
        assert inference.problems == ()
        assert undecided(inference).isdisjoint(line.targets)
    assert len(rules) <= 2
    assert_same(carried_out(inference, old, None), truth)


def test_equal_copies_are_told_apart_by_a_hint_for_the_family() -> None:
    layers = [normal(6, 8, seed=at) for at in range(3)]
    old = {f"net/{name}/{at}/w": one.copy() for name in "ab" for at, one in enumerate(layers)}
    new = {f"p/{name}/{at}/k": one.T.copy() for name in "xy" for at, one in enumerate(layers)}
    first, _ = inferred(old, new).findings.undecided
    assert first.targets == tuple(f"p/x/{at}/k" for at in range(3))
    assert [one.rules for one in first.candidates] == [
        (rf"s|net/{name}/(\d+)/w|p/x/\1/k| = x.T",) for name in "ab"
    ]
    inference = assert_found(old, new, 2, rules=first.candidates[1].rules)
    assert {one.target: one.sources for one in inference.findings.formations}["p/y/2/k"] == ("net/a/2/w",)


def test_a_symmetric_matrix_and_the_others_of_its_kind() -> None:
    one = normal(6, 6)
    old = {"a/w": one + one.T, "b/w": normal(6, 6, seed=1), "c/w": normal(6, 6, seed=2)}
    new = {"a/w": old["a/w"], "b/w": old["b/w"].T.copy(), "c/w": old["c/w"]}
    (line,) = inferred(old, new).findings.undecided
    assert [each.rules for each in line.candidates] == [("s|a/w|${key}|",), ("s|a/w|${key}| = x.T",)]
    inference = assert_found(old, new, 3, rules=line.candidates[1].rules)
    assert {"match": "a/w", "to": "${key}", "value": "x.T"} in rules_of(inference)


def test_the_targets_own_value_is_offered_where_values_disagree() -> None:
    old = {**{f"l/{i}/w": normal(6, 8, seed=i) for i in range(3)}, "head/kernel": normal(8, 3)}
    new = {**old, "head/kernel": normal(8, 3, seed=9)}
    (line,) = inferred(old, new).findings.undecided
    assert ([one.rules for one in line.candidates], line.own_value) == ([()], ("drop:head/kernel",))
    findings = assert_found(old, new, 3, rules=line.own_value).findings
    assert (findings.dropped, findings.from_target) == (("head/kernel",), ("head/kernel",))


def test_comments_of_a_draft_have_the_words_to_paste() -> None:
    old, new = FRESH[stacked], fresh(stacked(FRESH[stacked]))
    inference = inferred(old, new)
    pasted = [line for line in inference.recipe.splitlines() if line.startswith("#     -e ")]
    offered = [rule for one in inference.findings.undecided for each in one.candidates for rule in each.rules]
    assert [shlex.split(line[1:])[1] for line in pasted] == offered


# --- what hints teach -------------------------------------------------------------------------------------


def test_one_hint_teaches_words_and_layouts() -> None:
    """`foo` is `bar` everywhere, and all square matrices are turned as this one is."""
    trees = ("params", "opt/mu", "opt/nu")
    old = {f"{tree}/foo_{i}/kernel": normal(8, 8, seed=i) for tree in trees for i in range(3)}
    old |= {f"{tree}/qux_{i}/kernel": normal(8, 8, seed=i + 9) for tree in trees for i in range(3)}
    renamed = {key: key.replace("foo", "bar").replace("qux", "baz") for key in old}
    new = {renamed[key]: np.ascontiguousarray(one.T) for key, one in old.items()}
    assert not inferred(old, fresh(new)).decided
    rule = r"s|params/foo_(\d)/kernel|params/bar_\1/kernel| = x.T"
    inference = inferred(old, fresh(new), rules=[rule])
    assert inference.decided
    assert_same(carried_out(inference, old, None), new)
    assert rules_of(inference)[0] == {
        "match": r"params/foo_(\d)/kernel",
        "to": r"params/bar_\1/kernel",
        "value": "x.T",
    }
    assert {key for key, said in evidence(inference).items() if said == "hint"} == {
        f"params/bar_{i}/kernel" for i in range(3)
    }


def test_a_leaf_that_a_hint_claims_is_looked_up_by_others() -> None:
    table = normal(9, 4)
    new = {"embed/table": table, "head/kernel": table.T.copy(), "b": normal(3)}
    inference = assert_found({"emb": table, "b": new["b"]}, new, 3, rules=["s|emb|embed/table|"])
    assert {"add": "head/kernel", "value": "source['emb'].T"} in rules_of(inference)


def test_a_leaf_that_a_hint_looks_up_is_free_for_others() -> None:
    old = {"w": normal(4, 6), "scale": normal(6)}
    new = {"kernel": old["w"] * old["scale"], "scale": old["scale"]}
    assert_found(old, new, 2, rules=["s|w|kernel| = x * source['scale']"])
    alone = assert_found(old, {"kernel": new["kernel"]}, 2, rules=["s|w|kernel| = x * source['scale']"])
    assert alone.findings.dropped == ()


def test_a_hint_may_leave_its_source_unread() -> None:
    old = {"h/w": normal(2, 4), "b": normal(3)}
    new = {"scan/w": np.zeros((2, 4), np.float32), "b": old["b"]}
    inference = assert_found(old, new, 2, rules=["s|h/w|scan/w| = zeros((2, 4), 'float32')"])
    assert evidence(inference)["scan/w"] == "hint"


# --- how they are written ---------------------------------------------------------------------------------

PART = r"""
version: 1   # a part
params: {heads: 2}
tables:
  names: {q: query}
rules:

# queries come first,
#   turned

- match: 'h/(?P<w>q)/w'   # one
  to: '${names[w]}/kernel'
  value: |
    rearrange(x, 'h (n d) -> d (n h)',
              n=heads)
  # keys
- {match: h/k/w,
   to: key/kernel}
# and the rest
"""
WRITTEN = r"""rules:
  # queries come first,
  #   turned
  # hint
  - match: 'h/(?P<w>q)/w'   # one
    to: '${names[w]}/kernel'
    value: |
      rearrange(x, 'h (n d) -> d (n h)',
                n=heads)
    # keys
  # hint
  - {match: h/k/w,
     to: key/kernel}
  # and the rest
"""


def test_rules_and_comments_stand_first_to_the_letter() -> None:
    old = {"h/q/w": normal(4, 6), "h/k/w": normal(4, 4), "h/v/w": normal(4, 5), "g/out/w": normal(6, 6)}
    new = {"query/kernel": old["h/q/w"].reshape(4, 2, 3).transpose(2, 1, 0).reshape(3, 8)}
    new |= {"key/kernel": old["h/k/w"], "value/kernel": old["h/v/w"], "proj/kernel": old["g/out/w"]}
    inference = assert_found(old, new, 4, recipe=PART)
    assert WRITTEN in inference.recipe
    assert "params: {heads: 2}\n" in inference.recipe
    assert inference.draft.document["tables"]["names"] == {"q": "query"}
    first, second, *_ = inference.draft.rules
    lines = inference.recipe.splitlines()
    assert [lines[one.line - 1][:5] for one in inference.draft.rules] == [
        "  - m",
        "  - {",
        *["  - {"] * (len(inference.draft.rules) - 2),
    ]
    assert (first.claims, first.outputs, first.evidence, second.claims) == (1, 1, Evidence.HINT, 1)


@pytest.mark.parametrize(
    "recipe",
    [
        "version: 1\nrules: [{match: a, to: b}]  # in one line\n",
        '{"version": 1, "rules": [{"match": "a", "to": "b"}]}\n',
        {"version": 1, "rules": [{"match": "a", "to": "b"}]},
        "version: 1\nunmatched: error\nrules:\n      - match: a\n        to: b\n",
        "rules:\r\n- match: a\r\n  to: b\r\nversion: 1\r\n",
    ],
)
def test_recipes_of_hints_however_they_are_written(recipe: object) -> None:
    a, c = normal(3), normal(4)
    inference = assert_found({"a": a, "c": c}, {"b": a, "c": c}, 2, recipe=recipe)
    assert (rules_of(inference)[0], evidence(inference)["b"]) == ({"match": "a", "to": "b"}, "hint")


def test_rules_of_the_command_line_come_behind_those_of_a_recipe() -> None:
    old, new = {name: normal(3, seed=ord(name)) for name in "abc"}, {}
    new = {renamed: old[name] for name, renamed in zip("abc", "xyz", strict=True)}
    recipe = "version: 1\nrules:\n- {match: a, to: x}\n# the end\nparams: {n: 1}\n"
    inference = assert_found(old, new, 3, recipe=recipe, rules=["s|b|y|"], values="ignore")
    assert [rule["match"] for rule in rules_of(inference)] == ["a", "b", "c"]
    only = assert_found(old, new, 3, recipe="version: 1\n", rules=["s|b|y|", "s|a|x|"], values="ignore")
    assert [rule["match"] for rule in rules_of(only)] == ["b", "a", "c"]


def test_names_of_hints_are_not_given_to_anything_else() -> None:
    old = {
        f"h/{i}/{name}/w": normal(8, 9, seed=i + 9 * len(name))
        for i in range(3)
        for name in ("gate_proj", "up_proj")
    }
    old |= {f"h/{i}/q/w": normal(8, 24, seed=i) for i in range(3)} | {"z": normal(2)}
    new = {
        f"m/{i}/{new}/k": old[f"h/{i}/{name}/w"].T.copy()
        for i in range(3)
        for name, new in (("gate_proj", "wi_0"), ("up_proj", "wi_1"))
    }
    new |= {f"m/{i}/query/k": old[f"h/{i}/q/w"].reshape(8, 4, 6) for i in range(3)} | {"y": old["z"]}
    part = (
        "version: 1\nparams: {heads: 7}\ntables: {names: {z: y}}\nrules: [{match: z, to: '${names[key]}'}]\n"
    )
    inference = assert_found(old, new, 3, recipe=part)
    document = inference.draft.document
    assert document["params"] == {"heads": 7}
    assert document["tables"]["names"] == {"z": "y"}
    assert len(document["tables"]) == 2


# --- what is refused --------------------------------------------------------------------------------------

OLD = {"a": normal(4, 6), "b": normal(3), "c": normal(2)}
NEW = {"x": OLD["a"].T.copy(), "y": OLD["b"], "c": OLD["c"]}


@pytest.mark.parametrize(
    ("recipe", "place", "code"),
    [
        ("rules: [{add: z, value: 'zeros((1,), \"int8\")'}]", "rules[0]", Code.FIELDS_DISAGREE),
        ("rules: [{match: b, to: y}, {fill: x, fallback: true}]", "rules[1]", Code.FIELDS_DISAGREE),
        ("passes: [{rules: [{match: b, to: y}]}]", "passes", Code.FIELDS_DISAGREE),
        ("unmatched: drop\nrules: [{match: b, to: y}]", "unmatched", Code.FIELDS_DISAGREE),
        ("output: {format: npz}\nrules: [{match: b, to: y}]", "output", Code.FIELDS_DISAGREE),
        ("rules: [{match: b, to: nope}]", "rules[0]", Code.TARGET_MISFIT),
        ("rules: [{match: b, to: y}, {match: a, to: x}]", "rules[1]", Code.TARGET_MISFIT),
        ("rules: [{match: a, to: x, value: 'cast(x.T, \"float16\")'}]", "rules[0]", Code.TARGET_MISFIT),
        ("rules: [{match: a, to: x, value: '-x.T'}]", "rules[0]", Code.TARGET_MISFIT),
        ("rules: [{match: nothing, to: x}]", "rules[0].match", Code.CLAIMS_NOTHING),
        ("rules: [{match: '.*', to: x}]", "rules[0].to", Code.SAME_KEY),
    ],
)
def test_hints_that_are_none_or_contradict_the_target(recipe: str, place: str, code: Code) -> None:
    with pytest.raises(PlanError) as caught:
        inferred(OLD, NEW, recipe=f"version: 1\n{recipe}\n")
    problem = caught.value.problems[0]
    assert problem.place is not None
    assert (problem.place.path, problem.code) == (place, code)
    assert problem.place.line is not None


def test_values_contradict_a_hint_only_where_they_are_shared_and_compared() -> None:
    rule = ["s|a|x| = -x.T"]
    assert inferred(OLD, fresh(NEW), rules=rule).decided
    assert inferred(OLD, NEW, rules=rule, values="ignore").decided


@pytest.mark.parametrize("rule", ["keep:a", "s|a|x", "no rule"])
def test_rules_that_are_no_hints(rule: str) -> None:
    with pytest.raises(UsageError):
        inferred(OLD, NEW, rules=[rule])


def test_a_recipe_that_is_wrong_by_itself() -> None:
    with pytest.raises(RecipeError) as caught:
        inferred(OLD, NEW, recipe="version: 1\nrules: [{match: a, to: x, value: 'x +'}]\n")
    assert caught.value.problems[0].code is Code.EXPRESSION
