"""Files of Keras 3, and of Keras 2's layout: read, changed, and loaded by Keras again."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.formats.hdf5 import WEIGHTS
from ckpt_surgery.formats.opening import detect_format, open_source
from tests.formats.hdf5.make_keras import DATA, VALUES
from tests.support.comparing import assert_same
from tests.support.directories import copy_of
from tests.support.hdf5_files import load_hdf5
from tests.support.reading import read, values

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


DOUBLE = {"version": 1, "rules": [{"match": "layers/dense/vars/0", "value": "x * 2"}]}


def doubled(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**arrays, "layers/dense/vars/0": arrays["layers/dense/vars/0"] * 2}


def structure(path: Path) -> dict[str, Any]:
    """The groups and datasets of a file: where there are arrays, their shapes and types and attributes."""
    found: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        is_array = isinstance(node, h5py.Dataset)
        found[name] = (node.shape, node.dtype, dict(node.attrs)) if is_array else "group"

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


@pytest.mark.parametrize("name", FILES)
def test_what_keras_wrote_is_read(name: str) -> None:
    assert detect_format(str(DATA / name)).name == "hdf5"
    source = open_source(str(DATA / name))
    assert_same(values(source), arrays_of(name))
    told = {"keras_version", "backend", "model_config"}
    assert (told <= set(source.metadata)) == (name == "legacy.h5")
    # Each array is plain bytes in the file, also within the archive.
    data = (DATA / name).read_bytes()
    for text, leaf in source.leaves().items():
        (chunk,) = leaf.manifest.chunks.values()
        assert data[chunk.offset :][: chunk.length] == arrays_of(name)[text].tobytes()


@pytest.mark.parametrize("source", ["model.weights.h5", "model.keras"])
def test_new_weights_have_the_structure_of_the_old_ones(source: str, tmp_path: Path) -> None:
    """But for groups without any array, which Keras does not need."""
    out = tmp_path / "new.weights.h5"
    assert ckpt_surgery.apply(DOUBLE, DATA / source, dst=out).plan.warnings == ()
    assert_same(read(out), doubled(arrays_of(source)))
    assert {"vars": "group", **structure(out)} == structure(DATA / "model.weights.h5")


def members(path: Path) -> dict[str, bytes]:
    """Everything in an archive, checked against its CRC-32s by Python's own reader."""
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert {info.compress_type for info in file.infolist()} == {zipfile.ZIP_STORED}
        return {name: file.read(name) for name in file.namelist()}


def test_an_archive_is_written_with_the_model_of_the_source(tmp_path: Path) -> None:
    """Config and metadata are those of the source, byte for byte; the weights are the new ones."""
    result = ckpt_surgery.apply(DOUBLE, DATA / "model.keras", dst=tmp_path / "new.keras", verify="full")
    assert result.plan.warnings == ()
    old, new = members(DATA / "model.keras"), members(tmp_path / "new.keras")
    assert {**new, WEIGHTS: b""} == {**old, WEIGHTS: b""}
    wanted = doubled(arrays_of("model.keras"))
    assert_same(read(tmp_path / "new.keras"), wanted)
    (tmp_path / "alone.weights.h5").write_bytes(new[WEIGHTS])
    assert_same(load_hdf5(tmp_path / "alone.weights.h5"), wanted)
    ckpt_surgery.verify(tmp_path / "new.keras")


def test_weights_of_another_source_get_into_the_archive(tmp_path: Path) -> None:
    ckpt_surgery.convert(DATA / "model.keras", tmp_path / "w.safetensors")
    drop = {"match": ".*", "source": "model", "drop": True}
    merged = {"version": 1, "sources": ["new", "model"], "rules": [drop]}
    ckpt_surgery.apply(merged, tmp_path / "w.safetensors", DATA / "model.keras", dst=tmp_path / "new.keras")
    assert_same(read(tmp_path / "new.keras"), arrays_of("model.keras"))


def test_an_archive_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"(?s)new\.keras is to be .* no source has one.*NAME\.weights\.h5"):
        ckpt_surgery.convert(DATA / "model.weights.h5", tmp_path / "new.keras")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """An archive that Keras wrote, to which members can be added."""
    return copy_of(DATA / "model.keras", tmp_path / "old")


@pytest.mark.parametrize("name", ["assets/../../x", "/x", "assets//x", "C:/x", "a\\b"])
def test_members_that_lead_elsewhere_are_not_taken_over(name: str, old: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(old, "a") as file:
        file.writestr(name, b"1")
    with pytest.raises(UsageError, match="whose name leads out of it"):
        ckpt_surgery.convert(old, tmp_path / "new.keras")
    ckpt_surgery.convert(old, tmp_path / "new.weights.h5")


def test_assets_come_along_and_large_ones_are_refused(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(old, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("assets/layers/words/vocabulary.txt", b"word\n" * 1000)
    ckpt_surgery.convert(old, tmp_path / "new.keras")
    assert members(tmp_path / "new.keras")["assets/layers/words/vocabulary.txt"] == b"word\n" * 1000
    monkeypatch.setattr("ckpt_surgery.formats.hdf5.source.MOST_BYTES", 5000)
    with pytest.raises(UsageError, match=r"beside its weights, and 4\.88 KiB is the most"):
        ckpt_surgery.convert(old, tmp_path / "other.keras")


@pytest.mark.slow("imports Keras")
def test_keras_loads_what_is_written(tmp_path: Path) -> None:
    """Weights and states of the optimizer that were in another format, with other names, in between."""
    first = tmp_path / "first"
    run_keras(first)
    for name in FILES:
        assert_same(read(first / name), arrays_of(name, first))
    there = {"version": 1, "rules": [{"match": r"(.*)/vars/(\d+)", "to": r"flat.\1.\2"}]}
    ckpt_surgery.apply(there, first / "model.keras", dst=tmp_path / "flat.safetensors")
    back = {"version": 1, "rules": [{"match": r"flat\.(.*)\.(\d+)", "to": r"\1/vars/\2"}]}
    ckpt_surgery.apply(back, tmp_path / "flat.safetensors", dst=tmp_path / "back.weights.h5")
    run_keras(tmp_path / "second", tmp_path / "back.weights.h5")
    for name in FILES:
        assert_same(arrays_of(name, tmp_path / "second"), arrays_of(name, first))
    ckpt_surgery.apply(DOUBLE, first / "model.keras", dst=tmp_path / "again.keras")
    run_keras(tmp_path / "third", tmp_path / "again.keras")
    assert_same(arrays_of("model.keras", tmp_path / "third"), doubled(arrays_of("model.keras", first)))


def run_keras(*arguments: Path) -> None:
    """Let Keras write its files in a process of its own: which backend it has is said when it is imported."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.formats.hdf5.make_keras", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr
