"""Whose lock of a destination in a store it is, who may take it over, and what its loser does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, StorageError
from ckpt_surgery.engine.staging.locks import LEASE, ObjectLock
from ckpt_surgery.engine.staging.owners import Note, Owner, note_bytes, this_process
from ckpt_surgery.storage.store import (
    Buffer,
    Condition,
    ConditionFailed,
    Only,
    Stat,
    registered,
    store_of,
)
from tests.support.key_value import KeyValueStore, key_value
from tests.support.object_runs import at, run, staged, state

URL = "kv://bucket/runs/out"
LOCK = "runs/.out.ckpt-surgery-lock"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[KeyValueStore]:
    with key_value(tmp_path / "bucket"):
        found = store_of(URL)[0]
        assert isinstance(found, KeyValueStore)
        yield found


def elsewhere(**changes: object) -> Owner:
    owner = this_process("0123456789abcdef")
    return replace(owner, host="elsewhere", boot="another", **changes)


def put_lock(store: KeyValueStore, owner: Owner) -> Stat:
    return store.put(LOCK, note_bytes(Note(owner, sign=1)))


def at_age(monkeypatch: pytest.MonkeyPatch, store: KeyValueStore, seconds: float) -> None:
    """Let the store's clock show a time after its lock was written."""
    found = store.stat(LOCK)
    assert found is not None
    monkeypatch.setattr(KeyValueStore, "now", lambda self: found.modified + int(seconds * 1e9))


def test_of_two_that_take_over_one_wins(store: KeyValueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = put_lock(store, elsewhere())
    at_age(monkeypatch, store, LEASE + 1)
    first, second = ObjectLock(store, LOCK), ObjectLock(store, LOCK)
    first.acquire()
    assert not second._put(stat.version)
    first.confirm()


def test_a_lost_lock_ends_the_run_at_its_next_object(store: KeyValueStore) -> None:
    with (
        pytest.raises(DestinationError, match="on elsewhere has taken over this destination"),
        staged(URL) as staging,
    ):
        draft = store_of(staging.work)[0]
        draft.put("d/0", b"x")
        put_lock(store, elsewhere())
        staging.lock.renew()  # what the thread does
        draft.put("d/1", b"x")
    found = at(URL)
    assert "d/1" not in found
    assert json.loads(found[LOCK])["owner"]["host"] == "elsewhere"


def test_each_sign_of_life_is_another_and_there_is_none_after_the_release(
    store: KeyValueStore,
) -> None:
    lock = ObjectLock(store, LOCK)
    lock.acquire()
    contents = {store.read(LOCK)}
    for _ in range(3):
        lock.renew()
        contents.add(store.read(LOCK))
    assert len(contents) == 4
    lock.release()
    lock.renew()
    assert store.stat(LOCK) is None


# --- stores that answer otherwise -----------------------------------------------------------------


class Unconditional(KeyValueStore):
    """A store that knows no conditions, and says nothing about it."""

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        return super().put(name, data)


class Forgetful(KeyValueStore):
    """A store that does what it is asked, and whose answers to conditional requests are lost."""

    def __init__(self, url: str, directory: Path, name: str):
        super().__init__(url, directory)
        self.name = name
        self.lost = 0

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        found = super().put(name, data, only)
        if only is not Only.ANY and name.endswith(self.name):
            self.lost += 1
            raise ConditionFailed(f"{name} is there already")
        return found


def test_a_store_without_conditions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    with (
        registered("kv", lambda root: Unconditional(root, tmp_path / "bucket")),
        pytest.raises(
            StorageError, match="replaces objects that are to be written only where there are none"
        ),
    ):
        run(URL, "new")
    assert list((tmp_path / "bucket").glob("*.o")) == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["", "commit_success.txt", "_METADATA", "manifest.ocdbt", "-lock"])
def test_lost_answers_are_recognized(tmp_path: Path, name: str, overwrite: bool) -> None:
    with key_value(tmp_path / "bucket"):
        if overwrite:
            run(URL, "old")
        store = Forgetful("kv://bucket", tmp_path / "bucket", name)
        with registered("kv", lambda root: store):
            assert run(URL, "new", overwrite=overwrite).published
        assert store.lost
        assert state(URL) == "new"
        assert LOCK not in at(URL)


def test_the_marker_of_another_run_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    class Overtaken(KeyValueStore):
        """Another run puts its marker right before this one."""

        def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
            if name.endswith("commit_success.txt"):
                super().put(name, bytes(len(data)))
            return super().put(name, data, only)

    (tmp_path / "bucket").mkdir()
    with registered("kv", lambda root: Overtaken(root, tmp_path / "bucket")):
        with pytest.raises(DestinationError, match="another process has written it"):
            run(URL, "new")
        assert set(at(URL)["commit_success.txt"]) == {0}
