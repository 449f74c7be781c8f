"""The JSON document of a plan."""

import json
from dataclasses import replace

from ckpt_surgery.planner.plan import Costs, Input
from tests.support.documents import plan_json
from tests.support.plans import plan_of

RECIPE = """version: 1
params: {n: 2}
rules:
- {match: b, to: c}
- {match: d, drop: true}
- {match: e, value: x * n}
- {add: f, value: n}
"""
PLAN = replace(
    plan_of(RECIPE, [*"abde"]),
    inputs=(Input("source", "/in", "orbax", 4, "fingerprint", step=7),),
    costs=Costs(80, 10, 20, 50, 70, 90, 5, 15),
    hooks_sha256="c0ffee",
    restorable_by={"orbax-checkpoint": "0.6.0"},
    warnings=("a warning",),
)


def test_the_whole_document() -> None:
    document = plan_json(PLAN)
    assert json.loads(json.dumps(document)) == document
    leaves = document.pop("leaves")
    assert [(one["key"], one["fate"], one["sources"], one["rule"], one["line"]) for one in leaves] == [
        ("c", "renamed", ["source:b"], "rules[0]", 4),
        ("e", "transformed", ["source:e"], "rules[2]", 6),
        ("f", "added", [], "rules[3]", 7),
        ("a", "kept", ["source:a"], None, None),
    ]
    assert [(one["dtype"], one["shape"], one["transfer"]) for one in (leaves[0], leaves[2])] == [
        ("float32", [2, 3], "compute"),
        ("int64", [], "compute"),
    ]
    (param,) = document.pop("params").items()
    assert (param[0], param[1]["value"]) == ("n", 2)
    assert document == {
        "schema": 1,
        "recipe": {"path": "recipe.yaml", "sha256": PLAN.recipe_sha256, "hooks_sha256": "c0ffee"},
        "sources": {"source": {"path": "/in", "format": "orbax", "step": 7, "item": None, "leaves": 4}},
        "summary": {
            **dict.fromkeys(("kept", "renamed", "transformed", "added", "dropped"), 1),
            "defaulted": 0,
            "bytes_out": 80,
            "bytes_linked": 10,
            "bytes_copied": 20,
            "bytes_computed": 50,
            "bytes_dead": 5,
            "bytes_linkable": 15,
            "bytes_read": 70,
            "bytes_served": 0,
            "bytes_through": 140,
            "peak_memory": 90,
        },
        "dropped": [{"source": "source:d", "components": ["d"], "rule": "rules[1]", "why": "drop"}],
        "dropped_items": [],
        "replaces": None,
        "warnings": ["a warning"],
        "restorable_by": {"orbax-checkpoint": "0.6.0"},
    }
    assert "hooks_sha256" not in plan_json(replace(PLAN, hooks_sha256=None))["recipe"]
