"""Plans that are saved and carried out later: what was planned, or a refusal that says what has changed."""

import copy
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery import api, checking, destinations, preparing, saved_plans
from ckpt_surgery.core.errors import DestinationError, PlanError, SurgeryError, UsageError
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.engine.tasks import make_tasks, outputs_of
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.planner import document as plan_document
from ckpt_surgery.planner.cutting import WRITE_BUFFER
from ckpt_surgery.planner.document_reading import restored
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Plan, Transfer
from ckpt_surgery.planner.plan_json import plan_json
from ckpt_surgery.requests import requested
from ckpt_surgery.storage.listing import data_file
from tests.support import checkpoints
from tests.support.checkpoints import LAYOUTS, random
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.directories import copy_of, state_of
from tests.support.memory import MemoryEncoder
from tests.support.models import ARRAYS
from tests.support.plans import COMPUTED, links_on, sealed
from tests.support.reading import values
from tests.support.slow import some

Checkpoint = Callable[[str], Path]
MIB = 1 << 20

RENAME = """version: 1
rules:
  - match: '(?P<all>.*)'
    to: 'model/${all}'
"""
COPY = "version: 1\n"
MIXED = """version: 1
params: {n: 3, ratio: 0.5, name: 'a', some: [1, 2]}
rules:
  - {match: params/w, optional: true, to: wide, value: 'cast(x, "bfloat16")'}
  - {match: big, optional: true, value: 'concat([x.T[3:9], x.T[3:9] * 2], 0)[:, ::-1]'}
  - {match: 'layers/(.*)', optional: true, to: 'stack/\\1'}
  - {match: count, optional: true, drop: true}
  - {add: table, value: 'init("lecun_normal", (64, 8), "float32")'}
  - {add: steps, value: 'arange(0, 1, 0.125, dtype="float32")'}
"""


def opened_again(path: Path, dst: Path, **options: Any) -> Prepared:
    request = saved_plans.saved_request(requested(path, (), dst, options))
    assert request is not None
    return saved_plans.opened_again(request)


def decided(plan: Plan) -> list[object]:
    """All that carrying a plan out goes by, but for the functions themselves."""
    steps = [(step.leaf, step.cut, step.rule, step.fate, step.sources) for step in plan.steps]
    return [
        steps,
        outputs_of(plan),
        list(make_tasks(plan)),
        json.dumps(plan.metadata),
        plan.inputs,
        plan.dropped,
        plan_json(plan),
    ]


def edited(path: Path, change: Callable[[dict[str, Any]], None], forged: bool = True) -> Path:
    """Change a plan's file; if `forged`, with the digest that goes with the change."""
    document = json.loads(path.read_text())
    change(document["saved"])
    path.write_text(json.dumps(sealed(document) if forged else document))
    return path


# --- the plan, and nothing else -------------------------------------------------------------------


@pytest.mark.parametrize("layout", some(LAYOUTS))
@pytest.mark.parametrize("text", [RENAME, MIXED], ids=["renamed", "mixed"])
def test_it_is_the_plan(
    layout: str, text: str, checkpoint: Checkpoint, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    """Every kind of leaf, empty nodes, strings, PRNG keys, shardings, custom metadata, from every layout."""
    plan = api.plan(recipe(text), checkpoint(layout), out=tmp_path / "plan.json")
    again = opened_again(tmp_path / "plan.json", tmp_path / "out").plan
    assert decided(again) == decided(plan)


@pytest.mark.parametrize("layout", ["ocdbt-zarr3", "plain-zarr2"])
def test_what_it_writes_is_what_the_recipe_writes(
    layout: str, checkpoint: Checkpoint, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    path = recipe(MIXED)
    api.plan(path, checkpoint(layout), out=tmp_path / "plan.json")
    api.apply(path, checkpoint(layout), dst=tmp_path / "wanted")
    api.apply(tmp_path / "plan.json", dst=tmp_path / "found")
    found, wanted = (formats.open_source(str(tmp_path / name)) for name in ("found", "wanted"))
    assert_same(values(found), values(wanted))
    assert found.metadata == wanted.metadata
    described = [[replace(leaf, manifest=None) for leaf in s.leaves().values()] for s in (found, wanted)]
    assert described[0] == described[1]


def test_neither_recipe_nor_planner_has_a_say(
    model: Path, recipe: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe("version: 1\nrules:\n  - {match: a/kernel, value: x * 2}\n")
    api.plan(path, model, dst=tmp_path / "planned.npz", out=tmp_path / "plan.json")
    path.unlink()
    monkeypatch.setattr(preparing, "make_plan", None)
    monkeypatch.setattr(checking, "load_recipe", None)
    result = api.apply(tmp_path / "plan.json")
    assert result.destination == str(tmp_path / "planned.npz")
    np.testing.assert_array_equal(np.load(tmp_path / "planned.npz")["a/kernel"], ARRAYS["a/kernel"] * 2)


def test_several_sources_and_a_target(checkpoint: Checkpoint, model: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("""version: 1
sources: [base, other]
target: {prefer: target}
rules:
  - {add: params/b, value: 'cast(other["a/bias"], "bfloat16")'}
  - {match: 'params/w', value: 'x + 1'}
""")
    source = checkpoint("ocdbt-zarr3")
    plan = api.plan(tmp_path / "recipe.yaml", source, model, target=source, out=tmp_path / "plan.json")
    assert [i.name for i in plan.inputs] == ["base", "other", "target"]
    assert {source for step in plan.steps for source, _ in step.sources} == {"base", "other", "target"}
    assert decided(opened_again(tmp_path / "plan.json", tmp_path / "out").plan) == decided(plan)


def test_relative_paths_hold_elsewhere(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(model.parent)
    api.plan(None, model.name, dst="out.safetensors", out=tmp_path / "plan.json")
    monkeypatch.chdir(elsewhere)
    api.apply(tmp_path / "plan.json", dst="other.safetensors")
    assert_same(load_file(elsewhere / "other.safetensors"), ARRAYS)
    api.apply(tmp_path / "plan.json")
    assert_same(load_file(model.parent / "out.safetensors"), ARRAYS)


def test_names_that_are_no_text(model: Path, tmp_path: Path) -> None:
    """Python's names for files whose own are not UTF-8 cannot be written as UTF-8 either."""
    directory = model.parent.rename(tmp_path / os.fsdecode(b"\xff"))
    api.plan(None, directory, format="npz", out=tmp_path / "plan.json")
    result = api.apply(tmp_path / "plan.json", dst=tmp_path / "out.npz")
    assert result.plan.inputs[0].path == str(directory)
    assert_same(values_of(tmp_path / "out.npz"), ARRAYS)


def test_numbers_that_are_no_json(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "old", {"w": random((2, 3))}, metadata={"loss": float("nan")})
    api.plan(None, tmp_path / "old", out=tmp_path / "plan.json")
    json.loads((tmp_path / "plan.json").read_text(), parse_constant=pytest.fail)
    api.apply(tmp_path / "plan.json", dst=tmp_path / "new")
    assert np.isnan(ckpt_surgery.inspect(tmp_path / "new").metadata["loss"])


# --- memory, links and destinations ---------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    save_file({"w": random((2048, 2048))}, tmp_path / "large.safetensors")
    return tmp_path / "large.safetensors"


TRANSPOSED = "version: 1\nrules: [{match: w, value: 'x.T * 2'}]\n"


def test_another_memory_keeps_the_chunks(large: Path, recipe: Callable[[str], Path], tmp_path: Path) -> None:
    path = recipe(TRANSPOSED)
    plan = api.plan(path, large, memory=8 * MIB, out=tmp_path / "plan.json")
    assert api.plan(path, large, memory=512 * MIB).steps[0].cut != plan.steps[0].cut
    again = opened_again(tmp_path / "plan.json", tmp_path / "out", memory=512 * MIB, workers=7)
    assert (again.memory, again.workers) == (512 * MIB, 7)
    assert [step.cut for step in again.plan.steps] == [step.cut for step in plan.steps]
    api.apply(tmp_path / "plan.json", dst=tmp_path / "out", memory=512 * MIB)
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "out")
    np.testing.assert_array_equal(restored["w"], random((2048, 2048)).T * 2)


def test_a_memory_below_the_working_set_is_refused(
    large: Path, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    plan = api.plan(recipe(TRANSPOSED), large, memory=512 * MIB, out=tmp_path / "plan.json")
    assert plan.steps[0].cut is not None
    needed = plan.steps[0].cut.working_set
    enough = 2 * needed
    assert enough < needed + WRITE_BUFFER
    assert enough % MIB == 0
    with pytest.raises(PlanError) as caught:
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out", memory=4 * MIB)
    assert str(caught.value) == (
        f"`w`: one of its tasks needs {bytes_text(needed)}; the budget of 4.00 MiB leaves 2.00 MiB "
        "for computing\n"
        f'  Give it more: `memory="{enough // MIB}MiB"`; or make the plan again with this '
        "budget, which cuts finer."
    )
    assert opened_again(tmp_path / "plan.json", tmp_path / "out", memory=enough).memory == enough
    with pytest.raises(PlanError, match="one of its tasks needs"):
        opened_again(tmp_path / "plan.json", tmp_path / "out", memory=enough - 1)


def test_what_was_to_be_linked_may_be_copied(
    checkpoint: Checkpoint, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    source, path = checkpoint("standard"), recipe(RENAME)
    copied = api.plan(path, source, link_mode="copy", out=tmp_path / "copied.json").costs
    linked = api.plan(path, source, out=tmp_path / "plan.json").costs
    assert (linked.bytes_linked, linked.bytes_copied) == (linked.bytes_out, 0)
    assert api.apply(tmp_path / "plan.json", dst=tmp_path / "a", link_mode="copy").plan.costs == copied
    assert api.apply(tmp_path / "plan.json", dst=tmp_path / "b").plan.costs == linked
    with pytest.raises(UsageError, match=r"copied\.json was made to copy everything") as caught:
        api.apply(tmp_path / "copied.json", dst=tmp_path / "c", link_mode="hardlink")
    assert '`link_mode="hardlink"`' in str(caught.value)


def test_what_was_to_be_linked_is_copied_to_another_file_system(
    checkpoint: Checkpoint, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    plan = api.plan(recipe(RENAME), checkpoint("standard"), out=tmp_path / "plan.json")
    saved = plan_document.read_plan_file(tmp_path / "plan.json")
    assert saved is not None
    source = formats.open_source(str(checkpoint("standard")))
    device = os.stat(checkpoint("standard")).st_dev
    here, elsewhere = f"device:{device}", f"device:{device + 1}"
    for domain, transfer in ((here, Transfer.LINK), (elsewhere, Transfer.COPY), (None, Transfer.COPY)):
        destination = replace(
            COMPUTED,
            encoder=MemoryEncoder(adopting=lambda leaf, manifest: True),
            data_file=data_file,
            linkable=links_on(domain),
        )
        listings = {"source": source.leaves()}
        again = restored("plan.json", saved, listings, destination, None, saved.memory, saved.workers)
        stored = [step for step in again.steps if step.stored is not None]
        in_files = [s for s in stored if any(chunk.file for chunk in s.stored.chunks.values())]
        assert {step.transfer for step in in_files} == {transfer}
        assert again.costs.bytes_dead == (plan.costs.bytes_dead if transfer is Transfer.LINK else 0)


def test_the_destination_s_name_has_to_go_with_the_format(model: Path, tmp_path: Path) -> None:
    api.plan(None, model, out=tmp_path / "plan.json")
    with pytest.raises(UsageError) as caught:
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out.safetensors")
    assert str(caught.value) == (
        f"{tmp_path}/plan.json was made for orbax, but the name out.safetensors says safetensors\n"
        "  Choose another name, or make the plan again with this destination."
    )
    api.plan(None, model, format="orbax", dst=tmp_path / "odd.npz", out=tmp_path / "plan.json")
    result = api.apply(tmp_path / "plan.json")
    assert result.plan.warnings[-1] == f"{tmp_path}/odd.npz will be orbax, though its name says npz"


def test_a_plan_without_a_destination_needs_one(model: Path, tmp_path: Path) -> None:
    api.plan(None, model, out=tmp_path / "plan.json")
    with pytest.raises(UsageError, match="no destination is given"):
        api.apply(tmp_path / "plan.json")


def test_formats_shards_steps_and_versions_of_zarr_are_kept(
    model: Path, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    api.plan(None, model, format="safetensors", shard_size=4800, out=tmp_path / "plan.json")
    api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model*"))) == 3
    path = recipe("version: 1\noutput: {zarr: 2, structure_file: true}\n")
    made = api.plan(path, model, dst_step=7, dst_item="model", out=tmp_path / "plan.json")
    done = api.apply(tmp_path / "plan.json", dst=tmp_path / "steps")
    assert done.plan.restorable_by == made.restorable_by == {"orbax-checkpoint": "0.4.8"}
    assert (tmp_path / "steps/7/model/checkpoint").exists()
    inspected = ckpt_surgery.inspect(tmp_path / "steps")
    assert (inspected.step, inspected.item) == (7, "model")
    assert json.loads((tmp_path / "steps/7/model/_METADATA").read_text())["use_zarr3"] is False
    for option in ({"shard_size": 1}, {"src_format": "orbax"}, {"step": 0}, {"set": ["a=1"]}):
        with pytest.raises(UsageError, match="is a saved plan, which has its sources and options") as caught:
            api.apply(tmp_path / "plan.json", dst=tmp_path / "other", **option)
        assert caught.value.problems[0].hint == f"Leave out `{next(iter(option))}=…`, or make the plan again."
    with pytest.raises(UsageError, match="Leave out the sources and `item=…`, or make"):
        api.apply(tmp_path / "plan.json", model, dst=tmp_path / "other", item="x")


# --- what has changed -----------------------------------------------------------------------------


def touched(file: Path) -> None:
    stat = file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def rewritten(file: Path) -> None:
    """Other bytes of the same number, at the old time."""
    stat, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda file: np.save(file, random((51,))), "size 328 → 332"),
    (rewritten, "content"),
    (Path.unlink, "missing"),
    (lambda file: shutil.copy(file, file.with_name("more.npy")), "new"),
]


@pytest.mark.parametrize(("change", "what"), CHANGES, ids=["longer", "rewritten", "removed", "added"])
def test_another_source_is_refused_with_what_has_changed(
    change: Callable[[Path], object], what: str, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        np.save(source / f"{name}.npy", random((50,)))
    api.plan(recipe(RENAME), source, src_format="npy", out=tmp_path / "plan.json")
    change(source / "b.npy")
    name = "more.npy" if what == "new" else "b.npy"
    with pytest.raises(PlanError) as caught:
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert caught.value.problems[0].message == f"source changed since the plan was made: `{name}` ({what})"
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layout", ["standard", "plain-zarr2"])
def test_a_source_that_was_touched_is_the_same(
    layout: str, checkpoint: Checkpoint, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    source = copy_of(checkpoint(layout), tmp_path / "source")
    api.plan(recipe(RENAME), source, out=tmp_path / "plan.json")
    for file in source.rglob("*"):
        touched(file)
    api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    api.apply(recipe(RENAME), source, dst=tmp_path / "wanted")
    assert_same(values_of(tmp_path / "out"), values_of(tmp_path / "wanted"))


def test_a_source_that_is_gone_is_told(model: Path, tmp_path: Path) -> None:
    api.plan(None, model, out=tmp_path / "plan.json")
    model.unlink()
    with pytest.raises(UsageError, match=r"model\.safetensors does not exist"):
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out")


@pytest.mark.parametrize("layout", ["model", "ocdbt-zarr3"])
def test_a_source_may_be_mounted_elsewhere(
    layout: str, checkpoint: Checkpoint, model: Path, tmp_path: Path
) -> None:
    old = model.parent if layout == "model" else copy_of(checkpoint(layout), tmp_path / "here")
    api.plan(None, old, out=tmp_path / "plan.json")
    old.rename(tmp_path / "there")

    def move(saved: dict[str, Any]) -> None:
        saved["inputs"][0]["path"] = str(tmp_path / "there")

    edited(tmp_path / "plan.json", move, forged=False)
    api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert_same(values(formats.open_source(str(tmp_path / "out"))), values_of(tmp_path / "there"))


def values_of(path: Path) -> dict[str, Any]:
    return values(formats.open_source(str(path)))


def test_a_step_that_was_the_latest_is_still_meant(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoints.save_pytree(tmp_path / "run" / str(step), {"w": np.full(3, step)})
        if step == 1:
            plan = api.plan(None, tmp_path / "run", out=tmp_path / "plan.json")
            assert (plan.inputs[0].step, plan.inputs[0].item) == (1, None)
    api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    np.testing.assert_array_equal(values_of(tmp_path / "out")["w"], [1, 1, 1])


def test_another_version_of_the_tool_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.plan(None, model, out=tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["saved"]["version"] == ckpt_surgery.__version__
    monkeypatch.setattr(plan_document, "VERSION", "99.0")
    with pytest.raises(UsageError) as caught:
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert str(caught.value) == (
        f"{tmp_path}/plan.json was saved by version {ckpt_surgery.__version__} of the tool; this is 99.0\n"
        "  Make the plan again with this version, or carry it out with that one."
    )


# --- what no `plan --out` wrote -------------------------------------------------------------------

KERNEL, TURNED = "outputs.0", "outputs.3"
TWICE_TURNED = """version: 1
params: {factor: 2.0}
rules:
  - {match: 'a/(.*)', to: 'c/\\1'}
  - {add: turned, value: 'source["a/kernel"].T + 1'}
  - {match: b, drop: true}
"""
DELETE = object()


def put(document: Any, place: str, value: object) -> None:
    *containers, last = (int(part) if part.isdecimal() else part for part in place.split("."))
    for part in containers:
        document = document[part]
    if value is DELETE:
        del document[last]
    else:
        document[last] = value


WRONG: list[tuple[str, object, str]] = [
    ("memory", -1, "saved.memory: Expected `int` >= 1"),
    ("memory", 0, "saved.memory: Expected `int` >= 1"),
    ("memory", 2**63, "saved.memory: "),
    ("memory", 10**400, "saved.memory: "),
    ("memory", None, "saved.memory: Expected `int`, got `null`"),
    ("memory", float("nan"), "saved.memory: Expected `int`, got `float`"),
    ("memory", "2GiB", "saved.memory: Expected `int`, got `str`"),
    ("workers", -3, "saved.workers: Expected `int` >= 1"),
    ("workers", 2.5, "saved.workers: Expected `int`, got `float`"),
    ("workers", 10**9, "saved.workers: Expected `int` <= 4096"),
    ("workers", True, "saved.workers: Expected `int`, got `bool`"),
    ("overwrite", True, "saved: Object contains unknown field `overwrite`"),
    ("evil", 1, "saved: Object contains unknown field `evil`"),
    ("version", 3, "saved.version: Expected `str | null`, got `int`"),
    ("version", None, "was saved by version unknown of the tool"),
    ("inputs", [], "saved.inputs: Expected `array` of length >= 1"),
    ("inputs", DELETE, "saved: Object missing required field `inputs`"),
    ("inputs.0.files", {}, "source changed since the plan was made: `model.safetensors` (new)"),
    ("inputs.0.files", DELETE, "saved.inputs[0]: Object missing required field `files`"),
    ("inputs.0.files", {"x": {"size": -1}}, "saved.inputs[0].files[...].size: Expected `int` >= 0"),
    ("inputs.0.files", {"x": {"size": 1, "sample": 2**32}}, "sample: Expected `int` <= 4294967295"),
    ("inputs.0.path", "model", "saved.inputs[0].path: 'model' is not an absolute path"),
    ("inputs.0.path", "", "saved.inputs[0].path: '' is not an absolute path"),
    ("inputs.0.path", "/a\0b", "saved.inputs[0].path: '/a\\x00b' is not an absolute path"),
    ("inputs.0.path", "/nowhere/x", "/nowhere/x does not exist"),
    ("inputs.0.step", -1, "saved.inputs[0].step: Expected `int` >= 0"),
    ("inputs.0.format", "pickle", "Not a format: `pickle`"),
    ("inputs.0.step", 3, "no steps or items"),
    ("inputs.0.name", "sauce", "outputs[0].value: not a source: `source`; did you mean `sauce`?"),
    ("destination.path", "out", "saved.destination.path: 'out' is not an absolute path"),
    ("destination.path", "", "saved.destination.path: '' is not an absolute path"),
    ("destination.path", "/a\0b", "saved.destination.path: '/a\\x00b' is not an absolute path"),
    ("destination.path", ["/a"], "saved.destination.path: Expected `str | null`, got `array`"),
    ("destination.overwrite", True, "saved.destination: Object contains unknown field `overwrite`"),
    ("destination.step", -1, "saved.destination.step: Expected `int` >= 0"),
    ("destination.step", 10**18, "saved.destination.step: Expected `int` <= 999999999999999999"),
    ("destination.item", "../x", "`../x` cannot be the name of an item"),
    ("destination.item", "", "`` cannot be the name of an item"),
    ("recipe.sha256", "f" * 63, "saved.recipe.sha256: Expected `str` matching regex"),
    ("recipe.hooks", {"file": "hooks.py", "sha256": "0" * 64}, "saved.recipe.hooks.file: 'hooks.py' is not"),
    ("rules.0.line", 2**31, "saved.rules[0].line: Expected `int` <= "),
    ("destination.format", "pickle", "Not a format: `pickle`"),
    ("destination.format", "torch", "The format `torch` can be read but not written"),
    ("destination.zarr", 4, "saved.destination.zarr: Invalid enum value 4"),
    ("destination.link_mode", "symlink", "saved.destination.link_mode: Invalid enum value 'symlink'"),
    ("destination.shard_size", 0, "saved.destination.shard_size: Expected `int` >= 1"),
    ("destination.shard_size", 100, "orbax checkpoints have no shards"),
    ("metadata", "{", "saved.metadata: not JSON"),
    ("metadata", "[]", "saved.metadata: not a JSON object"),
    ("metadata", {}, "saved.metadata: Expected `str`, got `object`"),
    ("params.0.value", None, "saved.params[0].value: neither text nor a number nor a list of those"),
    ("params.0.origin", "luck", "saved.params[0].origin: Invalid enum value 'luck'"),
    ("rules.0.line", 0, "saved.rules[0].line: Expected `int` >= 1"),
    ("shared", [["transpose", {}]], "saved.shared[0]: `transpose` does not take 0 arrays"),
    ("warnings", [3], "saved.warnings[0]: Expected `str`, got `int`"),
    ("dropped.0.key", "bb", "saved.dropped[0].key: `source` has no leaf `bb`"),
    ("dropped.0.source", "s", "saved.dropped[0].source: not a source: `s`"),
    ("dropped.0.rule", 9, "saved.dropped[0].rule: there are 3 rules, none has the number 9"),
    ("outputs.0.rule", 3, "saved.outputs[0].rule: there are 3 rules, none has the number 3"),
    ("outputs.0.rule", -1, "saved.outputs[0].rule: Expected `int` >= 0"),
    ("outputs.0.key", [], "saved.outputs[0].key: Expected `array` of length >= 1"),
    ("outputs.1.key", ["c", "kernel"], "saved.outputs[1].key: `c/kernel` occurs twice"),
    ("outputs.1.key", ["c", "kernel", "x"], "`c/kernel` would be both a leaf and the container of"),
    (
        "outputs.0.list_indices",
        [0],
        "saved.outputs[0].list_indices: component 0 of the key is not a list index",
    ),
    (
        "outputs.0.list_indices",
        [7],
        "saved.outputs[0].list_indices: component 7 of the key is not a list index",
    ),
    ("outputs.0.kind", "tensor", "saved.outputs[0].kind: Invalid enum value 'tensor'"),
    ("outputs.0.kind", "empty", "saved.outputs[0].kind: the value is an array, which is not empty"),
    ("outputs.0.kind", "prng_key", "saved.outputs[0].prng_impl: prng_key needs it"),
    ("outputs.0.string", "hello", "saved.outputs[0].string: array has none"),
    ("outputs.0.shape", [40, 31], "saved.outputs[0].shape: the value has the shape [40, 30], not [40, 31]"),
    ("outputs.0.shape", [-1], "saved.outputs[0].shape[0]: Expected `int` >= 0"),
    ("outputs.0.shape", None, "saved.outputs[0].shape: the value has the shape [40, 30], not None"),
    ("outputs.0.dtype", "int8", "saved.outputs[0].dtype: the value is float32, not int8"),
    ("outputs.0.dtype", "nonsense", "saved.outputs[0].dtype: the value is float32, not nonsense"),
    ("outputs.0.transfer", "teleport", "saved.outputs[0].transfer: Invalid enum value 'teleport'"),
    ("outputs.0.transfer", "compute", "saved.outputs[0].chunks: one length for each of 2 axes is needed"),
    ("outputs.0.chunks", [40, 30], "saved.outputs[0].chunks: only a computed output has it"),
    ("outputs.2.transfer", "copy", "saved.outputs[2].chunks: only a computed output has it"),
    ("outputs.2.chunks", [30], "saved.outputs[2].chunks: one length for each of 2 axes is needed"),
    ("outputs.2.chunks", [30, 41], "saved.outputs[2].chunks: [30, 41] is larger than [30, 40], the shape"),
    ("outputs.2.chunks", [30, 0], "saved.outputs[2].chunks[1]: Expected `int` >= 1"),
    ("outputs.2.block", [30, 39], "saved.outputs[2].block: [30, 39] is not made of whole chunks of [30, 40]"),
    ("outputs.2.block", None, "saved.outputs[2].block: one length for each of 2 axes is needed"),
    ("outputs.2.value", 0, "saved.outputs[2].value: not a shared value: 0"),
    ("outputs.2.value.0", "binery", "saved.outputs[2].value: not a function: `binery`"),
    ("outputs.2.value.1.op", "<", "saved.outputs[2].dtype: the value is bool, not float32"),
    (
        "outputs.2.value.1.right",
        "1",
        "saved.outputs[2].value: `right` of `binary` has to be a number or None",
    ),
    (
        "outputs.2.value.1.right",
        [1],
        "saved.outputs[2].value: `right` of `binary` has to be a number or None",
    ),
    ("outputs.2.value.2.0", "leaf", "saved.outputs[2].value: not a function: `leaf`"),
]


@pytest.fixture
def small(model: Path, recipe: Callable[[str], Path], tmp_path: Path) -> Path:
    """A saved plan of a copy, a copy and a value that is computed."""
    api.plan(recipe(TWICE_TURNED), model, link_mode="copy", out=tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.mark.parametrize(("place", "value", "says"), WRONG, ids=[f"{row[0]}: {row[2][:40]}" for row in WRONG])
def test_every_field_is_checked(place: str, value: object, says: str, small: Path, tmp_path: Path) -> None:
    edited(small, lambda saved: put(saved, place, value))
    with pytest.raises(SurgeryError) as caught:
        api.apply(small, dst=tmp_path / "out")
    assert says in str(caught.value)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("key", [["..", "x"], ["", "x"], [".", "x"], ["a/../../x"], ["/etc", "x"], ["a\0b"]])
def test_keys_that_lead_out_of_the_destination_are_refused(
    key: list[str], model: Path, tmp_path: Path
) -> None:
    """Each component of a key is a directory of a zarr group."""
    api.plan(None, model, format="zarr", out=tmp_path / "plan.json")
    edited(tmp_path / "plan.json", lambda saved: put(saved, "outputs.0.key", key))
    before = state_of(tmp_path)
    with pytest.raises(SurgeryError):
        api.apply(tmp_path / "plan.json", dst=tmp_path / "in.zarr")
    assert state_of(tmp_path) == before


def test_a_plan_brings_no_permission_to_replace(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    api.plan(None, model, dst=out, out=tmp_path / "plan.json")
    api.apply(tmp_path / "plan.json")
    api.plan(None, model, dst=out, overwrite=True, out=tmp_path / "again.json")
    before = state_of(tmp_path)
    for name in ("plan.json", "again.json"):
        with pytest.raises(DestinationError, match=r"out\.npz: exists already"):
            api.apply(tmp_path / name)
    assert state_of(tmp_path) == before
    api.apply(tmp_path / "again.json", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("model/model.safetensors", "the destination is the source itself"),
        ("model", "it holds the source"),
        ("model/model.safetensors/x", "the destination lies inside the source"),
        ("plan.json", "which this run reads|exists already"),
        (".", "it holds the source"),
    ],
)
def test_a_destination_that_a_plan_names_is_checked_as_any_other(
    path: str, says: str, overwrite: bool, model: Path, tmp_path: Path
) -> None:
    api.plan(None, model, dst=tmp_path / "out", out=tmp_path / "plan.json")
    named = os.path.normpath(tmp_path / path)
    edited(tmp_path / "plan.json", lambda saved: put(saved, "destination.path", named))
    before = state_of(tmp_path)
    with pytest.raises(SurgeryError, match=says) as caught:
        api.apply(tmp_path / "plan.json", overwrite=overwrite)
    assert caught.value.exit_code in (2, 4)
    assert state_of(tmp_path) == before


def test_the_summary_says_where_a_plan_has_written(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    api.plan(None, model, dst=out, out=tmp_path / "plan.json")
    done = run("apply", tmp_path / "plan.json", "--json", tmp_path / "done.json")
    assert done.exit_code == 0, done.stderr
    summary = done.stdout[done.stdout.index("\ndone ") :]
    assert f" · {out}\n" in re.sub(r" ·\n +", " · ", summary)
    assert json.loads((tmp_path / "done.json").read_text())["destination"] == str(out)


def test_what_a_plan_says_cannot_move_the_cursor(
    model: Path, recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    api.plan(recipe(TWICE_TURNED), model, out=tmp_path / "plan.json")
    evil = "evil\x1b[2J\r\u202e"

    def paint(saved: dict[str, Any]) -> None:
        saved["recipe"]["path"] = saved["params"][0]["name"] = saved["dropped"][0]["why"] = evil
        saved["params"][0]["value"] = saved["params"][0]["note"] = saved["rules"][0]["path"] = evil
        saved["warnings"], saved["outputs"][0]["key"] = [evil], [evil]

    edited(tmp_path / "plan.json", paint)
    done = run("apply", tmp_path / "plan.json", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "evil\\x1b" in done.stdout
    assert not {"\x1b", "\r", "\u202e"} & set(done.output)


def test_stored_bytes_that_are_none_are_refused(small: Path, tmp_path: Path) -> None:
    def claim(saved: dict[str, Any]) -> None:
        saved["outputs"][2] |= {"transfer": "link", "chunks": None, "block": None}

    edited(small, claim)
    with pytest.raises(UsageError) as caught:
        api.apply(small, dst=tmp_path / "out")
    assert str(caught.value) == (
        f"{small}: not a plan that was saved: saved.outputs[2].transfer: "
        "no stored bytes can become this output as they are (link)\n  Make the plan again."
    )


def test_empty_nodes_that_the_destination_has_no_place_for_are_refused(tmp_path: Path) -> None:
    """A plan leaves them out; one that has them was made for another format."""
    tree = {"w": np.ones(3), "none": None}
    (tmp_path / "x.msgpack").write_bytes(flax.serialization.msgpack_serialize(tree))
    api.plan(None, tmp_path / "x.msgpack", out=tmp_path / "plan.json")
    edited(tmp_path / "plan.json", lambda saved: put(saved, "destination.format", "npz"))
    with pytest.raises(PlanError, match="`none` is an empty node, and npz holds none"):
        api.apply(tmp_path / "plan.json", dst=tmp_path / "out.npz")


@pytest.mark.parametrize("text", ["{}", "[]", "3", "", "{", '{"schema": 1}', '{"saved": null}', "\0"])
def test_what_is_no_saved_plan_is_taken_for_a_recipe(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert plan_document.read_plan_file(tmp_path / "plan.json") is None


@pytest.mark.parametrize("saved", [3, [], {}, "x"])
def test_a_damaged_plan_is_told(saved: object, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"schema": 1, "saved": saved}))
    with pytest.raises(UsageError, match=r"not a plan that|saved by version unknown"):
        ckpt_surgery.apply(tmp_path / "plan.json", dst=tmp_path / "out")


JUNK = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(0, 3), st.floats(), st.text(max_size=5)),
    st.sampled_from([[], {}, -1, 2**63, 2**64, 1e308, "leaf", "array", "int8", ["leaf", "source", "b"]]),
)


def places(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [place, *(found for key, value in inner for found in places(value, (*place, key)))]


def mutated(document: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """A copy in which up to three members are dropped or changed."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        *containers, last = data.draw(st.sampled_from(places(document["saved"])[1:]))
        inner = document["saved"]
        for part in containers:
            inner = inner[part]
        match data.draw(st.sampled_from(["change", "drop", "leave"])):
            case "change":
                inner[last] = copy.deepcopy(data.draw(JUNK))  # it may be changed again
            case "drop":
                del inner[last]
    return document


def removed(out: Path) -> None:
    """Remove a result that is one file, and the record beside it."""
    out.unlink()
    out.with_name(f"{out.name}.ckpt_surgery.json").unlink()


FUZZED = settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@FUZZED
@given(data=st.data())
def test_whatever_the_file_says_is_a_plan_or_refused(
    data: st.DataObject, small: Path, tmp_path: Path
) -> None:
    """Also with the digest that goes with it."""
    hostile = tmp_path / "hostile.json"
    hostile.write_text(json.dumps(sealed(mutated(json.loads(small.read_text()), data))))
    try:
        plan = opened_again(hostile, tmp_path / "out").plan
    except SurgeryError as error:
        assert error.exit_code in (1, 2)
        assert len(str(error)) < 2000
        return
    assert sum(task.nbytes for task in make_tasks(plan)) == plan.costs.bytes_out


@pytest.fixture
def planned(model: Path, recipe: Callable[[str], Path], tmp_path: Path) -> Path:
    """A saved plan with a destination, which is a file."""
    api.plan(recipe(TWICE_TURNED), model, dst=tmp_path / "out.npz", out=tmp_path / "plan.json")
    return tmp_path / "plan.json"


@FUZZED
@given(data=st.data(), overwrite=st.booleans())
def test_a_changed_plan_is_refused_or_the_plan_that_was_saved(
    data: st.DataObject, overwrite: bool, planned: Path, tmp_path: Path
) -> None:
    whole = json.loads(planned.read_text())
    (tmp_path / "hostile.json").write_text(json.dumps(mutated(whole, data)))
    before = state_of(tmp_path)
    try:
        result = api.apply(tmp_path / "hostile.json", overwrite=overwrite)
    except SurgeryError as error:
        assert error.exit_code in (1, 2)
        assert state_of(tmp_path) == before
        return
    assert result.destination == str(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        assert_same(
            dict(found),
            {f"c/{key[2:]}": value for key, value in ARRAYS.items() if key[:2] == "a/"}
            | {"turned": ARRAYS["a/kernel"].T + 1},
        )
    removed(tmp_path / "out.npz")
    assert state_of(tmp_path) == before


@FUZZED
@given(data=st.data(), overwrite=st.booleans())
def test_a_forged_plan_writes_at_the_destination_only(
    data: st.DataObject, overwrite: bool, planned: Path, tmp_path: Path
) -> None:
    whole = json.loads(planned.read_text())
    (tmp_path / "hostile.json").write_text(json.dumps(sealed(mutated(whole, data))))
    (tmp_path / "in").mkdir(exist_ok=True)
    before, out = state_of(tmp_path), tmp_path / "in" / "other.npz"
    try:
        api.apply(tmp_path / "hostile.json", dst=out, overwrite=overwrite)
    except SurgeryError as error:
        assert error.exit_code in (1, 2)
    else:
        removed(out)
    assert state_of(tmp_path) == before
    assert os.listdir(tmp_path / "in") == []


def test_link_modes_are_those_of_the_command_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destinations, "can_reflink", lambda *_: True)
    for mode in LinkMode:
        api.plan(None, model, link_mode=mode, out=tmp_path / "plan.json")
        assert opened_again(tmp_path / "plan.json", tmp_path / "out").destination.link_mode is mode


def test_chunks_that_the_format_cannot_write_apart_are_refused(tmp_path: Path) -> None:
    """Two elements of safetensors' four bits share a byte."""
    np.savez(tmp_path / "x.npz", x=np.ones((4, 6), np.float32))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("version: 1\nrules: [{match: x, value: 'cast(x, \"float4_e2m1fn\")'}]\n")
    api.plan(recipe, tmp_path / "x.npz", dst=tmp_path / "x.safetensors", out=tmp_path / "plan.json")

    def odd(saved: dict[str, Any]) -> None:
        (output,) = saved["outputs"]
        output["chunks"], output["block"] = [4, 3], [4, 6]

    with pytest.raises(UsageError, match=r"safetensors cannot write chunks of \[4, 3\] one by one"):
        opened_again(edited(tmp_path / "plan.json", odd), tmp_path / "x.safetensors")
