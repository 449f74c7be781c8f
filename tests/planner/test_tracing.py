"""How one leaf went through the passes, from plans of listings in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.planner.decisions import decide
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import Target
from ckpt_surgery.planner.tracing import Attempt, Claimed, Outcome, Stage, attempts, last_pass, stages
from tests.support.leaves import listing
from tests.support.plans import configs

Described = Mapping[str, str] | Sequence[str]


def runs_of(recipe: str, *sources: Described, target: Described | None = None) -> list[PassRun]:
    """The passes of a recipe, run over listings."""
    loaded = replace(parse_recipe(f"version: 1\n{recipe}", "r.yaml"), configs=configs(None))
    names = loaded.recipe.source_names(len(sources))
    listings = {name: listing(given) for name, given in zip(names, sources, strict=True)}
    policy = loaded.recipe.target or TargetPolicy()
    runs: list[PassRun] = []
    decide(loaded, listings, None if target is None else Target(listing(target), policy), runs.append)
    return runs


def stage_of(recipe: str, key: str, *sources: Described, target: Described | None = None) -> Stage:
    (stage,) = stages(runs_of(recipe, *sources, target=target), key)
    return stage


def met(runs: Sequence[PassRun], key: str, source: str = "source") -> list[tuple[str, Outcome, str]]:
    """Path, outcome and matched key of the rules that a leaf met."""
    leaf = runs[0].trees[source][key].leaf
    return [(one.rule.path, one.outcome, one.key) for one in attempts(runs, source, leaf)]


# --- back to the sources ------------------------------------------------------------------------------------


def test_of_several_outputs_the_expression_of_this_one_is_told() -> None:
    recipe = "rules: [{match: '(.)', for: {i: range(2)}, to: {'\\1/${i}/p': x, '\\1/${i}/q': x + i}}]"
    stage = stage_of(recipe, "w/1/q", ["w"])
    assert stage.values == ("x + i",)
    assert stage.claims == (Claimed("source", "w", {"1": "w", "i": "1"}),)


def test_a_rename_has_no_expression_and_a_group_without_part_is_empty() -> None:
    stage = stage_of("rules: [{match: '(a)?b(?P<r>.*)', to: 'c'}]", "c", ["b"])
    assert (stage.values, stage.claims[0].bound) == ((), {"1": "", "r": ""})


def test_a_leaf_that_no_rule_made_has_no_stage() -> None:
    assert stages(runs_of("rules: [{match: a, to: b}]", ["a", "c"]), "c") == []


def test_an_added_leaf_has_its_variables_and_what_it_looks_up() -> None:
    rule = "{add: 'n/${i}/${w}', for: {i: range(3), w: \"['p', 'q']\"}, value: \"source['a'] + i\"}"
    stage = stage_of(f"rules: [{rule}]", "n/2/q", ["a", "b"])
    assert (stage.claims, stage.looked_up) == ((), (("source", "a"),))
    assert stage.variables == {"i": "2", "w": "q"}


def test_a_leaf_whose_shape_alone_is_used_was_claimed_all_the_same() -> None:
    stage = stage_of("rules: [{match: a, value: 'zeros(x.shape, x.dtype)'}]", "a", ["a"])
    assert [one.key for one in stage.claims] == ["a"]


def test_a_fill_rule_claims_the_targets_leaf_and_looks_up_the_sources() -> None:
    recipe = "rules: [{fill: '(?P<n>.)/w', from: 'old/${n}'}]"
    stage = stage_of(recipe, "a/w", ["old/a"], target=["a/w"])
    assert stage.claims == (Claimed("target", "a/w", {"n": "a"}),)
    assert stage.looked_up == (("source", "old/a"),)
    stage = stage_of("rules: [{fill: new, fallback: true}]", "new", ["a"], target=["a", "new"])
    assert (stage.claims, stage.looked_up) == ((Claimed("target", "new", {}),), ())


def test_a_mirrored_leaf_has_its_own_key_and_expression() -> None:
    recipe = "mirror: {p: [mu]}\nrules: [{match: 'p/(.*)', to: 'p/n/\\1', value: x * 2, mirror_value: x}]"
    stage = stage_of(recipe, "mu/n/w", ["p/w", "mu/w"])
    assert stage.claims == (Claimed("source", "mu/w", {"1": "w"}),)
    assert stage.values == ("x",)


# --- rules that a leaf met ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "outcome", "key"),
    [
        ("{match: 'a/b/c', to: d}", Outcome.CLAIMED, "a/b/c"),
        ("{match: 'a/b', optional: true, to: d}", Outcome.BEGINNING, "a/b"),
        ("{match: 'b/.', optional: true, to: d}", Outcome.END, "b/c"),
        ("{match: 'a/(.*)', when: \"g[1] == 'x'\", optional: true, to: d}", Outcome.WHEN, "a/b/c"),
        ("{match: '.*', source: two, optional: true, value: x, to: d}", Outcome.SOURCE, "a/b/c"),
    ],
)
def test_what_came_of_a_rule(rule: str, outcome: Outcome, key: str) -> None:
    runs = runs_of(f"sources: [one, two]\nrules: [{rule}]", ["a/b/c"], ["z"])
    assert met(runs, "a/b/c", "one") == [("rules[0]", outcome, key)]


@pytest.mark.parametrize("pattern", ["a", "ab/c", "a/b/c/d", "x(.*)", "a/(x)?"])
def test_rules_about_something_else_are_left_out(pattern: str) -> None:
    runs = runs_of(f"rules: [{{match: '{pattern}', optional: true, to: d}}]", ["aa/b/c"])
    assert met(runs, "aa/b/c") == []


def test_patterns_are_told_with_the_values_of_params() -> None:
    runs = runs_of("params: {p: a.b}\nrules: [{match: '${p}/.*', to: c}]", ["a.b/w"])
    leaf = runs[0].trees["source"]["a.b/w"].leaf
    (found,) = attempts(runs, "source", leaf)
    assert found == Attempt(runs[0].problems.ref(0), "(?:a\\.b)/.*", Outcome.CLAIMED, "a.b/w")


def test_a_renamed_leaf_is_followed_into_later_passes() -> None:
    later = "{unmatched: drop, rules: [{match: 'b/c', optional: true}, {match: k}]}"
    runs = runs_of(f"passes: [{{rules: [{{match: a, to: b}}]}}, {later}]", ["a", "k"])
    assert met(runs, "a") == [("passes[0].rules[0]", Outcome.CLAIMED, "a")]
    leaf = runs[0].trees["source"]["a"].leaf
    assert last_pass(runs, "source", leaf) is runs[1]
