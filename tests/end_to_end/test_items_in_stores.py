"""One item in a step that lies in a bucket: its own objects change, and those of the step that list items."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import sharding
from ckpt_surgery.core.errors import DestinationError, SurgeryError
from ckpt_surgery.engine.staging import heartbeat
from ckpt_surgery.storage import views
from ckpt_surgery.storage.store import registered, store_of
from tests.support.checkpoints import quiet
from tests.support.comparing import assert_same
from tests.support.ended_runs import Killed
from tests.support.key_value import KeyValueStore, downloaded, key_value
from tests.support.object_runs import Dying

STATE = {"w": np.arange(12, dtype=np.float32)}
EMA = {"w": np.full(12, 0.5, np.float32)}
NEW = {"v": np.arange(5, dtype=np.float32)}


@pytest.fixture
def run(tmp_path: Path, own_temporary_directory: Path) -> Iterator[str]:
    """A manager's directory in a bucket, with a step of two items of arrays and one of JSON."""
    items = {
        "items": ocp.args.StandardSave(STATE),
        "ema": ocp.args.StandardSave(EMA),
        "iter": ocp.args.JsonSave({"position": 3}),
    }
    with quiet(), ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(20, args=ocp.args.Composite(**items), custom_metadata={"lr": 0.1})
    views.forget()
    with key_value(tmp_path / "bucket") as url:
        store = store_of(url)[0]
        for file in (path for path in (tmp_path / "run").rglob("*") if path.is_file()):
            store.put(str(file.relative_to(tmp_path)), file.read_bytes())
        yield f"{url}/run"
    views.forget()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "other", NEW)
    return tmp_path / "other"


def objects(run: str) -> dict[str, tuple[str, bytes]]:
    """Version and bytes of every object of the step, by its name there."""
    store, name = store_of(f"{run}/20")
    found = store.walk(f"{name}/")
    return {one[len(name) + 1 :]: (stat.version, store.read(one)) for one, stat in found.items()}


REWRITTEN = ("_CHECKPOINT_METADATA", "ckpt_surgery.json")


def others_of(run: str, item: str) -> dict[str, tuple[str, bytes]]:
    """The objects that writing an item does not change, the step's marker among them."""
    return {
        name: found
        for name, found in objects(run).items()
        if name not in REWRITTEN and not name.startswith((f"{item}/", ".ckpt-surgery/"))
    }


def restored(run: str, directory: Path) -> dict[str, Any]:
    """What a manager restores of a copy on the disk when it is asked for nothing in particular."""
    downloaded(f"{run}/20", directory / "20")
    with quiet(), ocp.CheckpointManager(directory) as manager:
        return dict(manager.restore(20).items())


def assert_items(run: str, directory: Path, **more: Any) -> None:
    found, wanted = restored(run, directory), {"items": STATE, "ema": EMA, "iter": {"position": 3}} | more
    assert found.keys() == wanted.keys()
    assert found.pop("iter") == wanted.pop("iter")
    for name, value in wanted.items():
        assert_same(found[name], value)


def add(other: Path, run: str, item: str, **options: Any) -> ckpt_surgery.Result:
    return ckpt_surgery.convert(other, run, dst_step=20, dst_item=item, **options)


def test_an_item_is_added_and_replaced(other: Path, run: str, tmp_path: Path) -> None:
    before = others_of(run, "new")
    add(other, run, "new")
    assert_items(run, tmp_path / "one", new=NEW)
    assert others_of(run, "new") == before
    about = json.loads(objects(run)["_CHECKPOINT_METADATA"][1])
    assert about["custom_metadata"] == {"lr": 0.1}
    with pytest.raises(DestinationError, match=r"20/ema: exists already"):
        add(other, run, "ema")
    before = others_of(run, "ema")
    result = add(other, run, "ema", overwrite=True)
    assert result.plan.replaces is not None
    assert (result.plan.replaces.items, result.plan.replaces.stays) == (("ema",), ("items", "iter", "new"))
    assert_items(run, tmp_path / "two", ema=NEW, new=NEW)
    assert others_of(run, "ema") == before
    assert not [name for name in objects(run) if name.startswith(".ckpt-surgery")]
    for item in ("new", "ema"):
        assert ckpt_surgery.verify(run, item=item).flaws == ()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_step_of_several_items_is_not_replaced(overwrite: bool, other: Path, run: str) -> None:
    before = objects(run)
    for dst, options in ((run, {"dst_step": 20}), (f"{run}/20", {})):
        with pytest.raises(DestinationError):
            ckpt_surgery.apply(None, other, dst=dst, overwrite=overwrite, **options)  # type: ignore[arg-type]
    assert objects(run) == before


def test_a_step_that_changes_meanwhile(other: Path, run: str) -> None:
    store, name = store_of(f"{run}/20")

    def meddle(plan: object) -> None:
        store.put(f"{name}/iter/metadata", b'{"position": 4}')

    with pytest.raises(DestinationError):
        add(other, run, "new", on_plan=meddle)
    assert not [name for name in objects(run) if name.startswith("new/")]


def test_two_runs_on_two_items(other: Path, run: str, tmp_path: Path) -> None:
    done: list[int] = []

    def second(progress: object) -> None:
        if not done:
            done.append(1)
            with pytest.raises(DestinationError):
                add(other, run, "second")

    rule = "version: 1\nrules: [{match: '.*', value: 'x + 0'}]\n"
    ckpt_surgery.apply(rule, other, dst=run, dst_step=20, dst_item="first", progress=second)
    assert done
    assert_items(run, tmp_path / "copy", first=NEW)


def test_shards(other: Path, run: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ckpt_surgery.plan(None, other, dst=run, dst_step=20, dst_item="new", out=file)
    before = others_of(run, "new")
    sharding.apply_shard(file, shard="0/1")
    assert sharding.commit(run) is not None
    assert_items(run, tmp_path / "copy", new=NEW)
    assert others_of(run, "new") == before
    assert sharding.commit(f"{run}/20") is None, "published already"
    with pytest.raises(DestinationError):
        sharding.apply_shard(file, shard="0/1")


@pytest.mark.parametrize("overwrite", [False, True])
def test_runs_that_end_at_any_request(
    overwrite: bool, other: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other items are never touched, and the next run completes what was begun."""
    monkeypatch.setattr(heartbeat, "has_ended", lambda owner: True)
    item = "ema" if overwrite else "new"
    store, inner = store_of(run)[0], KeyValueStore("kv://bucket", tmp_path / "bucket")
    whole = {name: store.read(name) for name in store.walk()}
    before = {name: data for name, (_, data) in others_of(run, item).items()}
    number, seen = 0, set()

    def die() -> None:
        raise Killed

    while True:
        number += 3
        views.forget()
        try:
            with registered("kv", lambda root, at=number: Dying(inner, at, False, die)):  # type: ignore[misc]
                add(other, run, item, overwrite=overwrite, workers=1)
            break
        except Killed:
            pass
        views.forget()
        assert {name: data for name, (_, data) in others_of(run, item).items()} == before
        try:
            add(other, run, item, overwrite=overwrite)
            seen.add("written")
        except SurgeryError as error:
            assert "exists already" in str(error)
            seen.add("completed")
        assert_items(run, tmp_path / f"copy{number}", **{item: NEW})
        assert not [name for name in objects(run) if name.startswith(".ckpt-surgery")]
        store.delete(list(store.walk()))
        for name, data in whole.items():
            store.put(name, data)
    assert "written" in seen
    assert number > 14
