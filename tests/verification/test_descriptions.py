"""Flipped bits in what describes a checkpoint: names, shapes, metadata, indexes, commit files."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.storage.record_files import RECORD_NAME, beside
from tests.support.directories import files_of
from tests.support.recipes import write_recipe

CAST = "version: 1\noutput: {zarr: %d}\nrules: [{match: '(.*)', value: 'cast(x, \"bfloat16\")'}]\n"
LAYOUTS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "orbax": ("out", 3, {}),
    "orbax of zarr 2": ("out", 2, {}),
    "a step": ("out", 3, {"dst_step": 3}),
    "zarr": ("out.zarr", 3, {}),
    "zarr 2": ("out.zarr", 2, {}),
    "safetensors": ("out.safetensors", 3, {}),
    "shards": ("out", 3, {"format": "safetensors", "shard_size": 800}),
    "npz": ("out.npz", 3, {}),
    "flax": ("out.msgpack", 3, {}),
}


def made(layout: str, directory: Path) -> Path:
    name, zarr, options = LAYOUTS[layout]
    arrays = {f"m.{i}.w": np.arange(384, dtype=np.float32).reshape(24, 16) + i for i in range(3)}
    save_file(arrays, directory / "source.safetensors", metadata={"a": "b"})
    recipe = write_recipe(directory, CAST % zarr)
    ckpt_surgery.apply(recipe, directory / "source.safetensors", dst=directory / name, **options)
    return directory / name


def is_damaged(path: Path) -> bool:
    try:
        return bool(ckpt_surgery.verify(path).flaws)
    except SurgeryError:
        return True


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_flipped_bit_is_told(layout: str, tmp_path: Path) -> None:
    """In every file. Only the name of the record is not looked at, where the record is inside a file."""
    path = made(layout, tmp_path)
    assert not is_damaged(path)
    generator = random.Random(layout)
    for file in [*files_of(path), *(file for file in (beside(path),) if file.exists())]:
        whole, times = file.read_bytes(), os.stat(file)
        name = whole.find(RECORD_NAME.encode())
        for _ in range(8):
            at = generator.randrange(len(whole))
            if name >= 0 and name <= at < name + len(RECORD_NAME):
                continue
            flipped = bytearray(whole)
            flipped[at] ^= 1 << generator.randrange(8)
            file.write_bytes(flipped)
            assert is_damaged(path), (file, at)
        file.write_bytes(whole)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not is_damaged(path)


def test_a_file_without_arrays_is_named(tmp_path: Path) -> None:
    path = made("a step", tmp_path)
    commit = path / "3" / "commit_success.txt"
    commit.write_bytes(commit.read_bytes()[:-1])
    (flaw,) = ckpt_surgery.verify(path, mode="fast").flaws
    assert "commit_success.txt ends at byte 31, where 1 more belong" in flaw.what
    metadata = path / "3" / "default" / "_METADATA"
    metadata.write_text(metadata.read_text().replace(": ", " :", 1))
    told = [flaw.what for flaw in ckpt_surgery.verify(path).flaws]
    assert len(told) == 2
    assert any(what.startswith("the file _METADATA: its checksum is ") for what in told)


def test_an_item_that_was_copied_alone_is_whole(tmp_path: Path) -> None:
    path = made("a step", tmp_path)
    shutil.copytree(path / "3" / "default", tmp_path / "alone")
    (tmp_path / "alone" / "README.md").write_text("about this model")  # other files may be added
    assert not is_damaged(tmp_path / "alone")


def test_metadata_that_was_edited(tmp_path: Path) -> None:
    path = made("safetensors", tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"a":"b"', b'"a":"c"', 1))
    (flaw,) = ckpt_surgery.verify(path).flaws
    assert flaw.what == "the descriptions of its leaves, or its metadata, have changed"


def test_what_another_version_described_is_not_compared(tmp_path: Path) -> None:
    """It may have had other words for the same thing; its checksums of elements hold."""
    from ckpt_surgery.verification.record import _text

    path = made("npz", tmp_path)
    record = json.loads(beside(path).read_text())
    record["structure"]["crc32c"] = "00000000"
    beside(path).write_text(_text(record))
    assert is_damaged(path)
    record["version"] = "0.0.1"
    beside(path).write_text(_text(record))
    assert not is_damaged(path)
