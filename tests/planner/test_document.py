"""A plan's file: the document of the plan, which files are plans, and which of them were changed."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.language.loading import ParamSource, ParamValue
from ckpt_surgery.planner.document import (
    PlanFile,
    RequestForm,
    SavedPlan,
    looks_of,
    plan_file,
    read_plan_file,
)
from ckpt_surgery.planner.plan import Input, Plan
from tests.support.documents import plan_json
from tests.support.plans import plan_of

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
    inputs=(Input("source", "/old", "orbax", 5, "print", 7, "state", {"d/1": FileState(3, 4, "", 5)}),),
    warnings=("a warning",),
)


def saved(plan: Plan = PLAN) -> SavedPlan:
    return SavedPlan(
        version=VERSION,
        request=RequestForm("orbax", 1000, 2),
        recipe=None,
        hooks=None,
        inputs=("source",),
        configs={"source": None},
        target=None,
        linked="0" * len(plan.steps),
        digest="0" * 64,
        looks=looks_of(plan),
    )


def written(plan: Plan = PLAN) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(plan_file(plan, saved(plan)))
    return document


def read(document: dict[str, Any]) -> PlanFile | None:
    return read_plan_file("plan.json", json.dumps(document).encode())


# --- what it says -----------------------------------------------------------------------------------------


def test_the_file_is_the_plan_s_document_and_what_is_carried_out(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(plan_file(PLAN, saved()))
    told = json.loads((tmp_path / "plan.json").read_text())
    sealed_by, source = told.pop("saved").pop("sha256"), told["sources"].pop("source")
    wanted = json.loads(json.dumps(plan_json(PLAN)))
    assert wanted["sources"].pop("source").items() <= source.items()
    assert told == wanted
    found = read_plan_file(tmp_path / "plan.json")
    assert found is not None
    assert found.saved.sha256 == sealed_by
    again = msgspec.json.decode(msgspec.json.encode(saved()), type=SavedPlan)  # lists for tuples
    assert found.saved == msgspec.structs.replace(again, sha256=sealed_by)
    assert found.inputs == (replace(PLAN.inputs[0], fingerprint=""),)


def test_leaves_that_look_alike_are_described_once() -> None:
    recipe = RECIPE.replace("w,", "w, optional: true,")
    found = looks_of(plan_of(recipe, {**{f"l/{n}": "int8[4]" for n in range(9)}, "d": "int8[1]"}))
    assert (found["leaves"], found["dropped"], len(found["looks"])) == ([0] * 9, [1], 2)
    assert [look[2][:2] for look in found["looks"]] == [("rules[0]", 4), ("rules[1]", 5)]


def test_paths_of_inputs_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = replace(PLAN, inputs=(replace(PLAN.inputs[0], path="old"),))
    assert written(plan)["sources"]["source"]["path"] == f"{tmp_path}/old"


def test_params_that_json_has_no_number_for() -> None:
    params = (
        ParamValue("n", 2**70, ParamSource.SET),
        ParamValue("some", (1, math.inf), ParamSource.CONFIG, "a.b"),
    )
    told = written(replace(PLAN, params=params))["params"]
    assert (told["n"]["value"], told["some"]["value"]) == ({"int": str(2**70)}, [1, {"float": "inf"}])


# --- which files are plans --------------------------------------------------------------------------------


def test_what_cannot_be_read_is_no_plan(tmp_path: Path) -> None:
    assert read_plan_file(tmp_path / "none.json") is None
    assert read_plan_file(tmp_path) is None
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert read_plan_file(tmp_path / "deep.json") is None


CHANGES = [
    ("saved.request.memory", 1001),
    ("saved.linked", "1111"),
    ("saved.request.dst", "/elsewhere"),
    ("saved.sha256", "0" * 64),
    ("saved.sha256", ""),
    ("leaves.0.fate", "kept"),
    ("leaves.0.shape", [5]),
    ("warnings", []),
    ("sources.source.files", {}),
    ("sources.source.step", 8),
    ("surprise", 1),
]


@pytest.mark.parametrize(("place", "value"), CHANGES, ids=[place for place, _ in CHANGES])
def test_a_plan_that_was_changed_is_told(place: str, value: object) -> None:
    document = written()
    *names, last = place.split(".")
    inner: Any = document
    for name in names:
        inner = inner[int(name) if name.isdecimal() else name]
    assert inner.get(last) != value
    inner[last] = value
    with pytest.raises(UsageError, match="the plan was changed after it was saved, or is damaged"):
        read(document)


def test_the_path_of_an_input_may_be_changed_and_the_file_be_formatted() -> None:
    document = written()
    document["sources"]["source"] = dict(reversed({**document["sources"]["source"], "path": "/new"}.items()))
    found = read(dict(reversed(document.items())))
    assert found is not None
    assert found.inputs[0].path == "/new"
