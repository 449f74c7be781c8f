"""Saved plans made plans again: over leaves in memory, and destinations that answer as told."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.protocols import DataFile, LinkMode
from ckpt_surgery.graph.nodes import Apply, Array
from ckpt_surgery.language.hooks import HookCall, HookFile
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.params import Origin, ParamValue
from ckpt_surgery.planner.document import saved_plan
from ckpt_surgery.planner.document_forms import SavedPlan
from ckpt_surgery.planner.document_reading import restored
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.planner.plan import Costs, Fate, Input, Plan, Transfer
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.transfers import Destination
from tests.support.leaves import array_leaf, by_key, key, leaf
from tests.support.memory import MemoryEncoder
from tests.support.plans import COMPUTED, MEMORY, links_on

OPTIONS = DestinationOptions(None, "memory", None, None, 3, False, None, LinkMode.AUTO)
RECIPE = """version: 1
params: {n: 2, names: [q, k]}
rules:
- {match: 'l/(\\d)', to: 'm/[\\1]'}
- {match: d, drop: true}
- {match: w, value: 'x.T * n'}
- {match: v, value: 'x.T * n'}
"""
FILES = {"/wide": DataFile("/wide", 100, domain="1"), "/deep": DataFile("/deep", 40, domain="2")}


def stored_leaf(text: str, file: str, offset: int = 0) -> Leaf:
    """An array of 24 bytes, which are one chunk of a file."""
    plain = array_leaf(text)
    assert plain.spec is not None
    chunk = Chunk(file, offset, 24)
    return replace(plain, manifest=Manifest(plain.spec, (2, 3), raw_codec(2), {(0, 0): chunk}))


STORED = by_key(stored_leaf("wide", "/wide", 8), stored_leaf("deep", "/deep"))
LEAVES = by_key(
    leaf("l/0", "bfloat16[4]"),
    leaf("l/1", "int8[]"),
    leaf("d", "int8[1]"),
    leaf("w", "int32[2,3]"),
    leaf("v", "int32[2,3]"),
    leaf("s", "string"),
    leaf("k", "prng_key"),
    Leaf(key("z"), LeafKind.EMPTY, empty="None"),
)
ADOPTING = replace(
    COMPUTED,
    encoder=MemoryEncoder(adopting=lambda leaf, manifest: True),
    data_file=FILES.__getitem__,
    linkable=links_on("1"),
)
"""A destination on the file system of `/wide`, which can link or copy stored bytes."""


def planned(
    recipe: str, leaves: Mapping[str, Leaf], destination: Destination = COMPUTED, memory: int = MEMORY
) -> Plan:
    inputs = [Input("source", "/old", "memory", len(leaves), "print")]
    loaded = parse_recipe(recipe, "recipe.yaml")
    return make_plan(loaded, {"source": leaves}, None, inputs, {"n": 1}, destination, memory, 2)


def saved(plan: Plan, hooks: HookFile | None = None) -> SavedPlan:
    return saved_plan(plan, OPTIONS, MEMORY, 2, hooks)


def read(
    document: SavedPlan,
    leaves: Mapping[str, Leaf],
    destination: Destination = COMPUTED,
    memory: int = MEMORY,
    hooks: HookFile | None = None,
) -> Plan:
    return restored("plan.json", document, {"source": leaves}, destination, hooks, memory, 2)


def decided(plan: Plan) -> list[object]:
    """The steps, but for their values: two values are never equal."""
    return [
        (step.leaf, step.fate, step.rule, step.rules, step.sources, step.transfer, step.cut, step.stored)
        for step in plan.steps
    ]


def with_output(document: SavedPlan, number: int, **fields: Any) -> SavedPlan:
    """The document with other fields in one output."""
    outputs = [*document.outputs]
    outputs[number] = msgspec.structs.replace(outputs[number], **fields)
    return msgspec.structs.replace(document, outputs=outputs)


def refusal(document: SavedPlan, leaves: Mapping[str, Leaf], destination: Destination = COMPUTED) -> str:
    with pytest.raises(UsageError) as caught:
        read(document, leaves, destination)
    message, hint = str(caught.value).splitlines()
    assert hint == "  Make the plan again."
    return message.removeprefix("plan.json: not a plan that was saved: saved.")


# --- the same plan ------------------------------------------------------------------------------------


def test_the_plan_is_the_one_that_was_saved() -> None:
    plan = planned(RECIPE, LEAVES)
    assert {str(step.leaf.kind) for step in plan.steps} == {"array", "string", "empty", "prng_key"}
    again = read(saved(plan), LEAVES)
    assert decided(again) == decided(plan)
    assert (again.dropped, again.costs, again.inputs) == (plan.dropped, plan.costs, ())
    assert saved(replace(again, inputs=plan.inputs)) == saved(plan)  # the values among all else


def test_what_is_linked_or_copied_has_its_stored_bytes_again() -> None:
    plan = planned("version: 1\n", STORED, ADOPTING)
    assert [step.transfer for step in plan.steps] == [Transfer.COPY, Transfer.COPY]  # little of /wide is used
    plan = replace(plan, steps=tuple(replace(step, transfer=Transfer.LINK) for step in plan.steps))
    again = read(saved(plan), STORED, ADOPTING)
    wide, deep = again.steps
    assert (wide.transfer, wide.stored, wide.cut) == (Transfer.LINK, STORED["wide"].manifest, None)
    assert (deep.transfer, deep.stored) == (Transfer.COPY, STORED["deep"].manifest)  # another file system
    assert again.costs == Costs(
        bytes_out=48,
        bytes_linked=24,
        bytes_copied=24,
        bytes_computed=0,
        bytes_read=24,
        peak_memory=0,
        bytes_dead=76,  # of the linked file alone
    )


def test_without_a_file_system_of_its_own_a_destination_gets_copies() -> None:
    document = saved(planned("version: 1\n", {"wide": STORED["wide"]}, ADOPTING))
    document = with_output(document, 0, transfer=Transfer.LINK)
    for device, transfer in (("1", Transfer.LINK), ("2", Transfer.COPY), (None, Transfer.COPY)):
        (step,) = read(document, STORED, replace(ADOPTING, linkable=links_on(device))).steps
        assert step.transfer is transfer


def test_what_may_be_rewritten_in_place_now_is_copied_and_counted() -> None:
    """The plan counted on reflinks, say, and is carried out where there are none."""
    document = saved(planned("version: 1\n", {"wide": STORED["wide"]}, ADOPTING))
    document = with_output(document, 0, transfer=Transfer.LINK)
    plan = read(document, STORED, replace(ADOPTING, linkable=links_on("1", ["/wide"])))
    assert plan.steps[0].transfer is Transfer.COPY
    assert (plan.costs.bytes_copied, plan.costs.bytes_linkable) == (24, 0)  # of 100 bytes: less than half


def test_copies_stay_copies_where_links_are_possible() -> None:
    document = saved(planned("version: 1\n", {"wide": STORED["wide"]}, ADOPTING))
    (step,) = read(document, STORED, ADOPTING).steps
    assert step.transfer is Transfer.COPY


def test_each_file_is_looked_at_once() -> None:
    leaves = by_key(
        stored_leaf("a", "/wide", 0), stored_leaf("b", "/wide", 24), stored_leaf("c", "/wide", 48)
    )
    asked: list[str] = []

    def data_file(path: str) -> DataFile:
        asked.append(path)
        return FILES[path]

    plan = planned("version: 1\n", leaves, ADOPTING)
    assert [step.transfer for step in plan.steps] == [Transfer.LINK] * 3
    again = read(saved(plan), leaves, replace(ADOPTING, data_file=data_file))
    assert decided(again) == decided(plan)
    assert asked == ["/wide"]


def test_outputs_that_are_cut_alike_are_measured_once() -> None:
    """Values of the same functions over arrays of the same shape share one cut."""
    steps = {step.leaf.key.text: step for step in read(saved(planned(RECIPE, LEAVES)), LEAVES).steps}
    assert steps["w"].cut is steps["v"].cut
    assert steps["w"].cut is not steps["k"].cut


def test_params_and_metadata_keep_their_types() -> None:
    plan = planned(RECIPE, LEAVES)
    params = (
        ParamValue("n", 2**70, Origin.SET),
        ParamValue("names", ("q", 1, 0.5), Origin.CONFIG, "a.b", "config.json"),
    )
    plan = replace(plan, params=params, metadata={"loss": [1, None, "x"]}, warnings=("careful",))
    again = read(saved(plan), LEAVES)
    assert again.params == params
    assert again.metadata == {"loss": [1, None, "x"]}
    assert again.warnings == ("careful",)


def test_a_rule_points_at_its_value_again() -> None:
    plan = planned(RECIPE, LEAVES)
    for step, again in zip(plan.steps, read(saved(plan), LEAVES).steps, strict=True):
        assert (step.rule and step.rule.value) == (again.rule and again.rule.value)


def test_the_destination_says_what_can_restore_the_result() -> None:
    asked: list[list[str]] = []

    def restorable_by(leaves: Any) -> Mapping[str, str]:
        asked.append([one.key.text for one in leaves])
        return {"orbax-checkpoint": "0.6"}

    document = saved(planned("version: 1\n", {"wide": STORED["wide"]}))
    again = read(document, STORED, replace(COMPUTED, restorable_by=restorable_by))
    assert again.restorable_by == {"orbax-checkpoint": "0.6"}
    assert asked == [["wide"]]


def test_a_call_of_a_hook_gets_the_file_that_is_loaded_now(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("def twice(x):\n    return 2 * x\n")
    hooks, later = HookFile(tmp_path / "hooks.py"), HookFile(tmp_path / "hooks.py")
    (step,) = planned("version: 1\n", {"w": LEAVES["w"]}).steps
    array = Array(step.value, step.value.spec.dtype)
    step = replace(step, value=hooks.call("twice", [array]).node)
    document = saved(Plan("recipe.yaml", "", (), (step,), (), (), Costs(0, 0, 0, 0, 0, 0)), hooks)
    document = msgspec.structs.replace(document, inputs=saved(planned("version: 1\n", LEAVES)).inputs)
    again = read(document, LEAVES, hooks=later)
    (step,) = again.steps
    assert isinstance(step.value, Apply)
    assert isinstance(step.value.function, HookCall)
    assert step.value.function.hooks is later
    assert (step.fate, again.hooks_sha256) == (Fate.TRANSFORMED, later.sha256)
    assert refusal(document, LEAVES).startswith("outputs[0].value: not a function: `hook`")


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (0, {"rule": 5}, "outputs[0].rule: there are 4 rules, none has the number 5"),
        (0, {"effects": ((5, True, False),)}, "outputs[0].rule: there are 4 rules, none has the number 5"),
        (2, {"key": ("m", "1")}, "outputs[2].key: `m/1` occurs twice"),
        (2, {"shape": (2, 3)}, "outputs[2].shape: the value has the shape [3, 2], not [2, 3]"),
        (
            2,
            {"chunks": (2, 2), "block": (3, 2)},
            "outputs[2].block: [3, 2] is not made of whole chunks of [2, 2]",
        ),
        (2, {"chunks": (3, 3)}, "outputs[2].chunks: [3, 3] is larger than [3, 2], the shape"),
        (4, {"chunks": (1,)}, "outputs[4].chunks: only a computed output has it"),
        (4, {"pieces": ((1,),)}, "outputs[4].pieces: only a computed output has it"),
        (2, {"pieces": ((1, 1),)}, "outputs[2].pieces: the value has 0 parts that are computed in streams"),
        (4, {"kind": LeafKind.ARRAY}, "outputs[4].kind: the value is no array, which is not array"),
        (5, {"prng_impl": None}, "outputs[5].prng_impl: prng_key needs it"),
        (6, {"empty": None}, "outputs[6].empty: empty needs it"),
        (
            0,
            {"transfer": Transfer.COPY, "chunks": None, "block": None},
            "outputs[0].transfer: no stored bytes",
        ),
    ],
)
def test_a_contradiction_is_told_by_its_place(number: int, fields: dict[str, Any], says: str) -> None:
    document = with_output(saved(planned(RECIPE, LEAVES)), number, **fields)
    assert refusal(document, LEAVES).startswith(says)


def test_what_is_read_for_a_maximum_is_as_it_was_saved() -> None:
    document = saved(planned("version: 1\nrules: [{match: w, value: x + max(x)}]", {"w": LEAVES["w"]}))
    [step] = read(document, LEAVES).steps
    assert step.cut is not None
    assert step.cut.pieces == ((2, 3),)
    for pieces, says in [
        ((), "the value has 1 parts that are computed in streams"),
        (((2, 3), (2, 3)), "the value has 1 parts that are computed in streams"),
        (((2, 2),), "[2, 2] is not made of whole blocks of [2, 3]"),
        (((2,),), "[2] is not made of whole blocks of [2, 3]"),
    ]:
        wrong = with_output(document, 0, pieces=pieces)
        assert refusal(wrong, LEAVES) == f"outputs[0].pieces: {says}"


def test_chunks_have_to_be_those_that_the_format_can_write_apart() -> None:
    def even(leaf: Leaf, wanted: Shape) -> Shape:
        return tuple(n + n % 2 for n in wanted)

    document = saved(planned("version: 1\n", {"w": LEAVES["w"]}))
    destination = replace(COMPUTED, encoder=MemoryEncoder(cuts=even))
    assert refusal(document, LEAVES, destination) == (
        "outputs[0].chunks: memory cannot write chunks of [2, 3] one by one"
    )


def test_all_that_the_destination_cannot_hold_is_told_together() -> None:
    document = saved(planned("version: 1\n", LEAVES))
    encoder = MemoryEncoder(lambda leaves: [f"no {one.key.text}" for one in leaves if one.string])
    with pytest.raises(PlanError) as caught:
        read(document, LEAVES, replace(COMPUTED, encoder=encoder, holds_empty=False))
    assert [problem.message for problem in caught.value.problems] == [
        "no s",
        "`z` is an empty node, and memory holds none",
    ]


def test_the_largest_task_has_to_fit_into_the_memory() -> None:
    leaves = by_key(leaf("small", "int8[2]"), leaf("large", "int8[1048576]"))
    document = saved(planned("version: 1\n", leaves))
    needed = max(step.cut.working_set for step in read(document, leaves).steps if step.cut)
    read(document, leaves, memory=2 * needed)  # half of it is for computing
    with pytest.raises(PlanError, match=r"^`large`: one of its tasks needs ") as caught:
        read(document, leaves, memory=2 * needed - 2)
    (problem,) = caught.value.problems
    assert problem.hint is not None
    assert problem.hint.startswith('Give it more: `memory="')


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ("{", "metadata: not JSON"),
        ("[1]", "metadata: not a JSON object"),
        ("[" * 99_999, "metadata: not JSON"),
    ],
)
def test_metadata_is_a_json_object(metadata: str, says: str) -> None:
    document = msgspec.structs.replace(saved(planned("version: 1\n", LEAVES)), metadata=metadata)
    assert refusal(document, LEAVES).startswith(says)
    assert json.loads(saved(planned("version: 1\n", LEAVES)).metadata) == {"n": 1}
