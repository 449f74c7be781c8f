"""Functions of the user's own: allowed or refused, checked, and called with whole arrays."""

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DataError, FunctionError, PlanError, UsageError
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import requested
from ckpt_surgery.language.hooks import HookFile, HookFunctions
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.prepared import identity_of
from tests.support.checkpoints import random
from tests.support.command_line import run
from tests.support.documents import plan_json

ROOT = Path(__file__).parent.parent.parent

Setting = Callable[..., Path]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    """Writes a recipe, its hooks and a checkpoint; gives the directory."""

    def make(rules: str, hooks: str, leaves: Mapping[str, object] | None = None) -> Path:
        (tmp_path / "recipe.yaml").write_text(f"version: 1\nhooks: my_hooks.py\nrules:\n{rules}\n")
        (tmp_path / "my_hooks.py").write_text(hooks)
        if leaves is not None:
            ocp.PyTreeCheckpointer().save(tmp_path / "old", dict(leaves))
        return tmp_path

    return make


def planned(directory: Path, **options: object) -> Plan:
    return applying.plan(directory / "recipe.yaml", directory / "old", allow_hooks=True, **options)


def applied(directory: Path, **options: object) -> Mapping[str, np.ndarray]:
    applying.apply(
        directory / "recipe.yaml", directory / "old", dst=directory / "new", allow_hooks=True, **options
    )
    restored = ocp.PyTreeCheckpointer().restore(directory / "new")
    return {name: np.asarray(value) for name, value in restored.items()}


DOUBLE = "- {match: w, value: hooks.double(x)}"
TWICE = "def double(x):\n    return x * 2\n"
MAKE = "import numpy as np\n\ndef make(n):\n    return np.zeros(n)"
KEY = "def make(key):\n    return {}[key]"
INFER = f"{TWICE}def infer_double(x):\n    return "


def test_the_page(tmp_path: Path) -> None:
    """docs/hooks.md, as it stands."""
    blocks = re.findall(
        r"^```(\w+)\n(?:# (\S+)\n)?(.*?)^```", (ROOT / "docs/hooks.md").read_text(), re.M | re.S
    )
    for _, name, text in blocks[:2]:
        (tmp_path / name).write_text(text)
    leaves = {"kernel": random((8, 4)), "scale": random((8,), 1), "bias": random((4,), 2)}
    ocp.PyTreeCheckpointer().save(tmp_path / "old", {"dense_in": leaves})
    applying.apply(tmp_path / "recipe.yaml", tmp_path / "old", dst=tmp_path / "new", allow_hooks=True)
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "new")
    kernel = leaves["kernel"]
    whitened = (kernel - kernel.mean(0)) / kernel.std(0)
    np.testing.assert_array_equal(restored["DenseIn"]["kernel"], whitened)
    np.testing.assert_array_equal(restored["DenseIn"]["table"], np.outer(leaves["scale"], leaves["bias"]))
    listed = re.findall(r"^(?:result)?\s+(DenseIn\S+)\s+(\S+)$", blocks[2][2], re.M)
    found = [(leaf.key.text, str(leaf.spec)) for leaf in ckpt_surgery.inspect(tmp_path / "new").leaves]
    assert sorted(found) == sorted(listed)
    assert len(found) == 2


def test_they_are_refused_unless_allowed_and_linting_does_not_run_them(setting: Setting) -> None:
    directory = setting(DOUBLE, "raise RuntimeError('it ran')", {"w": random((2, 3))})
    with pytest.raises(
        PlanError, match=r"recipe.yaml:2:8  hooks\n(.*\n)+.*Python code, in my_hooks.py beside it"
    ):
        applying.plan(directory / "recipe.yaml", directory / "old")
    assert ckpt_surgery.lint([directory / "recipe.yaml"]) == [(str(directory / "recipe.yaml"), ())]


def test_the_plan_has_the_digest_of_the_file(setting: Setting) -> None:
    directory = setting(DOUBLE, TWICE, {"w": random((2, 3))})
    digest = hashlib.sha256(TWICE.encode()).hexdigest()
    assert plan_json(planned(directory))["recipe"]["hooks_sha256"] == digest
    # Allowing hooks means nothing where there are none.
    (directory / "recipe.yaml").write_text("version: 1\n")
    assert "hooks_sha256" not in plan_json(planned(directory))["recipe"]


def test_the_command_line(setting: Setting) -> None:
    directory = setting(DOUBLE, "def double(x):\n    return 1 / 0", {"w": random((2, 3))})
    paths = [str(directory / name) for name in ("recipe.yaml", "old", "new")]
    refused, failed = run("apply", *paths), run("apply", "--allow-hooks", *paths)
    assert (refused.exit_code, failed.exit_code) == (2, 1)
    assert "--allow-hooks" in refused.stderr
    assert "`hooks.double` raised ZeroDivisionError: division by zero (my_hooks.py, line 2)" in failed.stderr
    assert "Traceback" not in failed.stderr
    (directory / "my_hooks.py").write_text(TWICE)
    assert run("apply", "--allow-hooks", *paths).exit_code == 0
    restored = ocp.PyTreeCheckpointer().restore(directory / "new")
    np.testing.assert_array_equal(restored["w"], random((2, 3)) * 2)


def test_a_saved_plan_has_to_be_allowed_again_and_knows_its_hooks(setting: Setting) -> None:
    directory = setting(DOUBLE, TWICE, {"w": random((2, 3))})
    plan, new = directory / "plan.json", directory / "new"
    planned(directory, out=plan)
    with pytest.raises(PlanError, match="`allow_hooks=True`"):
        applying.apply(plan, dst=new)
    (directory / "my_hooks.py").write_text("raise RuntimeError('it ran')")
    with pytest.raises(PlanError, match=r"the hooks .*my_hooks\.py changed since the plan was made"):
        applying.apply(plan, dst=new, allow_hooks=True)
    (directory / "my_hooks.py").unlink()
    with pytest.raises(PlanError, match=r"the hooks .*my_hooks\.py cannot be read"):
        applying.apply(plan, dst=new, allow_hooks=True)
    with pytest.raises(PlanError, match=r"yaml:2:8  hooks(.|\n)*my_hooks.py cannot be read: No such file"):
        planned(directory)
    (directory / "my_hooks.py").write_text(TWICE)
    applying.apply(plan, dst=new, allow_hooks=True)
    np.testing.assert_array_equal(ocp.PyTreeCheckpointer().restore(new)["w"], random((2, 3)) * 2)


def test_a_saved_call_has_its_lists_and_constants(setting: Setting) -> None:
    hooks = """
def mix(xs, weights, name, more=None):
    assert name == "m" and more is None and isinstance(xs, list)
    return sum(w * x for w, x in zip(weights, xs, strict=True))


def infer_table(n):
    return (n, 2), "float32"


def table(n):
    import numpy as np

    return np.arange(2 * n, dtype=np.float32).reshape(n, 2)
"""
    rules = """
  - {match: 'w(?P<n>\\d)', to: w, by: int(n), value: "hooks.mix(xs, [0.25, -0.0], 'm', None)"}
  - {add: t, value: hooks.table(3)}
"""
    leaves = {"w0": random((3, 2)), "w1": random((3, 2), 1)}
    directory = setting(rules, hooks, leaves)
    planned(directory, out=directory / "plan.json")
    applying.apply(directory / "plan.json", dst=directory / "again", allow_hooks=True)
    wanted = applied(directory)
    found = ocp.PyTreeCheckpointer().restore(directory / "again")
    assert set(found) == set(wanted) == {"w", "t"}
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
    np.testing.assert_array_equal(wanted["w"], np.float32(0.25) * leaves["w0"] + -0.0 * leaves["w1"])
    np.testing.assert_array_equal(wanted["t"], np.arange(6, dtype=np.float32).reshape(3, 2))


# --- values ---------------------------------------------------------------------------------------


def test_narrow_types_arrive_rounded_and_whole(setting: Setting) -> None:
    hooks = """
import ml_dtypes

def same(x):
    assert x.dtype == ml_dtypes.bfloat16 and x.shape == (64, 64), (x.dtype, x.shape)
    return x[::-1]
"""
    value = random((64, 64)).astype(ml_dtypes.bfloat16)
    found = applied(setting("- {match: w, value: 'hooks.same(x * 3)[2:5] + 1'}", hooks, {"w": value}))
    tripled = (value.astype(np.float32) * 3).astype(ml_dtypes.bfloat16)
    wanted = (tripled[::-1][2:5].astype(np.float32) + 1).astype(ml_dtypes.bfloat16)
    assert found["w"].tobytes() == wanted.tobytes()


def test_a_file_may_define_dataclasses_and_call_its_own_functions(setting: Setting) -> None:
    hooks = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Factor:
    value: int

def _factor() -> Factor:
    return Factor(2)

def double(x):
    return x * _factor().value
"""
    directory = setting(DOUBLE, hooks, {"w": random((2, 3))})
    np.testing.assert_array_equal(applied(directory)["w"], random((2, 3)) * 2)


def test_it_is_called_once_for_an_output_of_many_chunks(setting: Setting) -> None:
    hooks = """
calls = []

def count(x):
    calls.append(x.shape)
    return x + len(calls)
"""
    directory = setting(
        "- {match: w, value: hooks.count(x)}", hooks, {"w": np.zeros((1025, 1500), np.float32)}
    )
    memory = 40 << 20  # room for all of it, and so little that there are several chunks
    (step,) = planned(directory, memory=memory).steps
    assert step.cut is not None
    assert step.cut.chunks != (1025, 1500)
    np.testing.assert_array_equal(applied(directory, memory=memory)["w"], np.ones((1025, 1500), np.float32))


def test_whole_arrays_count_towards_the_budget(setting: Setting) -> None:
    directory = setting(DOUBLE, TWICE, {"w": np.zeros((1024, 1024), np.float32)})
    (step,) = planned(directory).steps
    assert step.cut is not None
    # the block, its decoded chunks and their encoded bytes; then the block, its result and one temporary
    assert step.cut.working_set >= 3 * (4 << 20)
    with pytest.raises(PlanError, match=r"rules\[0\](.|\n)*`w`: one element needs .*computed as a whole"):
        planned(directory, memory=8 << 20)


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "hooks", "says"),
    [
        ("- {match: w, value: hooks.doubel(x)}", TWICE, "my_hooks.py has no function `doubel`; did you mean"),
        ("- {match: w, value: hooks.make(3)}", MAKE, "gave a ndarray, not text or a number (at `w`)"),
        ("- {match: w, value: hooks.double(source)}", TWICE, "a hook takes arrays, text, numbers"),
        ("- {match: w, to: '${hooks.make(key)}'}", KEY, "raised KeyError: 'w' (my_hooks.py, line 2)"),
        (DOUBLE, f"{INFER}x.shape", "`infer_double` has to give (shape, dtype), not (2, 3) (at `w`)"),
        (DOUBLE, f"{INFER}(x.shape, None)", "`infer_double` has to give (shape, dtype), not ((2, 3), None)"),
        (DOUBLE, f"{INFER}(x.shape, 'float23')", "float23"),
        (DOUBLE, f"import sys\n{INFER}sys.exit('bye')", "raised SystemExit: bye (my_hooks.py, line 5)"),
        (DOUBLE, "import nothing", "do not load: ModuleNotFoundError: No module named 'nothing' (my_h"),
        (DOUBLE, "def f(:\n", "  the hooks do not load: SyntaxError: invalid syntax (my_hooks.py, line 1)"),
    ],
)
def test_problems_are_found_while_planning(setting: Setting, rule: str, hooks: str, says: str) -> None:
    directory = setting(rule, hooks, {"w": random((2, 3))})
    with pytest.raises(PlanError) as caught:
        planned(directory)
    assert says in str(caught.value)
    place = caught.value.problems[0].place
    assert place is not None
    assert (place.line, place.column) == ((2, 8) if "do not load" in says else (4, rule.index("hooks.") + 1))


ODD = "class Odd:\n    def __array__(self, *_, **__):\n        raise ValueError('no')\n"
EXPECTED = (
    "but the plan expects float32[2,3]\n"
    "  Add a function `infer_double` to my_hooks.py for its shape and dtype."
)


@pytest.mark.parametrize(
    ("hooks", "says"),
    [
        ("def double(x):\n    raise ValueError('no')", "raised ValueError: no (my_hooks.py, line 2)"),
        ("import sys\n\ndef double(x):\n    sys.exit(3)", "raised SystemExit: 3 (my_hooks.py, line 4)"),
        (f"{ODD}\ndef double(x):\n    return Odd()", "raised ValueError: no (my_hooks.py, line 3)"),
        ("def double(x):\n    return x.T", f"gave float32[3,2], {EXPECTED}"),
        ("def double(x):\n    return None", f"gave object[], {EXPECTED}"),
    ],
)
def test_problems_with_values_end_the_run(setting: Setting, hooks: str, says: str) -> None:
    directory = setting(DOUBLE, hooks, {"w": random((2, 3))})
    with pytest.raises(DataError) as caught:
        applied(directory)
    where = f"{directory}/recipe.yaml:4:21  rules[0].value\n    {DOUBLE}\n{' ' * 24}{'^' * 15}\n  "
    assert str(caught.value) == f"{where}`w`: `hooks.double` {says}"
    assert caught.value.exit_code == 1
    assert not (directory / "new").exists()


LAZY = """
import numpy as np
from ckpt_surgery.functions import Array, LeafKey, concat, in_expressions

@in_expressions
def roll(x: Array, shift: int) -> Array:
    return concat([x[-shift:], x[:-shift]])

@in_expressions
def drawn(x: Array, *, leaf_key: LeafKey) -> Array:
    return x
"""


def test_hooks_of_lazy_arrays_are_computed_in_regions(setting: Setting) -> None:
    weights = random((6, 4))
    directory = setting("- {match: w, value: 'hooks.roll(x, 2)'}", LAZY, {"w": weights})
    plan = planned(directory)
    assert plan.steps[0].leaf.spec == plan.steps[0].value.spec
    assert "HookCall" not in repr(plan.steps[0].value)
    np.testing.assert_array_equal(applied(directory)["w"], np.roll(weights, 2, axis=0))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("hooks.roll(x)", "`roll` needs `shift`: roll(x, shift)"),
        ("hooks.drawn(x)", "`hooks.drawn` has a parameter `leaf_key`, which no hook is given"),
    ],
)
def test_hooks_of_lazy_arrays_are_checked_while_planning(setting: Setting, value: str, message: str) -> None:
    directory = setting(f'- {{match: w, value: "{value}"}}', LAZY, {"w": random((6, 4))})
    with pytest.raises(PlanError, match=re.escape(message)):
        planned(directory)


# --- functions of the running program -----------------------------------------------------------------


def recipe(value: str, **functions: Callable[..., Any]) -> LoadedRecipe:
    text = f'{{"version": 1, "rules": [{{"match": "w", "value": "{value}"}}]}}'
    return parse_recipe(text, "(recipe)", hooks=HookFunctions(functions))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    ocp.PyTreeCheckpointer().save(tmp_path / "source", {"w": np.arange(6.0).reshape(2, 3)})
    return tmp_path / "source"


def test_a_result_that_is_not_as_planned(source: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"`hooks\.f` gave float64\[3\], but the plan expects float64\[2,3\]"):
        applying.apply(recipe("hooks.f(x)", f=lambda x: x[0]), source, dst=tmp_path / "result")
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("name", ["", "a b", "_f", "f.g", "1f"])
def test_names_that_no_expression_can_call(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"a hook cannot be called {name!r}")):
        HookFunctions({name: len})


def test_what_is_no_function(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the hook `f` is not a function, but 3"):
        HookFunctions({"f": 3})  # type: ignore[dict-item]
    with pytest.raises(FunctionError, match=r"\(hooks\) has no function `dubble`; did you mean `double`"):
        HookFunctions({"double": lambda x: x}).call("dubble", [])
    (tmp_path / "my_hooks.py").write_text("def _private(x):\n    return x\n")
    with pytest.raises(FunctionError, match="has no function `_private`"):
        HookFile(tmp_path / "my_hooks.py").call("_private", [1])


def test_the_digest_is_that_of_names_and_code() -> None:
    def scaled(factor: int) -> Callable[[Any], Any]:
        exec(f"def f(x):\n    return x * {factor}", found := {})
        return found["f"]  # type: ignore[no-any-return]

    first, again, other = (HookFunctions({"f": scaled(n)}).sha256 for n in (2, 2, 3))
    assert first == again
    assert first not in (other, HookFunctions({"g": scaled(2)}).sha256)
    nested = HookFunctions({"f": lambda x: [y for y in x]})  # noqa: C416  (its code has code in it)
    assert re.fullmatch("[0-9a-f]{64}", nested.sha256)


def test_a_plan_with_them_is_not_saved(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        applying.plan(recipe("hooks.double(x)", double=lambda x: x * 2), source, out=tmp_path / "plan.json")
    assert "cannot hold functions of the running program, and the recipe calls `double`" in str(caught.value)
    assert not (tmp_path / "plan.json").exists()


def test_a_run_with_them_is_never_taken_up_again(source: Path, tmp_path: Path) -> None:
    """Nobody knows whether functions of two programs do the same: `resume` starts afresh."""
    given = recipe("hooks.double(x)", double=lambda x: x * 2)
    ready = prepare(requested(given, (source,), tmp_path / "result", {}))
    assert identity_of(ready) != identity_of(ready)
