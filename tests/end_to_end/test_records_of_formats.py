"""The record in each format: the formats' own libraries read checkpoints with it as if it were not there."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from tests.support.checkpoints import restored

ARRAYS: dict[str, np.ndarray] = {
    "a": np.arange(60, dtype=np.float32).reshape(6, 10),
    "b": np.ones(3, np.int8),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_file(ARRAYS, tmp_path / "source.safetensors")
    return tmp_path / "source.safetensors"


def assert_arrays(found: Any) -> None:
    assert {name: np.asarray(value).tobytes() for name, value in dict(found).items()} == {
        name: value.tobytes() for name, value in ARRAYS.items()
    }


def test_safetensors_has_it_in_its_header(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    ckpt_surgery.convert(source, out)
    assert_arrays(load_file(out))
    with safe_open(out, "numpy") as file:
        metadata = file.metadata()
    assert set(metadata) == {"format", "ckpt_surgery.json"}
    assert metadata["format"] == "pt"  # some readers refuse metadata without it
    assert [leaf["key"] for leaf in json.loads(metadata["ckpt_surgery.json"])["leaves"]] == ["a", "b"]
    assert ckpt_surgery.inspect(out).metadata == {}


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_has_it_among_the_attributes_of_the_group(version: int, source: Path, tmp_path: Path) -> None:
    """A file that is no part of the group would make zarr-python warn."""
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"version: 1\noutput: {{format: zarr, zarr: {version}}}\nrules: []\nunmatched: keep\n")
    ckpt_surgery.apply(recipe, source, dst=tmp_path / "out.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(tmp_path / "out.zarr", mode="r")
        assert_arrays({name: array[...] for name, array in group.arrays()})
        assert sorted(group) == ["a", "b"]
    record: Any = group.attrs["ckpt_surgery.json"]
    assert record["leaf_count"] == 2
    assert "ckpt_surgery.json" not in ckpt_surgery.inspect(tmp_path / "out.zarr").metadata


def test_only_verify_notices_flipped_bits_in_zarr_2(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    source = {"w": random.standard_normal((200, 300)).astype(np.float32)}
    recipe = "version: 1\noutput: {{zarr: {}}}\nrules: [{{match: w, value: x + x}}]\n"
    note = "zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does"
    assert note not in ckpt_surgery.apply(recipe.format(3), source, dst=tmp_path / "other").notices
    assert note in ckpt_surgery.apply(recipe.format(2), source, dst=tmp_path / "out").notices
    file = max((p for p in (tmp_path / "out").rglob("d/*") if p.is_file()), key=lambda p: p.stat().st_size)
    stored, silent = file.read_bytes(), 0
    for at in random.integers(len(stored) // 4, len(stored) // 2, 10):
        data = bytearray(stored)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        try:
            restored(tmp_path / "out")
            silent += 1
        except ValueError:
            pass
        assert [flaw.key for flaw in ckpt_surgery.verify(tmp_path / "out").flaws] == ["w"]
    assert silent > 0
