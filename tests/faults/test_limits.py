"""Disks that are full, limits on files, handles and memory."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.faults.calls import Fault
from tests.faults.runs import Run, Runner
from tests.faults.scenarios import SCENARIOS, Bench, beside, check_message
from tests.faults.tally import Tally
from tests.support.checkpoints import restored
from tests.support.directories import names

KIND = "no space, limits"
PAGE = 4096


def where(bench: Bench, limit: str) -> str:
    return f"{bench.name}, {limit}"


# --- a full disk --------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of a few hundred kilobytes; None where this user may not mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(place)]
    mounted = sys.platform == "linux" and os.geteuid() == 0
    mounted = mounted and subprocess.run(mounting, capture_output=True, check=False).returncode == 0
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.faults
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_small_disk(
    name: str, overwrite: bool, disk: Path | None, tmp_path: Path, runner: Runner, tally: Tally
) -> None:
    """With one free page more each time, until a run succeeds. Where none can be mounted, writes fail."""
    bench = Bench(name, (disk or tmp_path) / "bench", runner, tmp_path / "cache")
    options, free = ["--overwrite"] if overwrite else [], 0
    while True:
        bench.prepare(overwrite)
        ballast = filled(disk, free) if disk else None
        fault = None if disk else Fault("write", free + 1, errno.ENOSPC, lasting=True)
        run = bench.run(*options, fault=fault)
        ended = bench.check(run, overwrite)
        if ballast:
            ballast.unlink()
        bench.settle(run)
        if run.code == 0:
            return
        assert run.code == 5, run
        tally.add(KIND, where(bench, "a small disk"), ended)
        free += 1


def filled(disk: Path, pages: int) -> Path:
    """A file that leaves so many pages free."""
    ballast = disk / "ballast"
    state = os.statvfs(disk)
    ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - pages * PAGE)))
    return ballast


# --- limits -------------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_files_may_not_grow(name: str, overwrite: bool, bench: Callable[[str], Bench], tally: Tally) -> None:
    at = bench(name)
    for limit in (0, 1, 90, 300, 500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000):
        run = limited(at, overwrite, {"RLIMIT_FSIZE": limit}, tally, "size of files")
        assert run.code in (0, 5), run
        assert run.code or limit > 90, run


@pytest.mark.faults
@pytest.mark.parametrize("overwrite", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_few_handles(name: str, overwrite: bool, bench: Callable[[str], Bench], tally: Tally) -> None:
    at = bench(name)
    ended = [
        limited(at, overwrite, {"RLIMIT_NOFILE": limit}, tally, "open files").code
        for limit in (*range(6, 30), 40, 64)
    ]
    assert ended[-1] == 0
    assert set(ended) <= {0, 5}


def limited(bench: Bench, overwrite: bool, limits: dict[str, int], tally: Tally, what: str) -> Run:
    bench.prepare(overwrite)
    run = bench.run(*(["--overwrite"] if overwrite else []), limits=limits)
    ended = bench.check(run, overwrite)
    bench.settle(run)
    tally.add(KIND, where(bench, what), ended if run.code else "done all the same")
    return run


# --- memory -------------------------------------------------------------------------------------------------

MIB = 1 << 20
LARGE = {"w": (3000, 8000), "v": (4000, 4000), "u": (50_000, 100)}
"""Shapes of 180 MiB of float32 together."""
CAST = "version: 1\nrules: [{match: '.*', value: \"cast(x, 'bfloat16')\"}]\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "large.npz"
    made = {name: np.arange(np.prod(s), dtype=np.float32).reshape(s) for name, s in LARGE.items()}
    with path.open("wb") as file:
        np.savez(file, **made)
    return path


@pytest.mark.faults
@pytest.mark.parametrize("budget", [16, 64])
def test_a_conversion_needs_little_more_than_its_budget(
    budget: int, large: Path, runner: Runner, tmp_path: Path, tally: Tally
) -> None:
    (tmp_path / "cast.yaml").write_text(CAST)
    options = ("--memory", f"{budget}MiB", "--workers", 2)
    cap = {"RLIMIT_DATA": (budget + 160) * MIB}
    run = runner.run("apply", "cast.yaml", large, "out", *options, directory=tmp_path, limits=cap)
    assert run.code == 0, run
    found = restored(tmp_path / "out")
    with np.load(large) as held:
        for name, value in held.items():
            assert found[name].tobytes() == value.astype(ml_dtypes.bfloat16).tobytes()
    tally.add("memory cap", "npz to out", "done all the same")


@pytest.mark.faults
@pytest.mark.parametrize("destination", ["out.safetensors", "out.npz", "out.msgpack"])
def test_too_little_memory(
    destination: str, large: Path, runner: Runner, tmp_path: Path, tally: Tally
) -> None:
    """With a little more each time."""
    (tmp_path / "cast.yaml").write_text(CAST)
    for cap in range(0, 120, 10):
        run = runner.run(
            "apply", "cast.yaml", large, destination, "--memory", "64MiB", "--workers", 2, "--overwrite",
            directory=tmp_path, limits={"RLIMIT_DATA": cap * MIB},
        )  # fmt: skip
        assert run.in_time
        if run.code:
            check_message(run)
            made = {"cast.yaml", destination, beside(Path(destination)).name}
            left = [name for name in names(tmp_path) if name not in made]
            assert all(name.startswith(f".{destination}.ckpt-surgery-") for name in left), run
        tally.add("memory cap", f"npz to {destination}", "absent" if run.code else "done all the same")
