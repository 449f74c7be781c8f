"""Signs of life: whose files are renewed, and by which clock they are judged."""

import errno
import os
import threading
from pathlib import Path

import pytest

from ckpt_surgery.engine.staging import heartbeat, local, owners
from tests.support.directories import names
from tests.support.generations import lock_of, write_lock

RUN = "0" * 16
"""The run that `write_lock` names."""


@pytest.mark.parametrize("silent", [120.0, 121.0])
def test_ages_are_differences_of_the_file_systems_own_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: float
) -> None:
    lock = lock_of(tmp_path / "out")
    write_lock(tmp_path / "out", boot="another")
    os.utime(lock, (1000, 1000))
    sign = heartbeat.read(lock)
    assert sign is not None
    monkeypatch.setattr(heartbeat, "_now", lambda lock: 1000 + silent)
    life = heartbeat.judge(sign, lock)
    assert life == heartbeat.Life(ended=silent > 120, known=False, age=silent)
    assert life.left == 0


def test_the_clock_is_that_of_a_file_made_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's clock says: on network file systems it is the server's that counts."""
    real = os.utime

    def at_the_server(handle: int) -> None:
        real(handle, (5_000, 5_000))

    monkeypatch.setattr(os, "utime", at_the_server)
    assert heartbeat._now(lock_of(tmp_path / "out")) == 5_000
    assert names(tmp_path) == []


def test_a_run_that_said_that_it_has_ended(tmp_path: Path) -> None:
    """Its process goes on, as a notebook's does."""
    lock = lock_of(tmp_path / "out")
    write_lock(tmp_path / "out")
    before = heartbeat.read(lock)
    assert before is not None
    assert not heartbeat.judge(before, lock).ended
    heartbeat.say_ended(lock)
    after = heartbeat.read(lock)
    assert after is not None
    assert heartbeat.judge(after, lock).ended


def test_only_the_runs_own_files_are_renewed(tmp_path: Path) -> None:
    own, others, nested, nobodys = (tmp_path / name for name in ("own", "others", "nested", "nobodys"))
    write_lock(tmp_path / "out")
    text = lock_of(tmp_path / "out").read_text()
    own.write_text(text)
    nested.write_text(f'{{"owner": {text}, "identity": {{}}}}')
    others.write_text(text.replace(RUN, "1" * 16))
    nobodys.write_text("")
    for file in (own, others, nested, nobodys):
        os.utime(file, (1000, 1000))
        heartbeat.renew(file, RUN)
    assert own.stat().st_mtime > 1000
    assert nested.stat().st_mtime > 1000
    assert others.stat().st_mtime == 1000
    assert nobodys.stat().st_mtime == 1000


def test_what_is_no_file_is_nobodys(tmp_path: Path) -> None:
    """Reading a pipe that nobody writes would never end."""
    os.mkfifo(tmp_path / "pipe")
    sign = heartbeat.read(tmp_path / "pipe")
    assert sign is not None
    assert (sign.owner, sign.document) == (None, None)


def test_a_run_renews_its_lock_and_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one of them is gone, or cannot be renewed for a while."""
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    beaten: list[Path] = []
    enough, real = threading.Event(), heartbeat.renew

    def renew(file: Path, run: str) -> None:
        beaten.append(file)
        if len(beaten) > 8:
            enough.set()
        if len(beaten) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        real(file, run)

    monkeypatch.setattr(heartbeat, "renew", renew)
    with local.staged(tmp_path / "out") as staging:
        described = staging.directory / "run.json"
        os.utime(described, (1000, 1000))
        lock_of(tmp_path / "out").unlink()
        beaten.clear()  # what was renewed before says nothing
        enough.clear()
        assert enough.wait(60)
        assert described.stat().st_mtime > 1000
    assert set(beaten) == {lock_of(tmp_path / "out"), described}
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]


def test_the_owner_in_both_files_is_the_run(tmp_path: Path) -> None:
    with local.staged(tmp_path / "out", identity={"plan": "abc"}) as staging:
        in_lock = heartbeat.read(lock_of(tmp_path / "out"))
        in_run = heartbeat.read(staging.directory / "run.json")
        assert in_lock is not None
        assert in_run is not None
        assert in_lock.owner == in_run.owner == staging.owner
        assert in_lock.document == owners.to_json(staging.owner)
        assert in_run.document == {"owner": owners.to_json(staging.owner), "identity": {"plan": "abc"}}
        assert staging.directory.name == f".out.ckpt-surgery-{staging.owner.run}"
