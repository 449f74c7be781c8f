"""Slots of optimizers that keep the names of renamed parameters."""

import pytest

from tests.support.plans import plan_of

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


def test_params_without_a_tree_of_their_own() -> None:
    (warning,) = warnings("- {match: w, to: kernel}", source=["w", "opt_state/0/mu/w", "opt_state/0/count"])
    assert "`opt_state/0/mu/w`" in warning


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


def test_slots_of_other_parameters_are_not_counted() -> None:
    """`enc/w` is renamed, and `other/enc/w` is another parameter."""
    source = ["params/enc/w", "params/other/enc/w", "opt_state/mu/enc/w", "opt_state/mu/other/enc/w"]
    (warning,) = warnings("- {match: 'params/enc/w', to: 'params/x'}", source=source)
    assert warning.startswith("1 leaf keeps")


def test_a_copy_of_the_parameters_that_keeps_its_names_hides_nothing() -> None:
    source = ["params/enc/w", "teacher/enc/w", "opt_state/mu/enc/w"]
    (warning,) = warnings("- {match: 'params/enc/w', to: 'params/x'}", source=source)
    assert "`mirror: {params: [opt_state/mu]}`" in warning
