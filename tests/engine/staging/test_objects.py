"""Publishing in a store: what is there afterwards, what is refused, and what others have written."""

import signal
from dataclasses import replace

import pytest

from ckpt_surgery.core.errors import DestinationError, Interrupted, StorageError
from ckpt_surgery.engine.staging import life, object_leftovers
from ckpt_surgery.engine.staging.objects import StoreStage, roll_forward
from ckpt_surgery.storage.store import store_of
from tests.support.ended_runs import IDENTITY
from tests.support.generations import replaced_at
from tests.support.object_runs import MARKER, at, run, staged, state, whole, write


def test_somebodys_objects_without_marker_are_refused_and_replaced_with_overwrite(url: str) -> None:
    store, name = store_of(url)
    store.put(f"{name}/notes.txt", b"mine")
    with pytest.raises(DestinationError, match="exists already"):
        run(url, "new")
    assert at(url) == {"notes.txt": b"mine"}
    run(url, "new", overwrite=True)
    assert at(url).keys() == {*whole("new"), MARKER}


@pytest.mark.parametrize(
    ("name", "data", "before"),
    [("_METADATA", b"other", "old"), (MARKER, b"another run", ""), ("d/new1", None, "")],
    ids=["replaced", "new", "lost"],
)
def test_what_another_program_changes_during_a_run_is_not_published(
    name: str, data: bytes | None, before: str, url: str
) -> None:
    if before:
        run(url, before)
    store, prefix = store_of(url)
    with (
        pytest.raises(DestinationError, match=f"/{name}: .* deleted during this run"),
        staged(url, overwrite=bool(before)) as staging,
    ):
        write(staging, "new")
        store.delete([f"{prefix}/{name}"])
        if data is not None:
            store.put(f"{prefix}/{name}", data)
        staging.publish()
    assert at(url).keys() == ({*whole(before), MARKER} if before else {name} if data else set())


def test_a_step_that_is_gone_is_not_made_anew_for_one_item(url: str) -> None:
    run(url, "old")
    looked_at = replaced_at(url, overwrite=True)
    assert looked_at is not None
    stage = StoreStage(url, IDENTITY, replace(looked_at, one_item=True), "default")
    store, name = store_of(url)
    store.delete(list(store.walk(name)))
    with pytest.raises(DestinationError, match="changed during this run"), life.staged(stage):
        pass
    assert at(url) == {}


# --- failures -------------------------------------------------------------------------------------


def interrupted(url: str, value: str, tasks: bool = True, **options: bool) -> Interrupted:
    failure = Interrupted(signal.SIGTERM, "stopped by SIGTERM")
    with pytest.raises(Interrupted), staged(url, **options) as staging:
        store_of(staging.work)[0].put(f"d/{value}0", value.encode())
        if tasks:
            staging.journal("0").add(b"{}\n")
        raise failure
    return failure


def test_nothing_to_roll_forward(url: str) -> None:
    assert roll_forward(url) == ()
    run(url, "old")
    interrupted(url, "new", overwrite=True)
    before = at(url)
    assert roll_forward(url) == ()
    assert at(url) == before


def test_what_others_wrote_for_a_run_is_published_with_it_and_survives_its_failure(url: str) -> None:
    store, name = store_of(url)
    store.put(f"{name}/d/_new_0", b"_new_")
    with pytest.raises(StorageError), staged(url, shards="new") as staging:
        assert set(staging.draft.data) == {"d/_new_0"}
        raise StorageError("no space")
    assert at(url) == {"d/_new_0": b"_new_"}
    run(url, "_new_", shards="new")
    assert state(url) == "_new_"
    assert at(url).keys() == {*whole("_new_"), MARKER}


def test_an_object_that_came_after_a_run_had_died_is_not_its_own(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(url, "dead")
    monkeypatch.setattr(object_leftovers, "LEASE", -3600.0)  # as if it had been long ago
    with pytest.raises(DestinationError, match="exists already"):
        run(url, "new")
    assert at(url)["d/dead0"] == b"dead"
