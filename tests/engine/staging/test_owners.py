"""Whether a process has ended, on systems that tell it in different ways."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import owners
from tests.support.generations import NEW, found, put, write_lock

HERE = owners.this_process("0123456789abcdef")


def pid_that_ended() -> int:
    """The number of a process that has been reaped."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        pass
    return child.pid


def test_a_proc_of_another_namespace_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the directory of the machine is mounted in a container."""
    real = tmp_path / "sys/kernel/random/boot_id"
    real.parent.mkdir(parents=True)
    real.write_text("abc\n")
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / str(os.getpid()) / "ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[7]")
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert owners._system() == ("abc", "pid:[7]")
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to("1")
    assert owners._system() == ("", "")


@pytest.mark.parametrize("told", [b"5A0F-12", None])
def test_macos_tells_its_boot_session(monkeypatch: pytest.MonkeyPatch, told: bytes | None) -> None:
    def sysctlbyname(name: bytes, text: Any, size: Any, new: None, length: ctypes.c_size_t) -> int:
        assert (name, new, length.value) == (b"kern.bootsessionuuid", None, 0)
        if told is None:
            return -1
        text.value = told
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=sysctlbyname))
    assert owners._system() == ((told or b"").decode(), "macos")
    assert owners.has_ended(replace(HERE, boot="5A0F-12", namespace="macos")) is (False if told else None)


@pytest.mark.parametrize(
    "changes", [{"pid": "1"}, {"pid": True}, {"pid": 0}, {"pid": 2**40}, {"host": None}, {"run": 1}]
)
def test_what_is_no_owner(changes: dict[str, Any]) -> None:
    document = {"owner": asdict(HERE) | changes, "identity": {"plan": "abc"}}
    assert owners.parse_note(json.dumps(document).encode()) == owners.Note()


@pytest.mark.parametrize("content", [b"", b"{", b"7", b"[]", b"[" * 100_000, b'{"owner": {}}', b"\xff"])
def test_what_is_damaged_tells_nothing(content: bytes) -> None:
    assert owners.parse_note(content) == owners.Note()


def test_a_process_that_is_hidden_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other users' processes are where /proc was mounted with `hidepid`."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/stat").write_text("1 (x) R")
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    assert owners._start_time(os.getpid()) == "running"
    assert owners._start_time(pid_that_ended()) == ""


def test_a_process_that_waits_to_be_reaped_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owners._start_time(child.pid) == ""
    assert owners._start_time(os.getpid()) != ""


# --- without /proc --------------------------------------------------------------------------------


@pytest.fixture(params=["ps", "no ps"])
def without_proc(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As on macOS, where ps(1) tells of processes; and as where not even that is there."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(owners, "_PROC", tmp_path / "empty")
    monkeypatch.setattr(owners, "_system", lambda: ("B00", "macos"))
    if request.param == "no ps":
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    elif shutil.which("ps") is None:
        fake_ps(tmp_path / "bin", monkeypatch)
    return str(request.param)


def fake_ps(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ps(1) for machines that lack it: state and start of a process, from Linux's /proc."""
    directory.mkdir()
    (directory / "ps").write_text(
        f"#!{sys.executable}\nimport sys\n"
        "fields = open(f'/proc/{sys.argv[-1]}/stat').read().rpartition(')')[2].split()\n"
        "print(fields[0] + '+', ' Sun Nov 22', fields[19])\n"
    )
    (directory / "ps").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        (dict, ()),
        (lambda: {"pid": pid_that_ended()}, ("ps", "no ps")),
        (lambda: {"started": "Sat Jan  1 00:00:00 2000"}, ("ps",)),  # another process of the same number
        (lambda: {"started": "running"}, ()),  # made without ps
    ],
    ids=["alive", "ended", "another", "unknown"],
)
def test_without_proc_only_a_run_that_is_known_to_be_dead_is_disturbed(
    changes: Callable[[], dict[str, Any]], dead: tuple[str, ...], tmp_path: Path, without_proc: str
) -> None:
    write_lock(tmp_path / "out", **changes())
    if without_proc in dead:
        assert len(put(tmp_path / "out", NEW)) == 1
        assert found(tmp_path / "out") == NEW
        return
    with pytest.raises(DestinationError, match=f"process {os.getpid()}(.|\n)*remove the lock file"):
        put(tmp_path / "out", NEW)


def test_without_proc_a_process_that_waits_to_be_reaped(without_proc: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owners._start_time(child.pid) == ("" if without_proc == "ps" else "running")
