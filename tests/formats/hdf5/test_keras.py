"""Files of Keras 3, and of Keras 2's layout: read, changed, and loaded by Keras again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.formats.registry import detect_format, open_source
from tests.formats.hdf5.make_keras import DATA, VALUES
from tests.support.comparing import assert_same
from tests.support.reading import values

FILES = ("model.keras", "model.weights.h5", "legacy.h5", "legacy_weights.h5")


def arrays_of(name: str, directory: Path = DATA) -> dict[str, np.ndarray]:
    """What Keras had when it wrote a file."""
    with np.load(directory / VALUES) as found:
        pairs = [(key.partition(":"), value) for key, value in found.items()]
    return {
        key: value.view(ml_dtypes.bfloat16) if value.dtype == "V2" else value
        for (file, _, key), value in pairs
        if file == name
    }


def structure(path: Path) -> dict[str, Any]:
    """The groups and datasets of a file: where there are arrays, their shapes and types and attributes."""
    found: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        found[name] = (
            (node.shape, node.dtype, dict(node.attrs)) if isinstance(node, h5py.Dataset) else "group"
        )

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_keras_wrote_is_read(name: str) -> None:
    assert detect_format(str(DATA / name)).name == "hdf5"
    source = open_source(str(DATA / name))
    assert_same(values(source), arrays_of(name))
    # Each array is plain bytes in the file, also within the archive.
    data = (DATA / name).read_bytes()
    for text, leaf in source.leaves().items():
        (chunk,) = leaf.manifest.chunks.values()
        assert data[chunk.offset :][: chunk.length] == arrays_of(name)[text].tobytes()


def test_what_a_file_says_of_itself() -> None:
    metadata = open_source(str(DATA / "legacy.h5")).metadata
    assert {"keras_version", "backend", "model_config"} <= set(metadata)


def test_new_weights_have_the_structure_of_the_old_ones(
    recipe: Callable[[str], Path], tmp_path: Path
) -> None:
    """But for groups without any array, which Keras does not need."""
    path = recipe(r"{version: 1, rules: [{match: 'layers/dense/vars/0', value: x * 2}]}")
    for source in ("model.weights.h5", "model.keras"):
        out = tmp_path / f"{source}.new.weights.h5"
        result = ckpt_surgery.apply(path, DATA / source, dst=out)
        assert result.plan.warnings == ()
        wanted = arrays_of(source)
        wanted["layers/dense/vars/0"] = wanted["layers/dense/vars/0"] * 2
        assert_same(values(open_source(str(out))), wanted)
        before = structure(DATA / "model.weights.h5")
        del before["vars"]
        assert structure(out) == before


def test_an_archive_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its name says a Keras file, which cannot be written"):
        ckpt_surgery.convert(DATA / "model.keras", tmp_path / "new.keras")
    with pytest.raises(UsageError, match=r"NAME\.weights\.h5, which `model\.load_weights` loads"):
        ckpt_surgery.convert(DATA / "model.keras", tmp_path / "new.keras", format="hdf5")


@pytest.mark.slow
def test_keras_loads_what_is_written(recipe: Callable[[str], Path], tmp_path: Path) -> None:
    """Weights and states of the optimizer that were in another format, with other names, in between."""
    run_keras(tmp_path / "first")
    for name in FILES:
        assert_same(values(open_source(str(tmp_path / "first" / name))), arrays_of(name, tmp_path / "first"))
    there = recipe(r"{version: 1, rules: [{match: '(.*)/vars/(\d+)', to: 'flat.\1.\2'}]}")
    ckpt_surgery.apply(there, tmp_path / "first" / "model.keras", dst=tmp_path / "flat.safetensors")
    back = recipe(r"{version: 1, rules: [{match: 'flat\.(.*)\.(\d+)', to: '\1/vars/\2'}]}")
    ckpt_surgery.apply(back, tmp_path / "flat.safetensors", dst=tmp_path / "back.weights.h5")
    run_keras(tmp_path / "second", tmp_path / "back.weights.h5")
    for name in FILES:
        assert_same(arrays_of(name, tmp_path / "second"), arrays_of(name, tmp_path / "first"))


def run_keras(*arguments: Path) -> None:
    """Let Keras write its files in a process of its own: which backend it has is said when it is imported."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.formats.hdf5.make_keras", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
