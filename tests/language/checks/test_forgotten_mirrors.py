"""Slots of optimizers that a recipe leaves behind, as far as the recipe alone shows it."""

from pathlib import Path

import pytest
import regex

from ckpt_surgery.api.linting import check_recipe
from ckpt_surgery.language.checks import forgotten_mirrors
from ckpt_surgery.language.checks.forgotten_mirrors import _claimed, example
from ckpt_surgery.language.packaged import packaged_recipes
from ckpt_surgery.language.schema.fields import Recipe, Rule

RENAME = "- {match: 'params/layer_(.*)', to: 'params/block_\\1'}"
BOTH = "mirror: {params: [opt_state/0/mu, opt_state/0/nu]}"
COUNT = "- {match: opt_state/0/count, to: opt_state/count}"


def warnings(tmp_path: Path, *lines: str) -> list[tuple[str, str]]:
    """Path and message of each warning."""
    path = tmp_path / "r.yaml"
    path.write_text("\n".join(("version: 1", *lines, "")))
    checked = check_recipe(path)
    assert checked.problems == ()
    return [(one.place.path, one.message) for one in checked.warnings if one.place is not None]


def test_a_rule_that_keeps_leaves_of_an_optimizer_shows_slots(tmp_path: Path) -> None:
    for shown in (
        COUNT,
        "- {match: 'opt_state/0/mu/(.*)', value: x * 0}",
        "- {match: 'opt_state/.*'}",
        "- {match: 'optimizer/state/param_states/(.*)', value: x * 1}",
        "- {match: 'opt_state/0/mu/(.*)', to: 'opt_state/0/mu/\\1', value: x * 0}",
    ):
        ((path, message),) = warnings(tmp_path, "rules:", shown, RENAME)
        assert (path, "slots below" in message) == ("rules[1].to", True)
        assert warnings(tmp_path, "rules:", shown) == []
        assert warnings(tmp_path, BOTH, "rules:", shown, RENAME) == []


def test_parameters_with_no_tree_called_params(tmp_path: Path) -> None:
    shown = ("- {match: 'state/optimizer/mu/(.*)', value: x * 0}",)
    renamed = "- {match: 'state/model/enc/(.*)', to: 'state/model/encoder/\\1'}"
    assert len(warnings(tmp_path, "rules:", *shown, renamed)) == 1
    stack = (
        "- {match: 'params/layer_(\\d+)/(.*)', to: 'params/layers/\\2', by: 'int(g[1])', value: stack(xs)}"
    )
    assert len(warnings(tmp_path, "rules:", *shown, stack)) == 1


@pytest.mark.parametrize(
    ("named", "left"),
    [
        ("opt_state/0/mu", "opt_state/0/nu"),
        ("opt_state/0/nu", "opt_state/0/mu"),
        ("optimizer/exp_avg", "optimizer/exp_avg_sq"),
    ],
)
def test_a_mirror_that_names_one_slot_alone(named: str, left: str, tmp_path: Path) -> None:
    ((path, message),) = warnings(tmp_path, f"mirror: {{params: [{named}]}}", "rules:", RENAME)
    assert path == "mirror.params"
    assert f"`{left}`" in message
    dropped = f"- {{match: '{left.rsplit('/', 1)[0]}/(nu|mu|exp.*|v|v_.*)/.*', drop: true}}"
    assert warnings(tmp_path, f"mirror: {{params: [{named}]}}", "rules:", dropped, RENAME) == []
    kept = "- {match: 'params/(.*)', value: 'cast(x, \"bfloat16\")'}"
    assert warnings(tmp_path, f"mirror: {{params: [{named}]}}", "rules:", kept) == []


def test_a_mirror_of_another_pass_shows_slots(tmp_path: Path) -> None:
    passes = [f"  {line}" for line in ("- " + BOTH, "  rules:", f"  {RENAME}")]
    forgotten = ["  - rules:", "    - {match: 'params/block_(.*)', to: 'params/b\\1'}"]
    ((path, message),) = warnings(tmp_path, "passes:", *passes, *forgotten)
    assert path == "passes[1].rules[0].to"
    assert "`opt_state/0/mu`, `opt_state/0/nu`" in message


def test_nothing_is_said_where_slots_go_along_or_away(tmp_path: Path) -> None:
    for rules in (
        [RENAME],
        [RENAME, "- {match: 'opt_state/.*', drop: true}"],
        [COUNT, RENAME, "- {match: 'opt_state/0/(mu|nu)/layer_(.*)', to: 'opt_state/0/\\1/block_\\2'}"],
        [RENAME, "- {match: 'opt_state/(.*)', to: 'optimizer/\\1'}"],
        [COUNT, "- {match: '(.*)/layer_(.*)', to: '\\1/block_\\2'}"],
        [COUNT, "- {match: 'batch_stats/bn_(.*)', to: 'batch_stats/norm_\\1'}"],
        [COUNT, "- {match: 'params/(.*)', value: x * 2}"],
        [RENAME, "- {fill: 'opt_state/.*', fallback: true}"],
        [RENAME, "- {match: 'optimizer/state/(\\d+)/exp_avg', value: x * 2}"],
    ):
        assert warnings(tmp_path, "rules:", *rules) == []


def test_policies_that_keep_no_slots(tmp_path: Path) -> None:
    assert warnings(tmp_path, "unmatched: drop", "rules:", COUNT, RENAME) == []


@pytest.mark.slow("checks all packaged recipes")
def test_packaged_recipes_forget_nothing() -> None:
    assert [name for name in packaged_recipes() if check_recipe(f"@{name.lstrip('@')}").warnings] == []


def test_an_example_of_a_pattern_matches_it() -> None:
    for pattern, text in (
        ("params/(.*)", "params/x"),
        (r"a/(?P<n>\d+)/(?:w|b)/\w", "a/0/w/x"),
        ("[^x/]+/[b-d]{2}y?", "y/bby"),
        (r"(a|b)\1", None),
        ("a{100}", None),
        ("a(?!x).*", None),
    ):
        assert example(regex.compile(pattern)) == text


def test_each_rule_is_looked_at_a_few_times_however_many_passes_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Rule] = []

    def claimed(recipe: Recipe, rule: Rule) -> str | None:
        looked_at.append(rule)
        return _claimed(recipe, rule)

    monkeypatch.setattr(forgotten_mirrors, "_claimed", claimed)
    assert warnings(tmp_path, "passes:", *[f"- {{rules: [{RENAME[2:]}]}}"] * 50) == []
    assert 50 <= len(looked_at) <= 4 * 50
