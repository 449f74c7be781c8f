"""Plans as JSON: what a plan's file says, and which files are plans."""

import hashlib
import json
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.graph.nodes import Apply, Read
from ckpt_surgery.language.hooks import HookCall, HookFile
from ckpt_surgery.language.params import Origin, ParamValue
from ckpt_surgery.planner.document import (
    destination_options,
    known_kinds,
    not_saved,
    plan_file,
    read_plan_file,
    saved_plan,
)
from ckpt_surgery.planner.document_forms import FileForm, SavedPlan
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.planner.plan import Fate, Input, Plan, Step, Transfer
from ckpt_surgery.planner.plan_json import plan_json
from tests.support.leaves import array_leaf
from tests.support.plans import plan_of, sealed

DESTINATION = DestinationOptions(None, "orbax", None, None, 3, False, None, LinkMode.AUTO)
RECIPE = """version: 1
params: {n: 2}
rules:
- {match: 'l/(\\d)', to: 'm/[\\1]'}
- {match: d, drop: true}
- {match: w, value: x.T}
"""
PLAN = replace(
    plan_of(
        RECIPE, {"l/0": "bfloat16[4]", "l/1": "int8[]", "d": "int8[1]", "w": "int32[2,3]", "s": "string"}
    ),
    inputs=(Input("source", "old", "orbax", 5, "print", 7, "state", {"d/1": FileState(3, 4, "", 5)}),),
    metadata={"loss": math.inf},
    warnings=("a warning",),
)


def saved(plan: Plan = PLAN, destination: DestinationOptions = DESTINATION) -> SavedPlan:
    return saved_plan(plan, destination, memory=1000, workers=2, hooks=None)


def document(form: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(form))


def rewritten(path: Path, **members: Any) -> Path:
    """A plan's file with other members of `saved`."""
    text = json.loads(plan_file(PLAN, saved()))
    text["saved"] |= members
    path.write_text(json.dumps(sealed(text)))
    return path


# --- from a plan to a document ------------------------------------------------------------------------


def test_outputs_say_what_is_written_and_from_what() -> None:
    first, scalar, turned, text = document(saved())["outputs"]
    assert first == {
        "key": ["m", "0"],
        "list_indices": [1],
        "kind": "array",
        "shape": [4],
        "dtype": "bfloat16",
        "transfer": "compute",
        "chunks": [4],
        "block": [4],
        "value": ["leaf", "source", "l/0"],
        "rule": 0,
    }
    assert (scalar["shape"], scalar["chunks"], scalar["block"]) == ([], [], [])
    assert turned["value"] == ["transpose", {"axes": None}, ["leaf", "source", "w"]]
    assert text == {
        "key": ["s"],
        "kind": "string",
        "string": "hello",
        "transfer": "compute",
        "value": ["leaf", "source", "s"],
    }


def test_chunks_and_blocks_are_those_of_the_cut() -> None:
    step = PLAN.steps[2]
    assert step.cut is not None
    cut = replace(step.cut, chunks=(3, 1), block=(3, 2))
    (output,) = document(saved(replace(PLAN, steps=(replace(step, cut=cut),))))["outputs"]
    assert (output["chunks"], output["block"]) == ([3, 1], [3, 2])


def test_other_metadata_of_a_leaf_is_kept() -> None:
    leaf = replace(PLAN.steps[0].leaf, sharding="named", prng_impl="rbg", empty="None")
    (output,) = document(saved(replace(PLAN, steps=(replace(PLAN.steps[0], leaf=leaf),))))["outputs"]
    assert (output["sharding"], output["prng_impl"], output["empty"]) == ("named", "rbg", "None")


def test_each_rule_is_told_once_and_outputs_and_dropped_leaves_refer_to_it() -> None:
    told = document(saved())
    assert [(rule["path"], rule["line"]) for rule in told["rules"]] == [
        ("rules[0]", 4),
        ("rules[2]", 6),
        ("rules[1]", 5),  # dropped leaves come last
    ]
    assert [output.get("rule") for output in told["outputs"]] == [0, 0, 1, None]
    assert told["dropped"] == [{"source": "source", "key": "d", "why": "drop", "rule": 2}]
    assert told["rules"][1]["value"] == {
        "file": "recipe.yaml",
        "path": "rules[2].value",
        "line": 6,
        "column": 21,
        "text": "- {match: w, value: x.T}",
        "width": 3,
    }


def test_a_value_that_outputs_share_is_told_once() -> None:
    turned = Apply(Transpose(), (Read("source", array_leaf("w")),))
    steps = [
        Step(array_leaf(name, (3, 2)), turned, Fate.TRANSFORMED, None, (), Transfer.COMPUTE) for name in "ab"
    ]
    told = document(saved(replace(PLAN, steps=tuple(steps))))
    assert told["shared"] == [["transpose", {"axes": None}, ["leaf", "source", "w"]]]
    assert [output["value"] for output in told["outputs"]] == [0, 0]


def test_paths_are_absolute_and_the_recipe_s_is_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = saved(destination=replace(DESTINATION, path="new"))
    assert told.inputs[0].path == f"{tmp_path}/old"
    assert told.destination.path == f"{tmp_path}/new"
    assert told.recipe.path == "recipe.yaml"
    assert saved().destination.path is None


def test_what_else_a_plan_is_carried_out_with() -> None:
    told = saved()
    assert (told.version, told.memory, told.workers) == (VERSION, 1000, 2)
    assert told.recipe.sha256 == hashlib.sha256(RECIPE.encode()).hexdigest()
    assert told.recipe.hooks is None
    assert told.metadata == '{"loss": Infinity}'
    assert told.warnings == ["a warning"]
    (given,) = told.inputs
    assert (given.name, given.format, dict(given.files), given.step, given.item) == (
        "source",
        "orbax",
        {"d/1": FileForm(3, "", 5)},
        7,
        "state",
    )


def test_params_that_json_has_no_number_for() -> None:
    params = (
        ParamValue("n", 2**70, Origin.SET),
        ParamValue("some", (1, math.inf), Origin.CONFIG, "a.b", "config.json"),
    )
    assert document(saved(replace(PLAN, params=params)))["params"] == [
        {"name": "n", "value": {"int": str(2**70)}, "origin": "set"},
        {
            "name": "some",
            "value": [1, {"float": "inf"}],
            "origin": "config",
            "entry": "a.b",
            "note": "config.json",
        },
    ]


def test_options_of_the_destination_come_back() -> None:
    options = DestinationOptions("/new", "safetensors", 3, "state", 2, True, 1 << 20, LinkMode.COPY)
    assert destination_options(saved(destination=options)) == options
    assert destination_options(saved()) == DESTINATION


def test_the_file_of_hooks_is_told_by_its_path_and_digest(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("def f(x):\n    return x\n")
    hooks = HookFile(Path(os.path.relpath(tmp_path / "hooks.py")))
    told = saved_plan(PLAN, DESTINATION, 1000, 2, hooks).recipe.hooks
    assert told is not None
    assert (told.file, told.sha256) == (str(tmp_path / "hooks.py"), hooks.sha256)
    assert known_kinds(hooks) == {**kinds(), "hook": HookCall}
    assert known_kinds(None) == kinds()


@dataclass(frozen=True)
class Unregistered(Function):
    kind: ClassVar[str] = "unregistered"


def test_a_function_that_no_package_registers_cannot_be_saved() -> None:
    step = replace(PLAN.steps[0], value=Apply(Unregistered(), ()))
    with pytest.raises(UsageError, match=r"^Unregistered of .* cannot be saved in a plan"):
        saved(replace(PLAN, steps=(step,)))


# --- files --------------------------------------------------------------------------------------------


def test_the_file_is_the_plan_s_document_and_what_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(plan_file(PLAN, saved()))
    told = json.loads((tmp_path / "plan.json").read_text())
    assert told.pop("saved") == json.loads(msgspec.json.encode(saved()))
    assert told == json.loads(json.dumps(plan_json(PLAN)))
    assert read_plan_file(tmp_path / "plan.json") == saved()


def test_names_of_files_that_are_no_unicode_come_back(tmp_path: Path) -> None:
    plan = replace(PLAN, inputs=(replace(PLAN.inputs[0], path="/old\udcff"),))
    (tmp_path / "plan.json").write_bytes(plan_file(plan, saved(plan)))
    assert read_plan_file(tmp_path / "plan.json") == saved(plan)


def test_what_cannot_be_read_is_no_plan(tmp_path: Path) -> None:
    assert read_plan_file(tmp_path / "none.json") is None
    assert read_plan_file(tmp_path) is None
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert read_plan_file(tmp_path / "deep.json") is None


def test_another_version_is_told_before_anything_else_is_read(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "plan.json", version="9\x1b", memory="much")
    with pytest.raises(UsageError) as caught:
        read_plan_file(path)
    assert str(caught.value) == (
        f"{path} was saved by version 9\\x1b of the tool; this is {VERSION}\n"
        "  Make the plan again with this version, or carry it out with that one."
    )


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"memory": 0}, "saved.memory: Expected `int` >= 1"),
        ({"surprise": 1}, "saved: Object contains unknown field `surprise`"),
        ({"outputs": [{}]}, "saved.outputs[0]: Object missing required field `key`"),
        (
            {"recipe": {"path": "r", "sha256": "0" * 64}, "rules": 3},
            "saved.rules: Expected `array`, got `int`",
        ),
    ],
)
def test_a_malformed_member_is_told_by_its_place(members: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path / "plan.json", **members)
    with pytest.raises(UsageError) as caught:
        read_plan_file(path)
    assert str(caught.value).startswith(f"{path}: not a plan that was saved: {says}")
    assert str(caught.value).endswith("\n  Make the plan again.")


def changed(path: Path, **members: Any) -> Path:
    """A plan's file with other members of `saved`, and the digest that it had."""
    text = json.loads(plan_file(PLAN, saved()))
    text["saved"] |= members
    path.write_text(json.dumps(text))
    return path


@pytest.mark.parametrize(
    "members",
    [
        {"memory": 1001},
        {"metadata": '{"loss": NaN}'},
        {"warnings": []},
        {"destination": {"format": "orbax", "path": "/elsewhere"}},
        {"shared": [["leaf", "source", "w"]]},
        {"sha256": "0" * 64},
        {"sha256": ""},
    ],
)
def test_a_plan_that_was_changed_is_told(members: dict[str, Any], tmp_path: Path) -> None:
    path = changed(tmp_path / "plan.json", **members)
    with pytest.raises(UsageError, match="the plan was changed after it was saved, or is damaged"):
        read_plan_file(path)


def test_the_path_of_an_input_may_be_changed_and_the_file_be_formatted(tmp_path: Path) -> None:
    (given,) = document(saved())["inputs"]
    moved = {**given, "path": "/new"}
    path = changed(tmp_path / "plan.json", inputs=[dict(reversed(moved.items()))])
    told = read_plan_file(path)
    assert told is not None
    assert [form.path for form in told.inputs] == ["/new"]
    assert msgspec.structs.replace(told, inputs=saved().inputs) == saved()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workers": 5000}, "`workers`: a saved plan can have 4096 at most, not 5000"),
        ({"memory": 2**63}, "`memory`: a saved plan can have"),
    ],
)
def test_what_could_not_be_read_back_is_not_saved(options: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        saved_plan(PLAN, DESTINATION, **{"memory": 1000, "workers": 2, "hooks": None, **options})  # type: ignore[arg-type]


def test_messages_about_a_plan_s_file_can_be_printed() -> None:
    error = not_saved("plan\x1b.json", "saved.rules", "no\u202ee")
    assert str(error) == (
        "plan\\x1b.json: not a plan that was saved: saved.rules: no\\u202ee\n  Make the plan again."
    )
