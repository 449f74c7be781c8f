"""One item in a step that exists: what is written, what stays, and what is told."""

import errno
import itertools
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import sharding
from ckpt_surgery.core.errors import DestinationError, Interrupted, PlanError, SourceError, SurgeryError
from ckpt_surgery.engine.staging import local, renaming
from tests.support.checkpoints import quiet
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.directories import names
from tests.support.ended_runs import Killed, killed
from tests.support.failing import refusing
from tests.support.generations import age, staged

STATE: dict[str, Any] = {"w": np.arange(12, dtype=np.float32), "n": np.int32(7)}
EMA = {"w": np.full(12, 0.5, np.float32)}
LOSS = {"loss": 0.5}


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
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "other", {"v": np.arange(5, dtype=np.float32)})
    return tmp_path / "other"


NEW = {"v": np.arange(5, dtype=np.float32)}


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


WHOLE = {"items": STATE, "ema": EMA, "iter": {"position": 3}, "metrics": LOSS}


def files(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Inode and bytes of every file below a directory."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): (path.stat().st_ino, path.read_bytes()) for path in found}


def others_of(step: Path, *items: str) -> dict[str, tuple[int, bytes]]:
    """The files of all items of a step but these."""
    return {name: found for name, found in files(step).items() if "/" in name and not name.startswith(items)}


def add(other: Path, step: Path, item: str, **options: Any) -> ckpt_surgery.Result:
    return ckpt_surgery.convert(other, step.parent, dst_step=20, dst_item=item, **options)


# --- what is written, and what stays ----------------------------------------------------------------------


def test_a_new_item_needs_no_leave_to_overwrite(other: Path, step: Path) -> None:
    before = others_of(step)
    result = add(other, step, "model_params")
    assert_items(step.parent, WHOLE | {"model_params": NEW})
    after = others_of(step, "model_params/")
    assert after == before, "all other items are the same files"
    about = json.loads((step / "_CHECKPOINT_METADATA").read_text())
    assert about["custom_metadata"] == {"lr": 0.1}
    assert names(step.parent) == ["20"]
    found = result.plan.replaces
    assert found is not None
    assert (found.overwrites, found.stays) == (False, ("ema", "items", "iter", "metrics"))


def test_an_item_that_is_there_is_replaced_alone(other: Path, step: Path) -> None:
    before = others_of(step, "ema/")
    with pytest.raises(DestinationError, match=r"20/ema: exists already(.|\n)*`overwrite=True`"):
        add(other, step, "ema")
    assert_items(step.parent, WHOLE)
    add(other, step, "ema", overwrite=True)
    assert_items(step.parent, WHOLE | {"ema": NEW})
    assert others_of(step, "ema/") == before


def test_two_items_one_after_the_other(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for item in ("items", "ema"):
        ckpt_surgery.convert(source, out, item=item, dst_step=20, dst_item=item)
    assert_items(out, {"items": STATE, "ema": EMA})
    for mode in ("values", "fast", "full"):
        for item in ("items", "ema"):
            assert ckpt_surgery.verify(out, item=item, mode=mode).flaws == ()
    (out / "20" / "_CHECKPOINT_METADATA").write_text(
        (out / "20" / "_CHECKPOINT_METADATA").read_text().replace("Standard", "Standerd", 1)
    )
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
    add(other, step, "new")
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
    add(other, step, "ema", overwrite=True)
    assert (step / "notes.txt").read_text() == "mine"
    assert (step / "grain" / "deep" / "state").read_bytes() == b"\x00"
    assert (step / "empty").is_dir()
    assert os.readlink(step / "link") == "notes.txt"


def test_copies_where_links_are_impossible(other: Path, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refusing(errno.EOPNOTSUPP))
    add(other, step, "new", link_mode="copy")
    assert_items(step.parent, WHOLE | {"new": NEW})


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_of_several_items_is_not_replaced(overwrite: bool, other: Path, step: Path) -> None:
    """Nothing says that the other items are not needed any more."""
    before = files(step)
    for dst, options in ((step.parent, {"dst_step": 20}), (step, {})):
        for call in (ckpt_surgery.plan, ckpt_surgery.apply):
            with pytest.raises(DestinationError) as refused:
                call(None, other, dst=dst, overwrite=overwrite, **options)  # type: ignore[operator]
            assert "items" in str(refused.value) or not options
    assert files(step) == before


def test_the_only_item_of_a_step_is_replaced_without_its_name(other: Path, tmp_path: Path) -> None:
    for _ in range(2):
        ckpt_surgery.convert(other, tmp_path / "run", dst_step=20, overwrite=True)
    assert_items(tmp_path / "run", {"default": NEW})
    ckpt_surgery.convert(other, tmp_path / "state", dst_step=20, dst_item="state")
    with pytest.raises(DestinationError, match=r"does not write \(state\)"):
        ckpt_surgery.convert(other, tmp_path / "state", dst_step=20, overwrite=True)


def test_no_item_is_added_to_a_save_that_was_not_finished(other: Path, step: Path) -> None:
    (step / "commit_success.txt").unlink()
    about = json.loads((step / "_CHECKPOINT_METADATA").read_text())
    (step / "_CHECKPOINT_METADATA").write_text(json.dumps(about | {"commit_timestamp_nsecs": None}))
    with pytest.raises(DestinationError, match="never committed"):
        add(other, step, "new")


def test_what_is_no_checkpoint_is_not_replaced_as_an_item(other: Path, step: Path) -> None:
    for item, file in (("iter", "metadata"), ("ema", "notes.txt")):
        (step / item / file).touch()
        with pytest.raises(DestinationError):
            add(other, step, item, overwrite=True)


@pytest.mark.parametrize("change", ["another item", "removed"])
def test_a_step_that_changes_meanwhile(change: str, other: Path, step: Path) -> None:
    def meddle(plan: object) -> None:
        if change == "removed":
            step.rename(step.parent / "moved")
        else:
            (step / "iter" / "metadata").write_text('{"position": 4}')

    with pytest.raises((DestinationError, SourceError, SurgeryError)):
        add(other, step, "new", on_plan=meddle)
    assert (step.exists(), (step / "new").exists()) == (change != "removed", False)


def test_two_runs_on_two_items(other: Path, step: Path) -> None:
    """The lock is the step's: the second run does not wait."""
    with (
        staged(step),
        pytest.raises(DestinationError, match=r"writ"),
    ):
        add(other, step, "new")
    done = []

    def second(plan: object) -> None:
        if not done:
            done.append(1)
            add(other, step, "second", on_plan=second)

    with pytest.raises(DestinationError, match="changed during this run"):
        add(other, step, "first", on_plan=second)
    assert_items(step.parent, WHOLE | {"second": NEW})


# --- interruptions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["links", "before", "after"])
def test_a_run_that_is_killed(when: str, other: Path, step: Path) -> None:
    before, links = others_of(step, "ema/"), itertools.count(1)
    link, exchange = os.link, renaming.exchange

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
        add(other, step, "ema", overwrite=True)
    assert others_of(step, "ema/") == before
    assert_items(step.parent, WHOLE | ({"ema": NEW} if when == "after" else {}))
    add(other, step, "ema", overwrite=True, resume=True)
    assert_items(step.parent, WHOLE | {"ema": NEW})
    assert others_of(step, "ema/") == before
    assert names(step.parent) == ["20"]


def test_an_exchange_in_steps(other: Path, step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On file systems that cannot exchange names; what a killed run moved aside is put back first."""
    monkeypatch.setattr(renaming, "_rename_in_one_step", refusing(errno.EINVAL))
    add(other, step, "ema", overwrite=True)
    assert_items(step.parent, WHOLE | {"ema": NEW})
    aside = step.parent / f".20.ckpt-surgery-{'0' * 16}" / "old"
    aside.parent.mkdir()
    step.rename(aside)
    age(aside.parent, 600)
    add(other, step, "new")
    assert_items(step.parent, WHOLE | {"ema": NEW, "new": NEW})


def test_a_run_that_is_resumed_takes_the_others_as_they_are(
    source: Path, step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "double.yaml"
    recipe.write_text("version: 1\nrules: [{match: '.*', value: 'x + x'}]\n")
    options: dict[str, Any] = {"dst": step.parent, "dst_step": 20, "item": "items"}

    def interrupt(*args: object) -> None:
        raise Interrupted(signal.SIGTERM, "stopped")

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(local, "interruptibly", interrupt)
        ckpt_surgery.apply(recipe, source, dst_item="twice", **options)
    (step / "iter" / "metadata").write_text('{"position": 9}')
    with pytest.raises(PlanError, match="cannot be resumed"):
        ckpt_surgery.apply(recipe, source, dst_item="else", resume=True, **options)
    ckpt_surgery.apply(recipe, source, dst_item="twice", resume=True, **options)
    twice = {"w": STATE["w"] * 2, "n": np.int32(14)}
    assert_items(step.parent, WHOLE | {"iter": {"position": 9}, "twice": twice})


# --- several machines -------------------------------------------------------------------------------------


def test_shards(source: Path, step: Path, tmp_path: Path) -> None:
    recipe, file = tmp_path / "double.yaml", tmp_path / "plan.json"
    recipe.write_text("version: 1\nrules: [{match: '.*', value: 'x + x'}]\n")
    options: dict[str, Any] = {"dst": step.parent, "dst_step": 20, "dst_item": "twice"}
    ckpt_surgery.plan(recipe, source, item="ema", out=file, **options)
    before = others_of(step)
    for index in range(2):
        sharding.apply_shard(file, shard=f"{index}/2")
    assert sharding.commit(step.parent) is not None
    assert_items(step.parent, WHOLE | {"twice": {"w": np.ones(12, np.float32)}})
    assert others_of(step, "twice/") == before
    with pytest.raises(DestinationError, match=r"published there|exists already"):
        sharding.apply_shard(file, shard="0/2")
    ckpt_surgery.plan(recipe, source, item="ema", out=file, **options | {"dst_item": "more"})
    sharding.apply_shard(file, shard="0/1")
    (step / "iter" / "metadata").write_text('{"position": 9}')
    with pytest.raises(DestinationError, match="changed"):
        sharding.commit(step.parent)


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


DROPPED = [("ema", "arrays"), ("iter", "json"), ("metrics", "json")]


@pytest.mark.parametrize("options", [{"dst_step": 3}, {}, {"format": "safetensors"}])
def test_items_that_are_not_carried_over(options: dict[str, Any], source: Path, tmp_path: Path) -> None:
    plan = ckpt_surgery.plan(None, source, item="items", dst=tmp_path / "out", **options)
    assert [(gone.item, gone.kind) for gone in plan.dropped_items] == DROPPED
    iterator = plan.dropped_items[1]
    assert iterator.bytes == sum(p.stat().st_size for p in (source / "20" / "iter").iterdir())
    assert ("no items" in iterator.why) == ("dst_step" not in options)


def test_items_that_are_sources_are_not_dropped(source: Path, tmp_path: Path) -> None:
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
        assert document["replaces"] == {
            "path": str(step), "items": ["ema"], "stays": ["items", "iter", "metrics"],
        }  # fmt: skip
        assert [gone["item"] for gone in document["dropped_items"]] == ["ema", "iter", "metrics"]
    report = run(*given[:-1], "third", "--report", tmp_path / "report.html")
    assert report.exit_code == 0, report.output
    assert "DROPPED item iter, " in (tmp_path / "report.html").read_text()
    assert_items(step.parent, WHOLE | {"ema": STATE, "third": STATE})
    added = run(*given[:-1], "more", "--json", tmp_path / "added.json")
    assert added.exit_code == 0, added.output
    assert json.loads((tmp_path / "added.json").read_text())["replaces"] is None
    changes = run("plan", "-e", "s|nothing|x|", source, "--item", "items", "--detailed-exitcode")
    assert changes.exit_code in (1, 2)


def test_a_checkpoint_that_is_replaced_is_told(other: Path, tmp_path: Path) -> None:
    for name in ("out", "out.safetensors"):
        ckpt_surgery.convert(other, tmp_path / name)
        plan = ckpt_surgery.plan(None, other, dst=tmp_path / name, overwrite=True)
        assert plan.replaces is not None
        assert (plan.replaces.path, plan.replaces.items) == (str(tmp_path / name), ())
        assert plan.replaces.nbytes > 20


@pytest.fixture(autouse=True)
def _no_leftovers(tmp_path: Path) -> Iterator[None]:
    yield
    assert not list(tmp_path.rglob("*.ckpt-surgery-lock"))
