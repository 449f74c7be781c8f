"""Warnings of mistakes in keys."""

from pathlib import Path

import pytest

import ckpt_surgery
from tests.support import checkpoints
from tests.support.passes import rules_of
from tests.support.plans import plan_of

WARNS = (
    "rules[0] (line 3) makes `{}`: names with dots in them; levels are separated by `/`. Probably meant: `{}`"
)
TREE = ["params/layer_0/kernel", "params/layer_1/kernel", "step"]


def test_a_name_with_dots_in_a_tree_is_told_with_the_key_that_was_meant() -> None:
    text = rules_of("match: params.layer_0.kernel, to: params.l0.kernel")
    plan = plan_of(text, TREE)
    assert next(s.leaf.key.names for s in plan.steps) == ("params.l0.kernel",)
    assert plan.warnings == (WARNS.format("params.l0.kernel", "params/l0/kernel"),)
    text = rules_of(r"match: 'params.layer_(.).kernel', to: 'params.l.\1.kernel'")
    many = plan_of(text, [f"params/layer_{i}/kernel" for i in range(9)])
    assert many.warnings == (WARNS.format("params.l.{0..8}.kernel", "params/l/{0..8}/kernel"),)


@pytest.mark.parametrize("name", ["params/scale_0.5", "params/v1.5/w", ".hidden/w", "a./b", "w...x"])
def test_dots_that_separate_no_words_are_none(name: str) -> None:
    assert plan_of(rules_of(f"match: params/layer_0/kernel, to: {name}"), TREE).warnings == ()


def test_another_root_is_told_where_other_leaves_have_levels() -> None:
    text = rules_of("match: params/layer_0/kernel, to: encoder.l0.kernel")
    (says,) = plan_of(text, TREE).warnings
    assert "makes `encoder.l0.kernel`: names with dots" in says
    (says,) = plan_of(rules_of("match: params/a/w, to: params/a.w"), ["params/a/w"]).warnings
    assert says.endswith("Probably meant: `params/a/w`")


def test_no_false_alarm_where_dots_are_names() -> None:
    text = rules_of("match: params/layers/0/w, to: params.w")
    assert plan_of(text, ["params/layers/0/w"], flat=True).warnings == ()  # the destination's convention
    text = rules_of("match: 'params/layers/(.)/w', to: 'model.layers.\\1.weight'")
    assert plan_of(text, ["params/layers/0/w", "step"]).warnings == ()  # Hugging Face's names, all of them
    text = rules_of("match: a, to: model.layers.0.weight, optional: true")
    assert plan_of(text, ["a", "model.layers.1.weight"]).warnings == ()  # the source's
    assert plan_of("version: 1\n", ["model.layers.1.weight"]).warnings == ()  # kept by no rule
    two_passes = """version: 1
passes:
- rules: [{match: a, to: model.a}]
- rules: [{match: 'model\\.(.*)', to: 'model/\\1'}]
"""
    assert plan_of(two_passes, ["a"]).warnings == ()
    target = "version: 1\nrules: [{match: a, to: model.a}]\n"
    assert plan_of(target, ["a"], target=["model.a"]).warnings == ()


def test_of_what_the_target_lacks_the_key_that_it_has_is_told() -> None:
    text = "version: 1\nrules: [{match: a, to: model.a}]\ntarget: {missing: fallback}\n"
    says = "rules[0] (line 2) makes `model.a`, which the target does not have; it has `model/a`"
    assert plan_of(text, ["a"], target=["model/a"]).warnings == (says,)


def test_formats_say_whether_they_are_flat(tmp_path: Path) -> None:
    checkpoints.save_standard(tmp_path / "old", {"params": {"w": checkpoints.random((2, 3))}})
    (tmp_path / "recipe.yaml").write_text(rules_of("match: params/w, to: params.w"))

    def warnings(name: str) -> int:
        plan = ckpt_surgery.plan(tmp_path / "recipe.yaml", tmp_path / "old", dst=tmp_path / name)
        return sum("Probably meant: `params/w`" in warning for warning in plan.warnings)

    assert [warnings(name) for name in ("new", "new.zarr", "new.msgpack")] == [1, 1, 1]
    assert [warnings(name) for name in ("new.safetensors", "new.npz")] == [0, 0]
    result = ckpt_surgery.apply(tmp_path / "recipe.yaml", tmp_path / "old", dst=tmp_path / "new")
    assert "Probably meant: `params/w`" in result.plan.warnings[0]


STATE = [
    *(f"{tree}/layer_{i}/w" for tree in ("params", "opt_state/0/mu", "opt_state/0/nu") for i in (0, 1)),
    "step",
]
RENAME = "- {match: 'params/layer_(.*)', to: 'params/block_\\1'}"


def warnings(rules: str, head: str = "", source: list[str] = STATE) -> list[str]:
    plan = plan_of(f"version: 1\n{head}rules:\n{rules}\n", source)
    return [warning for warning in plan.warnings if "names of parameters" in warning]


def test_a_forgotten_mirror_is_warned_of() -> None:
    (warning,) = warnings(RENAME)
    assert warning.startswith("4 leaves keep the names of parameters that are renamed")
    assert "`mirror: {params: [opt_state/0/mu, opt_state/0/nu]}`" in warning
    stack = "- {match: 'params/layer_(\\d)/w', to: params/layers/w, by: 'int(g[1])', value: stack(xs)}"
    assert len(warnings(stack)) == 1


@pytest.mark.parametrize(
    ("rules", "head"),
    [
        (RENAME, "mirror: {params: [opt_state/0/mu, opt_state/0/nu]}\n"),
        (f"{RENAME}\n- {{match: 'opt_state/.*', drop: true}}", ""),
        (f"{RENAME}\n- {{match: '(opt_state/.*)/layer_(.*)', to: '\\1/block_\\2'}}", ""),
        ("- {match: 'params/(.*)', value: x * 2}", ""),  # the names stay
        ("- {match: step, to: global_step}", ""),
    ],
)
def test_nothing_is_said_where_slots_go_along_or_away(rules: str, head: str) -> None:
    assert warnings(rules, head) == []


@pytest.mark.parametrize(
    ("params", "slots"),
    [
        ("state/params", "state/opt_state/0/mu"),  # a whole train state below a name
        ("state/params/params", "state/opt_state/mu/params"),
        ("params/params", "opt_state/mu/params"),
        ("state/model", "state/optimizer/mu"),
        ("a/model/params", "a/opt_state/inner_states/x/inner_state/0/trace"),
    ],
)
def test_parameters_below_several_levels(params: str, slots: str) -> None:
    source = [f"{tree}/enc/{leaf}" for tree in (params, slots) for leaf in ("w", "b")]
    (warning,) = warnings(f"- {{match: '{params}/enc/(.*)', to: '{params}/encoder/\\1'}}", source=source)
    assert warning.startswith("2 leaves keep")
    mirror = warning.split("`")[-2].removeprefix("mirror: {").removesuffix("}")
    rules = f"- {{match: '{params}/enc/(.*)', to: '{params}/encoder/\\1'}}"
    assert warnings(rules, f"mirror: {{{mirror}}}\n", source) == []


@pytest.mark.each
@pytest.mark.parametrize(
    ("source", "says"),
    [
        (["w", "opt_state/0/mu/w", "opt_state/0/count"], "`opt_state/0/mu/w`"),  # no tree of their own
        (["params/w", "params/o/w", "opt_state/mu/w", "opt_state/mu/o/w"], "1 leaf keeps"),  # another's slot
        (["params/w", "teacher/w", "opt_state/mu/w"], "`mirror: {params: [opt_state/mu]}`"),  # a copy of them
    ],
)
def test_the_slots_of_the_renamed_parameters_are_told(source: list[str], says: str) -> None:
    (warning,) = warnings(r"- {match: '(params/)?w', to: '\1kernel'}", source=source)
    assert says in warning
