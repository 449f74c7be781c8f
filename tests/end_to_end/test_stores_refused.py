"""Stores that refuse, forget and change while a command runs: what is told, and what is there then."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.formats.shared.orbax_layout import COMMIT_FILE
from ckpt_surgery.storage import remote, store
from ckpt_surgery.storage.store import store_of
from tests.emulators.disturbing import Asked
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    save_pytree(tmp_path / "in", {name: chance.random(900) for name in "abc"})
    (tmp_path / "keep.yaml").write_text("version: 1\nrules: []\n")
    (tmp_path / "double.yaml").write_text("version: 1\nrules: [{match: '.*', value: x * 2}]\n")
    return tmp_path / "in"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, s3_bucket: Bucket) -> Iterator[None]:
    """A request is repeated once only."""
    monkeypatch.setattr(remote, "_RETRY", {**remote._RETRY, "max_retries": 1})
    store._opened.cache_clear()
    yield
    store._opened.cache_clear()


def objects(bucket: Bucket) -> dict[str, bytes]:
    """Every object of a bucket."""
    bucket.server.clear()
    opened = store_of(f"{bucket.url}/x")[0]
    return {name: opened.read(name) for name in opened.walk()}


def check_told(output: str, *told: str) -> None:
    """The command ends with one short paragraph, without a traceback, that tells this."""
    text = " ".join(output.split())
    assert "Traceback" not in text
    assert len(re.findall("Error: ", text)) == 1, text
    for one in told:
        assert one in text, text


# --- stores that refuse -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_store_that_knows_no_conditions(source: Path, s3_bucket: Bucket) -> None:
    s3_bucket.server.refuse = lambda asked, number: 501 if asked.method == "PUT" else None
    done = run("apply", source.parent / "keep.yaml", source, f"{s3_bucket.url}/out")
    assert done.exit_code == 5
    check_told(done.output, "does not know conditional writes", "Use a store that has them")
    assert objects(s3_bucket) == {}


def test_retries_end_within_a_minute() -> None:
    """What is between the attempts, and the longest that all of them together may take."""
    pauses = remote._RETRY["backoff"]
    longest = sum(
        min(pauses["init_backoff"] * pauses["base"] ** n, pauses["max_backoff"]).total_seconds()  # type: ignore[index]
        for n in range(remote._RETRY["max_retries"])  # type: ignore[call-overload]
    )
    assert longest < 60
    assert remote._RETRY["retry_timeout"].total_seconds() <= 60  # type: ignore[attr-defined]


@pytest.mark.usefixtures("impatient")
def test_a_prefix_that_may_only_be_read(source: Path, s3_bucket: Bucket) -> None:
    ckpt_surgery.apply(None, source, dst=f"{s3_bucket.url}/old")
    before = objects(s3_bucket)
    s3_bucket.server.refuse = lambda asked, number: 403 if asked.method in ("PUT", "POST", "DELETE") else None
    assert run("inspect", f"{s3_bucket.url}/old").exit_code == 0
    done = run("apply", source.parent / "keep.yaml", f"{s3_bucket.url}/old", f"{s3_bucket.url}/new")
    assert done.exit_code == 5
    check_told(done.output, f"{s3_bucket.url}/.new.ckpt-surgery-lock", "the store refuses it")
    assert objects(s3_bucket) == before


@pytest.mark.slow("waits for a server that stops")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("overwrite", [pytest.param(False, marks=pytest.mark.slow("one more case")), True])
@pytest.mark.parametrize("part", ["/d/", "_METADATA", COMMIT_FILE])
def test_a_store_that_stops_in_the_middle(
    part: str, overwrite: bool, source: Path, s3_bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses everything from one object on. Once it answers again, the next run puts all in order."""
    url = f"{s3_bucket.url}/out"
    if overwrite:
        ckpt_surgery.apply(source.parent / "double.yaml", source, dst=url)
    down = []

    def refuse(asked: Asked, number: int) -> int | None:
        if (
            asked.method == "PUT"
            and asked.path.startswith(f"/{s3_bucket.url[5:]}/out/")
            and part in asked.path
        ):
            down.append(number)
        return 500 if down else None

    s3_bucket.server.clear()
    s3_bucket.server.refuse = refuse
    with pytest.raises(StorageError) as raised:
        ckpt_surgery.apply(None, source, dst=url, overwrite=overwrite)
    assert down
    told = str(raised.value)
    found = objects(s3_bucket)
    if part == "/d/":
        assert (f"out/{COMMIT_FILE}" in found) == overwrite
    else:
        assert "commit" in told
        assert f"out/{COMMIT_FILE}" not in found or overwrite
    monkeypatch.setattr("ckpt_surgery.engine.staging.heartbeat.has_ended", lambda owner: True)
    ckpt_surgery.apply(None, source, dst=url, overwrite=True)
    assert not ckpt_surgery.diff(source, url, values=True).different
    assert not [name for name in objects(s3_bucket) if "ckpt-surgery/" in name or "lock" in name]


# --- what changes while a command runs --------------------------------------------------------------------


@pytest.mark.parametrize("written", [False, True], ids=["deleted", "written"])
def test_a_source_that_changes_after_the_plan(written: bool, source: Path, s3_bucket: Bucket) -> None:
    given = f"{s3_bucket.url}/in"
    ckpt_surgery.apply(None, source, dst=given)
    opened, name = store_of(given)
    data = next(one for one in opened.walk(f"{name}/") if "process" in one and "/d/" in one)

    def act(plan: object) -> None:
        if written:
            opened.put(data, bytes(len(opened.read(data))))
        else:
            opened.delete([data])

    with pytest.raises(SourceError) as raised:
        ckpt_surgery.apply(source.parent / "double.yaml", given, dst=f"{s3_bucket.url}/out", on_plan=act)
    assert raised.value.exit_code == 1
    assert data in str(raised.value)
    assert not [one for one in objects(s3_bucket) if "out" in one]
