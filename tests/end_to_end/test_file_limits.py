"""A limit on the size of files, and a full device: exit 5, and the destination is blamed, in every format."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.command_line import run

LIMIT = 1 << 20
"""Bytes: more than any index or record has, less than the array."""
DESTINATIONS = ("x.safetensors", "x.npz", "x.msgpack", "x.zarr", "x.h5", "x")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint with one array of 2.4 MB of random bits, in one file, or in an Orbax database."""
    folder = tmp_path_factory.mktemp("limits")
    file = folder / "m.safetensors"
    save_file({"big": np.random.default_rng(0).random((300, 1000))}, file)
    (folder / "twice.yaml").write_text("version: 1\nrules: [{match: big, value: x * 2}]\n")
    assert run("apply", folder / "twice.yaml", file, folder / "orbax").exit_code == 0
    return lambda name: folder / name


def limited(arguments: list[object], here: Path) -> subprocess.CompletedProcess[str]:
    """Run the program in a process whose files may not grow beyond the limit."""
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT})); "
        "from ckpt_surgery.cli import main; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=here,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )


@pytest.mark.parametrize("name", DESTINATIONS)
@pytest.mark.parametrize(
    ("origin", "recipe"),
    [
        ("m.safetensors", "twice.yaml"),
        pytest.param("m.safetensors", None, marks=pytest.mark.slow),
        ("orbax", None),
    ],
    ids=["computed", "copied", "copied from a database"],
)
def test_the_destination_is_blamed(
    origin: str, recipe: str | None, name: str, source: Callable[[str], Path], tmp_path: Path
) -> None:
    command: list[object] = ["convert"] if recipe is None else ["apply", source(recipe)]
    options = ["--link-mode", "copy"] if name == "x" else []
    done = limited([*command, source(origin), tmp_path / name, "-q", *options], tmp_path)
    assert done.returncode == 5, done.stderr
    told, hint = done.stderr.rstrip("\n").split("\n")[-2:]
    assert f"{tmp_path}/.{name}.ckpt-surgery-" in told
    assert told.endswith(": File too large")
    assert str(source("")) not in told
    assert hint == "  Raise the limit on file sizes (ulimit -f), or choose another file system."
    assert not (tmp_path / name).exists()


def test_documents(source: Callable[[str], Path], tmp_path: Path) -> None:
    """The limit of this process is set for a moment: nothing else is written meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "r.yaml").write_text("version: 1\n")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        done = run("plan", tmp_path / "r.yaml", source("m.safetensors"), "--out", tmp_path / "p.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.exit_code == 5
    assert "p.json" in done.stderr
    assert "File too large" in done.stderr
