"""Runs that link or copy, and fail: the error has its kind, the source is untouched, nothing is left.

Files change between plan and run, file systems refuse links, disks are full, signals arrive in the middle.
"""

import errno
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import Interrupted, SourceError, StorageError
from ckpt_surgery.planner.plan import Plan, Transfer
from ckpt_surgery.storage import linking
from tests.support import linked_sources
from tests.support.comparing import assert_same
from tests.support.directories import copy_of, names, state_of
from tests.support.failing import refusing
from tests.support.linked_sources import Layout, everything, results
from tests.support.reading import read


@pytest.mark.parametrize("mode", ["auto", "copy"])
@pytest.mark.parametrize("fault", ["truncated", "deleted", "grown", "replaced"])
@pytest.mark.parametrize("name", ["plain-zarr2", "ocdbt-zarr3", "safetensors"])
def test_a_source_that_changes_after_the_plan_is_refused(
    name: str, fault: str, mode: str, layout: Layout, tmp_path: Path
) -> None:
    source = copy_of(layout(name), tmp_path / "source")

    def meddle(plan: Plan) -> None:
        size, path = max((path.stat().st_size, path) for path in source.rglob("*") if path.is_file())
        if fault == "deleted":
            path.unlink()
        elif fault == "replaced":
            path.unlink()
            path.write_bytes(bytes(size))
        else:
            os.truncate(path, size // 2 if fault == "truncated" else size + 1)

    with pytest.raises(SourceError):
        applying.apply(None, source, dst=tmp_path / "out", link_mode=mode, on_plan=meddle)
    assert names(tmp_path) == ["source"]


@pytest.mark.slow("writes each layout several times")
@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("mode", ["auto", "hardlink"])
def test_a_file_system_that_does_not_link_has_its_files_copied(
    mode: str, number: int, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result counts them as copied, and says why."""
    monkeypatch.setattr(linking, "reflink", refusing(errno.EOPNOTSUPP))
    monkeypatch.setattr(os, "link", refusing(number))
    source, plans = layout("ocdbt-zarr2"), []
    recipe = linked_sources.recipe()
    result = applying.apply(recipe, source, dst=tmp_path / "out", link_mode=mode, on_plan=plans.append)
    assert_same(read(tmp_path / "out"), results("ocdbt-zarr2"))
    planned, done = plans[0].costs, result.plan.costs
    in_index = sum(s.leaf.nbytes for s in result.plan.steps if s.transfer is Transfer.LINK)
    assert planned.bytes_linked > done.bytes_linked == in_index
    assert done.bytes_linked + done.bytes_copied == planned.bytes_linked + planned.bytes_copied
    assert done.bytes_read > planned.bytes_read
    assert result.shared == ()
    (notice,) = result.notices
    told = rf"copied because no link was possible: \d+ files? \(.+\): {os.strerror(number)}"
    assert re.fullmatch(told, notice)


@pytest.mark.parametrize("mode", ["auto", "hardlink"])
def test_there_has_to_be_space_for_what_cannot_be_linked(
    mode: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not fit where the run is, though what the plan says would."""
    monkeypatch.setattr(linking, "reflink", refusing(errno.EOPNOTSUPP))
    monkeypatch.setattr(os, "link", refusing(errno.EMLINK))
    source = layout("plain-zarr2")

    def fill(plan: Plan) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=30))

    with pytest.raises(StorageError, match=r"(?s)Too many links.*it has .* 30 B are free"):
        applying.apply(None, source, dst=tmp_path / "out", link_mode=mode, on_plan=fill)
    assert names(tmp_path) == []


@pytest.mark.parametrize("mode", ["auto", "hardlink", "copy"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_full_or_failing_disk_leaves_nothing(
    number: int, mode: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other way would help: the error is told and the source untouched."""
    monkeypatch.setattr(linking, "reflink", refusing(errno.EOPNOTSUPP))
    monkeypatch.setattr(os, "link", refusing(number))
    monkeypatch.setattr(os, "pwrite", refusing(number))
    monkeypatch.setattr(os, "replace", refusing(number))
    source = layout("safetensors")
    before = state_of(source)
    with pytest.raises(StorageError, match=os.strerror(number)) as caught:
        applying.apply(None, source, dst=tmp_path / "out", link_mode=mode)
    told = str(caught.value)
    assert "`m/" in told or f"{tmp_path}/.out.ckpt-surgery-" in told
    assert names(tmp_path) == []
    assert state_of(source) == before


@pytest.mark.parametrize("way", ["link", "replace"])
def test_a_run_that_is_interrupted_while_it_links_or_copies_is_resumed(
    way: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run goes on from there, or starts afresh where nothing was done."""
    real: Callable[..., Any] = getattr(os, way)
    sent = threading.Lock()

    def stop(*arguments: Any) -> Any:
        if sent.acquire(blocking=False):  # once, whatever the thread
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    monkeypatch.setattr(os, way, stop)
    mode = "hardlink" if way == "link" else "copy"
    with pytest.raises(Interrupted) as caught:
        applying.apply(None, layout("shards"), dst=tmp_path / "out", link_mode=mode)
    left = set(os.listdir(tmp_path))  # nothing where no task was done in time
    assert len(left) <= 1
    assert all(f"is kept in {tmp_path / name}" in str(caught.value) for name in left)
    applying.apply(None, layout("shards"), dst=tmp_path / "out", link_mode=mode, resume=True)
    assert_same(read(tmp_path / "out"), everything("shards"))
    assert names(tmp_path) == ["out"]
