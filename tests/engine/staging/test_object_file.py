"""One object as a checkpoint: what is there afterwards, also where answers are lost and signals come."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import DestinationError, Interrupted, StorageError
from ckpt_surgery.engine.staging.life import staged
from ckpt_surgery.engine.staging.uploads import FileUpload
from ckpt_surgery.storage.store import ConditionFailed, store_of
from ckpt_surgery.system.signals import interruptible
from tests.support.calls import record_calls
from tests.support.ended_runs import IDENTITY
from tests.support.failing import raising
from tests.support.generations import replaced_at
from tests.support.key_value import KeyValueStore
from tests.support.object_runs import objects


def run(url: str, data: bytes, overwrite: bool = False, record: str = "", **more: Any) -> FileUpload:
    """A whole run. `during` is called before the file is published."""
    with staged(FileUpload(url, IDENTITY, replaced_at(url, overwrite), 0)) as stage:
        stage.output.write_bytes(data)
        if record:
            stage.put_beside(record)
        more.get("during", lambda: None)()
        stage.publish()
    return stage


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_another_process_wrote_stays(overwrite: bool, url: str, tmp_path: Path) -> None:
    if overwrite:
        run(url, b"old", record="of the old one")
    store, name = store_of(url)
    with pytest.raises(DestinationError, match="another process has written it"):
        run(url, b"new", overwrite, during=lambda: store.put(name, b"another"))
    assert objects(url).pop("out") == b"another"
    assert ("out.ckpt_surgery.json" in objects(url)) is overwrite


def test_objects_below_are_not_replaced(url: str) -> None:
    store, name = store_of(url)
    store.put(f"{name}/d/0", b"data")
    with pytest.raises(DestinationError, match="objects lie below it"):
        run(url, b"new", overwrite=True)
    assert objects(url) == {"out/d/0": b"data"}


def uploads(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None], first: bool = True) -> None:
    """Do something after, or instead of, an upload."""
    real = KeyValueStore.upload

    def upload(self: KeyValueStore, *arguments: Any) -> Any:
        found = real(self, *arguments) if first else None
        then()
        return found

    monkeypatch.setattr(KeyValueStore, "upload", upload)


@pytest.mark.parametrize("error", [ConditionFailed("is there"), StorageError("no answer")])
def test_a_lost_answer_is_no_failure(error: Exception, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose() -> None:
        raise error

    uploads(monkeypatch, lose)
    assert run(url, b"new", record="made by me").published
    assert objects(url).keys() == {"out", "out.ckpt_surgery.json"}


@pytest.mark.parametrize("before", [False, True])
def test_a_signal_tells_what_is_there(before: bool, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        if before:
            raise StorageError("it was ended")

    uploads(monkeypatch, interrupt, first=not before)
    with interruptible(), pytest.raises((Interrupted, StorageError)) as caught:
        run(url, b"new")
    if before:
        assert objects(url) == {}
    else:
        assert f"{url} is new and complete" in str(caught.value)
        assert objects(url) == {"out": b"new"}


def test_a_record_that_cannot_be_put_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = raising(lambda: StorageError("the store is tired"))
    record_calls(monkeypatch, KeyValueStore, "put", lambda at, name, *_: name.endswith(".json") and fail())
    staging = run(url, b"new", record="made by me")
    assert staging.published
    assert "its record" in staging.notices[0]
    assert "the store is tired" in staging.notices[0]
