"""The rename that publishes, and the record beside the destination."""

import errno
import os
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, StorageError
from ckpt_surgery.engine.staging import local, renaming, syncing
from ckpt_surgery.engine.staging.local import DiskStage
from tests.support.calls import record_calls
from tests.support.directories import names
from tests.support.failing import refusing
from tests.support.generations import NEW, OLD, fill_file, found, put, staged

RECORD = "out.npz.ckpt_surgery.json"


def put_recorded(destination: Path, generation: str, overwrite: bool = False) -> DiskStage:
    """Publish one file with a record beside it."""
    with staged(destination, one_file=True, overwrite=overwrite) as staging:
        fill_file(staging.output, generation)
        (staging.directory / RECORD).write_text(f"the record of {generation}")
        staging.publish()
    return staging


def record_at(directory: Path) -> str | None:
    path = directory / RECORD
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("gone", [False, True])
def test_a_checkpoint_without_a_record_is_not_left_with_an_older_one(tmp_path: Path, gone: bool) -> None:
    put_recorded(tmp_path / "out.npz", OLD)
    if gone:
        (tmp_path / "out.npz").unlink()
    put(tmp_path / "out.npz", NEW, overwrite=not gone, one_file=True)
    assert names(tmp_path) == ["out.npz"]


def test_what_is_no_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / RECORD).mkdir()
    put(tmp_path / "out.npz", NEW, one_file=True)
    assert names(tmp_path) == ["out.npz", RECORD]


@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
def test_at_no_moment_is_a_checkpoint_beside_the_record_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stepwise: bool
) -> None:
    """Nor is any of it before all of it is durable."""
    put_recorded(tmp_path / "out.npz", OLD)
    seen: list[tuple[str | None, str | None]] = []
    synced = record_calls(monkeypatch, syncing, "_sync", lambda path, flags: path.name)
    one_step, plain = renaming._rename_in_one_step, os.rename

    def look() -> None:
        state = (found(tmp_path / "out.npz"), record_at(tmp_path))
        if not seen or seen[-1] != state:
            seen.append(state)

    def rename_in_one_step(source: Path, target: Path, way: renaming.Way) -> None:
        look()
        if stepwise:
            raise OSError(errno.EINVAL, "Invalid argument")
        one_step(source, target, way)
        look()

    def rename(source: Path, target: Path) -> None:
        look()
        if Path(target).name == RECORD:
            assert RECORD in synced
            assert synced[-2:] == [tmp_path.name, "result"]
        plain(source, target)
        look()

    monkeypatch.setattr(renaming, "_rename_in_one_step", rename_in_one_step)
    monkeypatch.setattr(os, "rename", rename)
    put_recorded(tmp_path / "out.npz", NEW, overwrite=True)
    absent: list[tuple[str | None, str | None]] = [(None, None)] if stepwise else []
    assert seen == [
        (OLD, "the record of old"),
        (OLD, None),
        *absent,
        (NEW, None),
        (NEW, "the record of new"),
    ]
    assert synced[-1] == tmp_path.name


def test_the_old_record_stays_where_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_recorded(tmp_path / "out.npz", OLD)
    with pytest.raises(DestinationError, match="another program created it"):
        put_recorded(tmp_path / "out.npz", NEW)
    assert (found(tmp_path / "out.npz"), record_at(tmp_path)) == (OLD, "the record of old")
    monkeypatch.setattr(local, "exchange", refusing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        put_recorded(tmp_path / "out.npz", NEW, overwrite=True)
    assert (found(tmp_path / "out.npz"), record_at(tmp_path)) == (OLD, "the record of old")
    assert names(tmp_path) == ["out.npz", RECORD]


def test_a_record_that_cannot_be_put_in_place_is_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = refusing(errno.EIO)
    record_calls(monkeypatch, os, "rename", lambda source, target: Path(target).name == RECORD and fail())
    staging = put_recorded(tmp_path / "out.npz", NEW)
    assert staging.notices == (
        f"{tmp_path / 'out.npz'} is new and complete; its record {tmp_path / RECORD} could not be written "
        "(Input/output error)",
    )
    assert names(tmp_path) == ["out.npz"]
