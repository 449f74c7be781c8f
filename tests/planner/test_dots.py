"""Keys with dots where slashes were meant."""

from pathlib import Path

import pytest

import ckpt_surgery
from tests.support import checkpoints
from tests.support.plans import plan_of

TREE = ["params/layer_0/kernel", "params/layer_1/kernel", "step"]


def rules(*written: str) -> str:
    return "version: 1\nrules:\n" + "".join(f"- {rule}\n" for rule in written)


def test_a_name_with_dots_in_a_tree_is_told_with_the_key_that_was_meant() -> None:
    text = rules("{match: params.layer_0.kernel, to: params.l0.kernel}")
    plan = plan_of(text, TREE)
    assert next(s.leaf.key.names for s in plan.steps) == ("params.l0.kernel",)
    assert plan.warnings == (
        "rules[0] (line 3) makes `params.l0.kernel`: names with dots in them; levels are separated by `/`. "
        "Probably meant: `params/l0/kernel`",
    )


def test_many_such_names_are_one_line() -> None:
    text = rules("{match: 'params.layer_(.).kernel', to: 'params.l.\\1.kernel'}")
    plan = plan_of(text, [f"params/layer_{i}/kernel" for i in range(9)])
    assert plan.warnings == (
        "rules[0] (line 3) makes `params.l.{0..8}.kernel`: names with dots in them; levels are separated "
        "by `/`. Probably meant: `params/l/{0..8}/kernel`",
    )


@pytest.mark.parametrize("name", ["params/scale_0.5", "params/v1.5/w", ".hidden/w", "a./b", "w...x"])
def test_dots_that_separate_no_words_are_none(name: str) -> None:
    assert plan_of(rules(f"{{match: params/layer_0/kernel, to: {name}}}"), TREE).warnings == ()


def test_another_root_is_told_where_other_leaves_have_levels() -> None:
    text = rules("{match: params/layer_0/kernel, to: encoder.l0.kernel}")
    (says,) = plan_of(text, TREE).warnings
    assert "makes `encoder.l0.kernel`: names with dots" in says
    (says,) = plan_of(rules("{match: params/a/w, to: params/a.w}"), ["params/a/w"]).warnings
    assert says.endswith("Probably meant: `params/a/w`")


def test_no_false_alarm_where_dots_are_names() -> None:
    text = rules("{match: params/layers/0/w, to: params.w}")
    assert plan_of(text, ["params/layers/0/w"], flat=True).warnings == ()  # the destination's convention
    text = rules("{match: 'params/layers/(.)/w', to: 'model.layers.\\1.weight'}")
    assert plan_of(text, ["params/layers/0/w", "step"]).warnings == ()  # Hugging Face's names, all of them
    text = rules("{match: a, to: model.layers.0.weight, optional: true}")
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
    (tmp_path / "recipe.yaml").write_text(rules("{match: params/w, to: params.w}"))

    def warnings(name: str) -> int:
        plan = ckpt_surgery.plan(tmp_path / "recipe.yaml", tmp_path / "old", dst=tmp_path / name)
        return sum("Probably meant: `params/w`" in warning for warning in plan.warnings)

    assert [warnings(name) for name in ("new", "new.zarr", "new.msgpack")] == [1, 1, 1]
    assert [warnings(name) for name in ("new.safetensors", "new.npz")] == [0, 0]
    result = ckpt_surgery.apply(tmp_path / "recipe.yaml", tmp_path / "old", dst=tmp_path / "new")
    assert "Probably meant: `params/w`" in result.plan.warnings[0]
