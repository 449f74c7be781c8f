"""Plans that are saved and carried out later: what was planned, or a refusal that says what has changed."""

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import Code, DestinationError, PlanError, SurgeryError, UsageError
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.engine.tasks import make_tasks, outputs_of
from ckpt_surgery.inputs import pinned, preparing
from ckpt_surgery.inputs.matching import recipe_of_rules
from ckpt_surgery.inputs.request import requested
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner import document as plan_document
from ckpt_surgery.planner.cutting import WRITE_BUFFER
from ckpt_surgery.planner.plan import Plan, Step, Transfer
from ckpt_surgery.planner.prepared import Prepared
from ckpt_surgery.storage import linking
from tests.support import checkpoints
from tests.support.checkpoints import LAYOUTS, random
from tests.support.comparing import assert_same
from tests.support.directories import copy_of, state_of
from tests.support.documents import plan_json
from tests.support.effort import examples
from tests.support.models import ARRAYS
from tests.support.plans import sealed
from tests.support.reading import read
from tests.support.slow import some

Checkpoint = Callable[[str], Path]
Recipe = Callable[[str], Path]
MIB = 1 << 20

RENAME = """version: 1
rules:
  - match: '(?P<all>.*)'
    to: 'model/${all}'
"""
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
    request = pinned.saved_request(requested(path, (), dst, options))
    assert request is not None
    return preparing.prepare(request)


def decided(plan: Plan) -> list[object]:
    """All that carrying a plan out goes by, but for the functions themselves."""
    steps = [(step.leaf, step.cut, step.rule, step.fate, step.sources) for step in plan.steps]
    work = [steps, outputs_of(plan), list(make_tasks(plan)), json.dumps(plan.metadata)]
    return [*work, plan.inputs, plan.dropped, plan_json(plan)]


DELETE = object()


def edit(path: Path, place: str, value: object, forged: bool = True) -> None:
    """Change one member of a plan's file; if `forged`, with the digest that goes with the change."""
    whole = document = json.loads(path.read_text())
    *containers, last = (int(part) if part.isdecimal() else part for part in place.split("."))
    for part in containers:
        document = document[part]
    if value is DELETE:
        del document[last]
    else:
        document[last] = value
    path.write_text(json.dumps(sealed(whole) if forged else whole))


# --- the plan, and nothing else -------------------------------------------------------------------


@pytest.mark.parametrize("layout", some(LAYOUTS))
@pytest.mark.parametrize("text", [RENAME, MIXED], ids=["renamed", "mixed"])
def test_it_is_the_plan(
    layout: str, text: str, checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    """Every kind of leaf, empty nodes, strings, PRNG keys, shardings, custom metadata, from every layout."""
    plan = applying.plan(recipe(text), checkpoint(layout), out=tmp_path / "plan.json")
    again = opened_again(tmp_path / "plan.json", tmp_path / "out").plan
    assert decided(again) == decided(plan)


def test_what_lies_beside_the_checkpoint_is_not_read_again(
    model: Path, recipe: Recipe, tmp_path: Path
) -> None:
    """The recipe, the listing that is the target, and the config of the model."""
    path = recipe("""version: 1
params: {factor: {default: 1.0, config: factor}}
target: {missing: error}
rules:
  - {match: a/kernel, to: kernel, value: x * factor}
  - {match: a/bias, to: bias, value: "x * config['more']"}
  - {match: b, drop: true}
""")
    (model.parent / "config.json").write_text(json.dumps({"factor": 3, "more": 5, "large": 10**30}))
    target = tmp_path / "target.json"
    shapes = {"kernel": ([40, 30], "float32"), "bias": ([4], "int32")}
    listed = [{"key": key, "shape": shape, "dtype": dtype} for key, (shape, dtype) in shapes.items()]
    target.write_text(json.dumps(listed))
    plan = applying.plan(path, model, target=target, dst=tmp_path / "planned.npz", out=tmp_path / "plan.json")
    for file in (path, target, model.parent / "config.json"):
        file.unlink()
    result = applying.apply(tmp_path / "plan.json")
    assert result.destination == str(tmp_path / "planned.npz")
    assert decided(result.plan)[:4] == decided(plan)[:4]
    with np.load(tmp_path / "planned.npz") as found:
        np.testing.assert_array_equal(found["kernel"], ARRAYS["a/kernel"] * 3)
        np.testing.assert_array_equal(found["bias"], ARRAYS["a/bias"] * 5)


DATA = {"version": 1, "rules": [{"match": "b", "to": "c"}]}


def fresh_steps(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        checkpoints.save_pytree(tmp_path / "run" / str(step), {"w": np.full(4, step, np.float32)})
    return tmp_path / "run"


def save_halves(tmp_path: Path) -> Path:
    """Arrays of bfloat16 as T5X kept them: as uint16."""
    save_file({"w": random((4, 6)).view(np.uint16)}, tmp_path / "halves.safetensors")
    return tmp_path / "halves.safetensors"


@pytest.mark.parametrize(
    ("make", "recipe", "options"),
    [
        (None, "version: 1\nrules: [{match: b, value: x * 2}]\n", {}),
        (None, DATA, {}),
        (None, recipe_of_rules(["s|a/(.*)|d/\\1|", "drop:b"]), {}),
        (None, MIXED, {"set": ["some=['1', '2']", "name=x: [y"], "memory": "8MiB", "workers": 1}),
        (None, MIXED, {"set": {"n": 4, "ratio": 1}, "format": "safetensors", "shard_size": "4KB"}),
        (None, MigratedRecipe(DATA, rules={0: "transform `b`"}), {}),
        (save_halves, "version: 1\nrules: [{match: w, value: x.T}]\n", {"uint16": "bfloat16"}),
        (fresh_steps, "version: 1\nsources: [a, b]\nrules: [{match: w, value: 'x - b[key]'}]\n", {"last": 2}),
        (fresh_steps, None, {"step": 2, "unshard": True, "dst_step": 7}),
    ],
    ids=["text", "mapping", "rules", "set", "shards", "migrated", "uint16", "last", "step"],
)
def test_every_kind_of_request_comes_back(
    make: Callable[[Path], Path] | None,
    recipe: Any,
    options: dict[str, Any],
    model: Path,
    tmp_path: Path,
) -> None:
    source = model if make is None else make(tmp_path)
    plan = applying.plan(recipe, source, out=tmp_path / "plan.json", **options)
    again = opened_again(tmp_path / "plan.json", tmp_path / "again").plan
    assert decided(again)[:4] == decided(plan)[:4]
    assert (again.warnings, again.params, again.costs) == (plan.warnings, plan.params, plan.costs)
    applying.apply(recipe, source, dst=tmp_path / "wanted", **options)
    if make is fresh_steps:
        checkpoints.save_pytree(tmp_path / "run" / "4", {"w": np.full(4, 9, np.float32)})
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "found")
    assert_same(read(tmp_path / "found"), read(tmp_path / "wanted"))


def test_relative_paths_hold_elsewhere(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(model.parent)
    applying.plan(None, model.name, dst="out.safetensors", out=tmp_path / "plan.json")
    result = applying.apply(tmp_path / "plan.json", dst="near.safetensors")
    assert (result.plan.inputs[0].path, result.destination) == (model.name, "near.safetensors")
    monkeypatch.chdir(elsewhere)
    result = applying.apply(tmp_path / "plan.json", dst="other.safetensors")
    assert result.plan.inputs[0].path == str(model)
    assert_same(load_file(elsewhere / "other.safetensors"), ARRAYS)
    monkeypatch.chdir(tmp_path)
    assert applying.apply(tmp_path / "plan.json").destination == "model/out.safetensors"
    assert_same(load_file(model.parent / "out.safetensors"), ARRAYS)


def test_numbers_that_are_no_json(tmp_path: Path) -> None:
    checkpoints.save_pytree(tmp_path / "old", {"w": random((2, 3))}, metadata={"loss": float("nan")})
    applying.plan(None, tmp_path / "old", out=tmp_path / "plan.json")
    json.loads((tmp_path / "plan.json").read_text(), parse_constant=pytest.fail)
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "new")
    assert np.isnan(ckpt_surgery.inspect(tmp_path / "new").metadata["loss"])


# --- memory, links and destinations ---------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    save_file({"w": random((2048, 2048))}, tmp_path / "large.safetensors")
    return tmp_path / "large.safetensors"


TRANSPOSED = "version: 1\nrules: [{match: w, value: 'x.T * 2'}]\n"


def test_a_memory_below_the_working_set_is_refused(large: Path, tmp_path: Path) -> None:
    plan = applying.plan(TRANSPOSED, large, memory=512 * MIB, out=tmp_path / "plan.json")
    assert plan.steps[0].cut is not None
    needed = plan.steps[0].cut.working_set
    enough = 2 * needed
    assert enough < needed + WRITE_BUFFER
    assert enough % MIB == 0
    with pytest.raises(PlanError) as caught:
        applying.apply(tmp_path / "plan.json", dst=tmp_path / "out", memory=4 * MIB)
    [problem] = caught.value.problems
    assert (problem.code, bytes_text(needed) in problem.message) == (Code.BUDGET, True)
    assert f'`memory="{enough // MIB}MiB"`' in str(problem.hint)
    assert opened_again(tmp_path / "plan.json", tmp_path / "out", memory=enough).memory == enough
    with pytest.raises(PlanError):
        opened_again(tmp_path / "plan.json", tmp_path / "out", memory=enough - 1)


def test_what_was_to_be_linked_may_be_copied(checkpoint: Checkpoint, tmp_path: Path) -> None:
    source = checkpoint("standard")
    copied = applying.plan(RENAME, source, link_mode="copy", out=tmp_path / "copied.json").costs
    linked = applying.plan(RENAME, source, out=tmp_path / "plan.json").costs
    assert (linked.bytes_linked, linked.bytes_copied) == (linked.bytes_out, 0)
    assert applying.apply(tmp_path / "plan.json", dst=tmp_path / "a", link_mode="copy").plan.costs == copied
    assert applying.apply(tmp_path / "plan.json", dst=tmp_path / "b").plan.costs == linked
    with pytest.raises(UsageError, match=r"copied\.json was made to copy everything") as caught:
        applying.apply(tmp_path / "copied.json", dst=tmp_path / "c", link_mode="hardlink")
    assert '`link_mode="hardlink"`' in str(caught.value)


def in_files(step: Step) -> bool:
    """Whether stored bytes lie in files of their own, rather than in an index."""
    return step.stored is not None and any(chunk.file for chunk in step.stored.chunks.values())


def test_what_was_to_be_linked_is_copied_to_another_file_system(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = applying.plan(RENAME, checkpoint("standard"), out=tmp_path / "plan.json")
    assert {step.transfer for step in plan.steps if in_files(step)} == {Transfer.LINK}
    monkeypatch.setattr(linking, "domain_of", lambda stat: "elsewhere")
    again = opened_again(tmp_path / "plan.json", tmp_path / "out").plan
    assert {step.transfer for step in again.steps if in_files(step)} == {Transfer.COPY}
    assert again.costs.bytes_dead == 0


def test_what_was_to_be_copied_is_never_linked(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(linking, "domain_of", lambda stat: "elsewhere")
        plan = applying.plan(RENAME, checkpoint("standard"), out=tmp_path / "plan.json")
    assert {step.transfer for step in plan.steps if in_files(step)} == {Transfer.COPY}
    again = applying.apply(tmp_path / "plan.json", dst=tmp_path / "out").plan
    assert [step.transfer for step in again.steps] == [step.transfer for step in plan.steps]
    assert again.costs.bytes_linked == plan.costs.bytes_linked
    with pytest.raises(UsageError, match=r"plan\.json was made to copy .* that could be linked"):
        applying.apply(tmp_path / "plan.json", dst=tmp_path / "hard", link_mode="hardlink")


def test_the_destination_s_name_has_to_go_with_the_format(model: Path, tmp_path: Path) -> None:
    applying.plan(None, model, out=tmp_path / "plan.json")
    with pytest.raises(UsageError, match="no destination is given"):
        applying.apply(tmp_path / "plan.json")
    with pytest.raises(UsageError, match=r"plan\.json .* orbax, .* out\.safetensors .* safetensors\n"):
        applying.apply(tmp_path / "plan.json", dst=tmp_path / "out.safetensors")
    applying.plan(None, model, format="orbax", dst=tmp_path / "odd.npz", out=tmp_path / "plan.json")
    result = applying.apply(tmp_path / "plan.json")
    assert result.plan.warnings[-1] == f"{tmp_path}/odd.npz will be orbax, though its name says npz"


def test_formats_shards_steps_and_versions_of_zarr_are_kept(model: Path, tmp_path: Path) -> None:
    applying.plan(None, model, format="safetensors", shard_size=4800, out=tmp_path / "plan.json")
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model*"))) == 3
    text = "version: 1\noutput: {zarr: 2, structure_file: true}\n"
    made = applying.plan(text, model, dst_step=7, dst_item="model", out=tmp_path / "plan.json")
    done = applying.apply(tmp_path / "plan.json", dst=tmp_path / "steps")
    assert done.plan.restorable_by == made.restorable_by == {"orbax-checkpoint": "0.4.8"}
    assert (tmp_path / "steps/7/model/checkpoint").exists()
    inspected = ckpt_surgery.inspect(tmp_path / "steps")
    assert (inspected.step, inspected.item) == (7, "model")
    assert json.loads((tmp_path / "steps/7/model/_METADATA").read_text())["use_zarr3"] is False
    for option in ({"shard_size": 1}, {"src_format": "orbax"}, {"step": 0}, {"set": ["a=1"]}):
        with pytest.raises(UsageError, match="is a saved plan, which has its sources and options") as caught:
            applying.apply(tmp_path / "plan.json", dst=tmp_path / "other", **option)
        assert caught.value.problems[0].hint == f"Leave out `{next(iter(option))}=…`, or make the plan again."
    with pytest.raises(UsageError, match="Leave out the sources and `item=…`, or make"):
        applying.apply(tmp_path / "plan.json", model, dst=tmp_path / "other", item="x")


# --- what has changed -----------------------------------------------------------------------------


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
    change: Callable[[Path], object], what: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        np.save(source / f"{name}.npy", random((50,)))
    applying.plan(RENAME, source, src_format="npy", out=tmp_path / "plan.json")
    change(source / "b.npy")
    name = "more.npy" if what == "new" else "b.npy"
    with pytest.raises(PlanError) as caught:
        applying.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    [problem] = caught.value.problems
    assert (problem.code, f"`{name}` ({what})" in problem.message) == (Code.CHANGED, True)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("layout", ["standard", "plain-zarr2"])
def test_a_source_that_was_touched_is_the_same(layout: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    source = copy_of(checkpoint(layout), tmp_path / "source")
    applying.plan(RENAME, source, out=tmp_path / "plan.json")
    for file in source.rglob("*"):
        os.utime(file, ns=(1, file.stat().st_mtime_ns + 1))
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    applying.apply(RENAME, source, dst=tmp_path / "wanted")
    assert_same(read(tmp_path / "out"), read(tmp_path / "wanted"))


@pytest.mark.parametrize("layout", ["model", "ocdbt-zarr3"])
def test_a_source_may_be_mounted_elsewhere(
    layout: str, checkpoint: Checkpoint, model: Path, tmp_path: Path
) -> None:
    old = model.parent if layout == "model" else copy_of(checkpoint(layout), tmp_path / "here")
    applying.plan(None, old, out=tmp_path / "plan.json")
    old.rename(tmp_path / "there")
    edit(tmp_path / "plan.json", "sources.source.path", str(tmp_path / "there"), forged=False)
    applying.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert_same(read(tmp_path / "out"), read(tmp_path / "there"))


# --- what no `plan --out` wrote -------------------------------------------------------------------

TWICE_TURNED = """version: 1
params: {factor: 2.0}
rules:
  - {match: 'a/(.*)', to: 'c/\\1'}
  - {add: turned, value: 'source["a/kernel"].T + 1'}
  - {match: b, drop: true}
"""
WRONG: list[tuple[str, object, str]] = [
    ("saved.request.memory", 0, "saved.request.memory: Expected `int` >= 1"),
    ("saved.overwrite", True, "saved: Object contains unknown field `overwrite`"),
    ("saved.version", 3, "was saved by version 3 of the tool"),
    ("saved.version", "99.0", "was saved by version 99.0 of the tool; this is"),
    ("saved.inputs", [], "saved.inputs: Expected `array` of length >= 1"),
    ("sources.source.files", {}, "source changed since the plan was made: `model.safetensors` (new)"),
    ("saved.inputs.0", "sauce", "sources: not the inputs of the plan"),
    ("sources", {}, "sources: not the inputs of the plan"),
    ("sources.source.path", "model", "sources.source.path: 'model' is not an absolute path"),
    ("sources.source.path", "/nowhere/x", "/nowhere/x does not exist"),
    ("sources.source.step", "1", "sources[...].step: Expected `int | null`, got `str`"),
    ("sources.source.format", "pickle", "Not a format: `pickle`"),
    ("saved.request.dst", "out", "saved.request.dst: 'out' is not an absolute path"),
    ("saved.request.dst_step", 10**18, "saved.request.dst_step: Expected `int` <= 999999999999999999"),
    ("saved.request.dst_item", "../x", "`../x` cannot be the name of an item"),
    ("saved.request.format", "torch", "The format `torch` can be read but not written"),
    ("saved.request.link_mode", "symlink", "saved.request.link_mode: Invalid enum value 'symlink'"),
    ("saved.request.shard_size", 100, "orbax checkpoints have no shards"),
    ("saved.recipe.text", "version: 2", "this program reads version 1 of the recipe language"),
    ("saved.recipe.set", ["factor=3"], "planned again, it came out differently: values, chunks or metadata"),
    ("saved.recipe.text", "version: 1\n", "it came out differently: `c/kernel`, `c/bias`, `turned`"),
    ("saved.hooks", ["/hooks.py", "0" * 64], "has hooks: Python code, in /hooks.py"),
    ("saved.target", ["x"], "plan.json: leaves[0] has no `key`"),
    ("saved.configs", {"source": ["config.json", 3]}, "saved.configs[...][1]: Expected `object`, got `int`"),
    ("saved.linked", "2", "saved.linked: Expected `str` matching regex"),
]


@pytest.fixture
def small(model: Path, recipe: Recipe, tmp_path: Path) -> Path:
    """A saved plan of a copy, a copy and a value that is computed."""
    applying.plan(recipe(TWICE_TURNED), model, link_mode="copy", out=tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.mark.parametrize(("place", "value", "says"), WRONG, ids=[f"{row[0]}: {row[2][:40]}" for row in WRONG])
def test_every_field_is_checked(place: str, value: object, says: str, small: Path, tmp_path: Path) -> None:
    edit(small, place, value)
    with pytest.raises(SurgeryError) as caught:
        applying.apply(small, dst=tmp_path / "out")
    assert says in str(caught.value)
    assert caught.value.exit_code == (1 if place == "saved.target" else 2)
    assert not (tmp_path / "out").exists()


def test_a_plan_brings_no_permission_to_replace(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    applying.plan(None, model, dst=out, out=tmp_path / "plan.json")
    applying.apply(tmp_path / "plan.json")
    applying.plan(None, model, dst=out, overwrite=True, out=tmp_path / "again.json")
    before = state_of(tmp_path)
    for name in ("plan.json", "again.json"):
        with pytest.raises(DestinationError, match=r"out\.npz: exists already"):
            applying.apply(tmp_path / name)
    assert state_of(tmp_path) == before
    applying.apply(tmp_path / "again.json", overwrite=True)


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
    inner: Any = ()
    if isinstance(document, dict | list):
        inner = document.items() if isinstance(document, dict) else enumerate(document)
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


@pytest.fixture
def planned(model: Path, recipe: Recipe, tmp_path: Path) -> Path:
    """A saved plan with a destination, which is a file."""
    applying.plan(recipe(TWICE_TURNED), model, dst=tmp_path / "out.npz", out=tmp_path / "plan.json")
    return tmp_path / "plan.json"


@pytest.mark.parametrize("forged", [False, True])
@settings(examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), overwrite=st.booleans())
def test_a_changed_plan_is_refused_or_writes_at_the_destination_only(
    forged: bool, data: st.DataObject, overwrite: bool, planned: Path, tmp_path: Path
) -> None:
    """Without the digest that goes with the change, it is the plan that was saved."""
    whole = mutated(json.loads(planned.read_text()), data)
    (tmp_path / "hostile.json").write_text(json.dumps(sealed(whole) if forged else whole))
    (tmp_path / "in").mkdir(exist_ok=True)
    before, out = state_of(tmp_path), tmp_path / "in" / "other.npz"
    try:
        applying.apply(tmp_path / "hostile.json", dst=out, overwrite=overwrite)
    except SurgeryError as error:
        assert error.exit_code in (1, 2)
    else:
        if not forged:
            of_a = {f"c/{key[2:]}": value for key, value in ARRAYS.items() if key[:2] == "a/"}
            assert_same(read(out), of_a | {"turned": ARRAYS["a/kernel"].T + 1})
        out.unlink()
        out.with_name(f"{out.name}.ckpt_surgery.json").unlink()
    assert state_of(tmp_path) == before
    assert os.listdir(tmp_path / "in") == []
