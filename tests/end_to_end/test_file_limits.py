"""A limit on the size of files, and a full device: exit 5, and the destination is blamed, in every format."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.command_line import run
from tests.support.conformance import file_size_limit

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
    with file_size_limit(LIMIT):
        done = run(*command, source(origin), tmp_path / name, "-q", *options)
    assert done.exit_code == 5, done.stderr
    told, hint = done.stderr.rstrip("\n").split("\n")[-2:]
    assert f"{tmp_path}/.{name}.ckpt-surgery-" in told
    assert told.endswith(": File too large")
    assert str(source("")) not in told
    assert hint == "  Raise the limit on file sizes (ulimit -f), or choose another file system."
    assert not (tmp_path / name).exists()


def test_documents(source: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("version: 1\n")
    with file_size_limit(10):
        done = run("plan", tmp_path / "r.yaml", source("m.safetensors"), "--out", tmp_path / "p.json")
    assert done.exit_code == 5
    assert "p.json" in done.stderr
    assert "File too large" in done.stderr
