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
