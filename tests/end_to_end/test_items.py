"""One item in a step that exists, on a disk or in a bucket: what is written, what stays, what is told."""

import errno
import itertools
import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DestinationError, Interrupted, PlanError, SourceError, SurgeryError
from ckpt_surgery.engine.staging import heartbeat, local, syncing
from ckpt_surgery.storage import views
from ckpt_surgery.storage.store import registered, store_of
from tests.support.checkpoints import quiet, save_standard
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.directories import names
from tests.support.ended_runs import Killed, killed
from tests.support.failing import raising, refusing
from tests.support.generations import age
from tests.support.key_value import KeyValueStore, downloaded
from tests.support.object_runs import Dying

STATE: dict[str, Any] = {"w": np.arange(12, dtype=np.float32), "n": np.int32(7)}
EMA = {"w": np.full(12, 0.5, np.float32)}
LOSS = {"loss": 0.5}
NEW = {"v": np.arange(5, dtype=np.float32)}
WHOLE = {"items": STATE, "ema": EMA, "iter": {"position": 3}, "metrics": LOSS}
DOUBLE = "version: 1\nrules: [{match: '.*', value: 'x + x'}]\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A manager's directory with a step of two items of arrays, one of JSON, and metrics."""
    items = {
        "items": ocp.args.StandardSave(STATE),
        "ema": ocp.args.PyTreeSave(EMA),
        "iter": ocp.args.JsonSave({"position": 3}),
    }
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with quiet(), ocp.CheckpointManager(tmp_path / "source", options=options) as manager:
        manager.save(20, args=ocp.args.Composite(**items), metrics=LOSS, custom_metadata={"lr": 0.1})
    return tmp_path / "source"


@pytest.fixture
def step(source: Path, tmp_path: Path) -> Path:
    """A copy of that step, which the tests write into."""
    return shutil.copytree(source, tmp_path / "run") / "20"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A checkpoint without steps and items."""
    save_standard(tmp_path / "other", NEW)
    return tmp_path / "other"


@dataclass(frozen=True)
class OnDisk:
    """The step on a disk."""

    run: str
    """The directory of steps."""

    def files(self) -> dict[str, tuple[Any, bytes]]:
        """Inode and bytes of every file of the step, by its name there."""
        step = Path(self.run, "20")
        found = (path for path in step.rglob("*") if path.is_file())
        return {str(path.relative_to(step)): (path.stat().st_ino, path.read_bytes()) for path in found}

    def put(self, name: str, data: bytes) -> None:
        Path(self.run, "20", name).write_bytes(data)

    def leftovers(self) -> list[str]:
        return [name for name in names(Path(self.run)) if name != "20"]

    def local(self) -> Path:
        return Path(self.run)


@dataclass(frozen=True)
class InBucket(OnDisk):
    """The step in a bucket."""

    directory: Path
    """Where copies go."""

    def files(self) -> dict[str, tuple[Any, bytes]]:
        """Version and bytes of every object."""
        store, name = store_of(f"{self.run}/20")
        found = store.walk(f"{name}/")
        return {one[len(name) + 1 :]: (stat.version, store.read(one)) for one, stat in found.items()}

    def put(self, name: str, data: bytes) -> None:
        store, step = store_of(f"{self.run}/20")
        store.put(f"{step}/{name}", data)

    def leftovers(self) -> list[str]:
        return [name for name in self.files() if name.startswith(".ckpt-surgery")]

    def local(self) -> Path:
        shutil.rmtree(self.directory, ignore_errors=True)
        downloaded(f"{self.run}/20", self.directory / "20")
        return self.directory


@pytest.fixture
def in_bucket(step: Path, tmp_path: Path, bucket: str) -> InBucket:
    store = store_of(bucket)[0]
    for file in (path for path in step.parent.rglob("*") if path.is_file()):
        store.put(str(file.relative_to(tmp_path)), file.read_bytes())
    return InBucket(f"{bucket}/run", tmp_path / "copy")


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest, step: Path) -> OnDisk:
    if request.param == "disk":
        return OnDisk(str(step.parent))
    found: OnDisk = request.getfixturevalue("in_bucket")
    return found


def restored(run: Path) -> dict[str, Any]:
    """What a manager restores of step 20 when it is asked for nothing in particular."""
    with quiet(), ocp.CheckpointManager(run) as manager:
        found = manager.restore(20)
    return dict(found.items()) if isinstance(found, ocp.args.Composite) else {"default": found}


def assert_items(run: Path, wanted: Mapping[str, Any]) -> None:
    found = restored(run)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if name in ("iter", "metrics"):
            assert found[name] == value
        else:
            assert_same(found[name], value)


def others_of(place: OnDisk, *items: str) -> dict[str, tuple[Any, bytes]]:
    """The files of all items of a step but these."""
    own = (*items, ".ckpt-surgery/")
    return {name: found for name, found in place.files().items() if "/" in name and not name.startswith(own)}


def add(other: Path, run: Path | str, item: str, **options: Any) -> ckpt_surgery.Result:
    return ckpt_surgery.convert(other, run, dst_step=20, dst_item=item, **options)


# --- on a disk and in a bucket ----------------------------------------------------------------------------


def test_a_new_item_needs_no_leave_to_overwrite(other: Path, place: OnDisk) -> None:
    before = others_of(place)
    found = add(other, place.run, "model_params").plan.replaces
    assert_items(place.local(), WHOLE | {"model_params": NEW})
    assert others_of(place, "model_params/") == before, "all other items are the same files"
    about = json.loads(place.files()["_CHECKPOINT_METADATA"][1])
    assert about["custom_metadata"] == {"lr": 0.1}
    assert place.leftovers() == []
    assert found is not None
    assert (found.overwrites, found.stays) == (False, ("ema", "items", "iter", "metrics"))


def test_an_item_that_is_there_is_replaced_alone(other: Path, place: OnDisk) -> None:
    before = others_of(place, "ema/")
    with pytest.raises(DestinationError, match=r"20/ema: exists already(.|\n)*`overwrite=True`"):
        add(other, place.run, "ema")
    assert_items(place.local(), WHOLE)
    add(other, place.run, "ema", overwrite=True)
    assert_items(place.local(), WHOLE | {"ema": NEW})
    assert others_of(place, "ema/") == before
    assert ckpt_surgery.verify(place.run, item="ema").flaws == ()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_of_several_items_is_not_replaced(overwrite: bool, other: Path, place: OnDisk) -> None:
    """Nothing says that the other items are not needed any more."""
    before = place.files()
    for dst, options in ((place.run, {"dst_step": 20}), (f"{place.run}/20", {})):
        for call in (ckpt_surgery.plan, ckpt_surgery.apply):
            with pytest.raises(DestinationError) as refused:
                call(None, other, dst=dst, overwrite=overwrite, **options)  # type: ignore[operator]
            assert "items" in str(refused.value) or not options
    assert place.files() == before


def test_a_step_that_changes_meanwhile(other: Path, place: OnDisk) -> None:
    with pytest.raises((DestinationError, SourceError)):
        add(other, place.run, "new", on_plan=lambda plan: place.put("iter/metadata", b'{"position": 4}'))
    assert not [name for name in place.files() if name.startswith("new/")]


def test_two_runs_on_two_items(other: Path, place: OnDisk) -> None:
    """The lock is the step's: the second run does not wait."""
    done: list[int] = []

    def second(progress: object) -> None:
        if not done:
            done.append(1)
            with pytest.raises(DestinationError, match="writ"):
                add(other, place.run, "second")

    ckpt_surgery.apply(DOUBLE, other, dst=place.run, dst_step=20, dst_item="first", progress=second)
    assert done
    doubled = {"v": NEW["v"] * 2}
    assert_items(place.local(), WHOLE | {"first": doubled})
    with pytest.raises(DestinationError, match="changed during this run"):
        add(other, place.run, "third", on_plan=lambda plan: add(other, place.run, "second"))
    assert_items(place.local(), WHOLE | {"first": doubled, "second": NEW})


def test_shards(source: Path, place: OnDisk, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    options = {"dst": place.run, "dst_step": 20, "item": "ema", "dst_item": "twice"}
    ckpt_surgery.plan(DOUBLE, source, out=file, **options)
    before = others_of(place)
    for index in range(2):
        applying.apply_shard(file, shard=f"{index}/2")
    assert applying.commit(place.run) is not None
    assert_items(place.local(), WHOLE | {"twice": {"w": np.ones(12, np.float32)}})
    assert others_of(place, "twice/") == before
    with pytest.raises(DestinationError, match=r"published there|exists already"):
        applying.apply_shard(file, shard="0/2")
    ckpt_surgery.plan(DOUBLE, source, out=file, **options | {"dst_item": "more"})
    applying.apply_shard(file, shard="0/1")
    place.put("iter/metadata", b'{"position": 9}')
    with pytest.raises(DestinationError, match="changed"):
        applying.commit(place.run)


@pytest.mark.slow("ends a run at each request")
@pytest.mark.parametrize("overwrite", [False, True])
def test_runs_that_end_at_any_request(
    overwrite: bool, other: Path, in_bucket: InBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other items are never touched, and the next run completes what was begun."""
    monkeypatch.setattr(heartbeat, "has_ended", lambda owner: True)
    item = "ema" if overwrite else "new"
    store, inner = store_of(in_bucket.run)[0], KeyValueStore("kv://bucket", tmp_path / "bucket")
    whole = {name: store.read(name) for name in store.walk()}
    number, seen = 0, set()

    def others() -> dict[str, bytes]:
        return {name: data for name, (_, data) in others_of(in_bucket, f"{item}/").items()}

    before = others()
    while True:
        number += 3
        views.forget()
        try:
            with registered("kv", lambda root, at=number: Dying(inner, at, False, raising(Killed))):  # type: ignore[misc]
                add(other, in_bucket.run, item, overwrite=overwrite, workers=1)
            break
        except Killed:
            views.forget()
        assert others() == before
        try:
            add(other, in_bucket.run, item, overwrite=overwrite)
            seen.add("written")
        except SurgeryError as error:
            assert "exists already" in str(error)
        assert_items(in_bucket.local(), WHOLE | {item: NEW})
        assert in_bucket.leftovers() == []
        store.delete(list(store.walk()))
        for name, data in whole.items():
            store.put(name, data)
    assert "written" in seen
    assert number > 14


# --- on a disk --------------------------------------------------------------------------------------------


def test_a_step_that_is_gone(other: Path, step: Path) -> None:
    with pytest.raises(SurgeryError):
        add(other, step.parent, "new", on_plan=lambda plan: step.rename(step.parent / "moved"))
    assert not step.exists()


def test_two_items_one_after_the_other(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for item in ("items", "ema"):
        ckpt_surgery.convert(source, out, item=item, dst_step=20, dst_item=item)
    assert_items(out, {"items": STATE, "ema": EMA})
    for mode in ("values", "fast", "full"):
        for item in ("items", "ema"):
            assert ckpt_surgery.verify(out, item=item, mode=mode).flaws == ()
    about = out / "20" / "_CHECKPOINT_METADATA"
    about.write_text(about.read_text().replace("Standard", "Standerd", 1))
    assert all(ckpt_surgery.verify(out, item=item).flaws for item in ("items", "ema"))


@pytest.mark.parametrize("item", ["state", "model_params", "items", "optimizer_state"])
def test_a_composite_without_a_manager(item: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ckpt_surgery.convert(source, out, item="ema", dst_item="ema")
    ckpt_surgery.convert(source, out, item="items", dst_item=item)
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.convert(source, out, item="items", dst_item=item)
    ckpt_surgery.convert(source, out, item="items", dst_item=item, overwrite=True)
    with quiet(), ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        found = checkpointer.restore(out)
    assert_same(found["ema"], EMA)
    assert_same(found[item], STATE)


def test_items_that_the_step_does_not_list_get_their_handlers(other: Path, step: Path) -> None:
    """Orbax restores no item of a step of which one has no handler."""
    (step / "_CHECKPOINT_METADATA").unlink()
    add(other, step.parent, "new")
    assert_items(step.parent, WHOLE | {"new": NEW})


def test_the_history_of_an_item_is_its_own(source: Path, other: Path, tmp_path: Path) -> None:
    """A step has one custom metadata, and its items went through different recipes."""
    recipe, out = "version: 1\nrules: [{match: w, to: weights}, {match: n}]\n", tmp_path / "out"
    ckpt_surgery.apply(recipe, source, item="items", dst=out, dst_step=20)
    ckpt_surgery.convert(other, out, dst_step=20, dst_item="plain")
    own = {item: ckpt_surgery.inspect(out, item=item).metadata for item in ("items", "plain")}
    assert own["items"]["lr"] == own["plain"]["lr"] == 0.1
    assert ["ckpt_surgery" in metadata for metadata in own.values()] == [True, False]


def test_files_and_unknown_items_stay(other: Path, step: Path) -> None:
    (step / "notes.txt").write_text("mine")
    (step / "grain" / "deep").mkdir(parents=True)
    (step / "grain" / "deep" / "state").write_bytes(b"\x00")
    (step / "empty").mkdir()
    os.symlink("notes.txt", step / "link")
    add(other, step.parent, "ema", overwrite=True)
    assert (step / "notes.txt").read_text() == "mine"
    assert (step / "grain" / "deep" / "state").read_bytes() == b"\x00"
    assert (step / "empty").is_dir()
    assert os.readlink(step / "link") == "notes.txt"


def test_copies_where_links_are_impossible(other: Path, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refusing(errno.EOPNOTSUPP))
    add(other, step.parent, "new", link_mode="copy")
    assert_items(step.parent, WHOLE | {"new": NEW})


# --- what is refused --------------------------------------------------------------------------------------


def test_the_only_item_of_a_step_is_replaced_without_its_name(other: Path, tmp_path: Path) -> None:
    for _ in range(2):
        ckpt_surgery.convert(other, tmp_path / "run", dst_step=20, overwrite=True)
    assert_items(tmp_path / "run", {"default": NEW})
    ckpt_surgery.convert(other, tmp_path / "state", dst_step=20, dst_item="state")
    with pytest.raises(DestinationError, match=r"does not write \(state\)"):
        ckpt_surgery.convert(other, tmp_path / "state", dst_step=20, overwrite=True)


def test_what_is_no_checkpoint_is_not_replaced_as_an_item_nor_a_save_that_was_not_finished(
    other: Path, step: Path
) -> None:
    for item, file in (("iter", "metadata"), ("ema", "notes.txt")):
        (step / item / file).touch()
        with pytest.raises(DestinationError):
            add(other, step.parent, item, overwrite=True)
    (step / "commit_success.txt").unlink()
    about = json.loads((step / "_CHECKPOINT_METADATA").read_text())
    (step / "_CHECKPOINT_METADATA").write_text(json.dumps(about | {"commit_timestamp_nsecs": None}))
    with pytest.raises(DestinationError, match="never committed"):
        add(other, step.parent, "new")


# --- interruptions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["links", "before", "after"])
def test_a_run_that_is_killed(when: str, other: Path, step: Path) -> None:
    before, links = others_of(OnDisk(str(step.parent)), "ema/"), itertools.count(1)
    link, exchange = os.link, syncing.exchange

    def few(*arguments: Any, **keywords: Any) -> None:
        if next(links) == 3:
            raise Killed
        link(*arguments, **keywords)

    def at_exchange(*arguments: Any) -> None:
        if when == "after":
            exchange(*arguments)
        raise Killed

    with killed() as patch:
        if when == "links":
            patch.setattr(os, "link", few)
        else:
            patch.setattr(local, "exchange", at_exchange)
        add(other, step.parent, "ema", overwrite=True)
    assert others_of(OnDisk(str(step.parent)), "ema/") == before
    assert_items(step.parent, WHOLE | ({"ema": NEW} if when == "after" else {}))
    add(other, step.parent, "ema", overwrite=True, resume=True)
    assert_items(step.parent, WHOLE | {"ema": NEW})
    assert others_of(OnDisk(str(step.parent)), "ema/") == before
    assert names(step.parent) == ["20"]


def test_an_exchange_in_steps(other: Path, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems that cannot exchange names; what a killed run moved aside is put back first."""
    monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    add(other, step.parent, "ema", overwrite=True)
    assert_items(step.parent, WHOLE | {"ema": NEW})
    aside = step.parent / f".20.ckpt-surgery-{'0' * 16}" / "old"
    aside.parent.mkdir()
    step.rename(aside)
    age(aside.parent, 600)
    add(other, step.parent, "new")
    assert_items(step.parent, WHOLE | {"ema": NEW, "new": NEW})


def test_a_run_that_is_resumed_takes_the_others_as_they_are(
    source: Path, step: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"dst": step.parent, "dst_step": 20, "item": "items"}

    def interrupt(*args: object) -> None:
        raise Interrupted(signal.SIGTERM, "stopped")

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(local, "interruptibly", interrupt)
        ckpt_surgery.apply(DOUBLE, source, dst_item="twice", **options)
    (step / "iter" / "metadata").write_text('{"position": 9}')
    with pytest.raises(PlanError, match="cannot be resumed"):
        ckpt_surgery.apply(DOUBLE, source, dst_item="else", resume=True, **options)
    ckpt_surgery.apply(DOUBLE, source, dst_item="twice", resume=True, **options)
    twice = {"w": STATE["w"] * 2, "n": np.int32(14)}
    assert_items(step.parent, WHOLE | {"iter": {"position": 9}, "twice": twice})


# --- names, and what is told ------------------------------------------------------------------------------


@pytest.mark.parametrize("item", ["items", "state", "model_params", "default"])
def test_an_item_keeps_its_name(item: str, tmp_path: Path) -> None:
    with quiet(), ocp.CheckpointManager(tmp_path / "in") as manager:
        manager.save(20, args=ocp.args.Composite(**{item: ocp.args.StandardSave(STATE)}))
    ckpt_surgery.convert(tmp_path / "in", tmp_path / "out", dst_step=20)
    assert_items(tmp_path / "out", {item: STATE})
    ckpt_surgery.convert(tmp_path / "in", tmp_path / "bare")
    ckpt_surgery.convert(tmp_path / "bare", tmp_path / "from_bare", dst_step=20)
    assert names(tmp_path / "from_bare" / "20" / "default")


def test_items_that_are_not_carried_over(source: Path, tmp_path: Path) -> None:
    dropped = [("ema", "arrays"), ("iter", "json"), ("metrics", "json")]
    for options in ({"dst_step": 3}, {}, {"format": "safetensors"}):
        plan = ckpt_surgery.plan(None, source, item="items", dst=tmp_path / "out", **options)
        assert [(gone.item, gone.kind) for gone in plan.dropped_items] == dropped
        iterator = plan.dropped_items[1]
        assert iterator.bytes == sum(p.stat().st_size for p in (source / "20" / "iter").iterdir())
        assert ("no items" in iterator.why) == ("dst_step" not in options)
    recipe = "version: 1\nsources: [a, b]\nrules:\n  - {match: w, value: \"x + b['w']\"}\n"
    items = [source / "20" / "items", source / "20" / "ema"]
    plan = ckpt_surgery.plan(recipe, *items, dst=tmp_path / "out")
    assert plan.dropped_items == ()
    twice = ckpt_surgery.plan(recipe, source, source / "20", item="ema", dst=tmp_path / "out")
    assert [gone.item for gone in twice.dropped_items] == ["items", "iter", "metrics"]


def test_the_command_line(source: Path, step: Path, tmp_path: Path) -> None:
    given = ["convert", source, step.parent, "--item", "items", "--dst-step", "20", "--dst-item", "ema"]
    refused = run(*given)
    assert refused.exit_code == 4
    dry = run(*given, "--overwrite", "--dry-run", "--json", tmp_path / "plan.json")
    done = run(*given, "--overwrite", "--json", tmp_path / "done.json")
    for result, file in ((dry, "plan.json"), (done, "done.json")):
        assert result.exit_code == 0, result.output
        told = " ".join(result.output.split())
        assert "DROPPED item iter JSON" in told
        assert f"replaces {step}/ema (1 leaf, " in told.replace(" ema", "ema")
        assert "; stays: items, iter, metrics" in told
        document = json.loads((tmp_path / file).read_text())
        stays = ["items", "iter", "metrics"]
        assert document["replaces"] == {"path": str(step), "items": ["ema"], "stays": stays}
        assert [gone["item"] for gone in document["dropped_items"]] == ["ema", "iter", "metrics"]
    report = run(*given[:-1], "third", "--report", tmp_path / "report.html")
    assert report.exit_code == 0, report.output
    assert "DROPPED item iter, " in (tmp_path / "report.html").read_text()
    assert_items(step.parent, WHOLE | {"ema": STATE, "third": STATE})
    added = run(*given[:-1], "more", "--json", tmp_path / "added.json")
    assert added.exit_code == 0, added.output
    assert json.loads((tmp_path / "added.json").read_text())["replaces"] is None
