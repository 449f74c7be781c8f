"""Which chunks of shards are stored, told from the indexes that zarr-python and TensorStore write."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Manifest, encoding_of
from ckpt_surgery.core.rewrites.axes import transposed
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.formats.shared.zarr import shards as zarr_shards
from ckpt_surgery.formats.shared.zarr.shards import wholly_stored
from tests.formats.shared.zarr import codecs as codecs_of
from tests.formats.shared.zarr.codecs import BIG, CRC, GZIP, LITTLE, regular, transpose
from tests.support.counting import lengths_read
from tests.support.heavy import zarr


def group_of(path: Path) -> "zarr.Group":
    return zarr.open_group(path, mode="w", zarr_format=3)


def manifests(path: Path) -> dict[str, Manifest]:
    leaves = open_source(os.fspath(path)).leaves()
    return {text: leaf.manifest for text, leaf in leaves.items() if leaf.manifest is not None}


def whole_ones(path: Path) -> dict[str, bool]:
    return {text: wholly_stored(manifest) for text, manifest in manifests(path).items()}


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Manifest, bytes]:
    """An array in one shard of four chunks, and its bytes."""
    group_of(tmp_path / "g").create_array("a", data=np.arange(1, 9), chunks=(2,), shards=(8,))
    manifest = manifests(tmp_path / "g")["a"]
    return manifest, Path(manifest.chunks[0,].file).read_bytes()


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("fill", [0.0, 9.0, np.nan])
def test_chunks_inside_that_have_nothing_but_the_fill_value(
    fill: float, location: str, tmp_path: Path
) -> None:
    """Whole; with a chunk left out in the middle; and in the last shard, which the array fills in part."""
    group = group_of(tmp_path / "g")
    group.create_array("beyond", shape=(13,), chunks=(2,), shards=(4,), dtype="float32")[...] = 1
    wanted = {"beyond": np.ones(13, np.float32)}  # of the last shard, the array has only the first chunk
    shards: Any = {"shape": (4,), "index_location": location}
    for name, places in (("whole", ()), ("middle", (4, 5)), ("last", (14,)), ("in_part", (4,))):
        wanted[name] = np.arange(1, 16, dtype=np.float32)
        wanted[name][list(places)] = fill
        made = group.create_array(
            name, shape=(15,), chunks=(2,), shards=shards, dtype="float32", fill_value=fill
        )
        made[...] = wanted[name]
    found = {text for text, whole in whole_ones(tmp_path / "g").items() if whole}
    assert found == {"beyond", "whole", "in_part"}
    source = open_source(os.fspath(tmp_path / "g"))
    for text, leaf in source.leaves().items():
        assert leaf.manifest.complete, "of the shards themselves none is missing"
        np.testing.assert_array_equal(source.read(leaf, Region.whole(leaf.manifest.spec.shape)), wanted[text])


def test_axes_that_are_stored_in_another_order(tmp_path: Path) -> None:
    """The chunks inside are counted in the order in which the axes are stored, edges too."""
    value = np.arange(1, 1 + 5 * 6 * 7, dtype=np.int16).reshape(5, 6, 7)
    lacking = value.copy()
    lacking[4:, 2:4, 6:] = 0
    codecs = [transpose(2, 0, 1), codecs_of.shards([3, 2, 2], [LITTLE])]  # of the axes 2, 0 and 1
    group_of(tmp_path / "g")
    for name, held in (("whole", value), ("lacking", lacking)):
        by_tensorstore(tmp_path / "g" / name, held, (4, 4, 6), codecs)
    for text, manifest in manifests(tmp_path / "g").items():
        for turned in (manifest, transposed(manifest, (1, 2, 0))):
            assert wholly_stored(turned) == (text == "whole")


def by_tensorstore(path: Path, value: np.ndarray, chunks: tuple[int, ...], codecs: list[Any]) -> None:
    codecs_of.save_file(path, 3, {"chunk_grid": regular(*chunks), "codecs": codecs}, value)


@pytest.mark.parametrize(
    ("codecs", "index_codecs", "known", "reason"),
    [
        ([LITTLE], [LITTLE], True, "an index without a checksum"),
        ([LITTLE], [BIG, CRC], True, "big"),
        ([LITTLE, GZIP], [LITTLE], True, "compressed inside"),
        ([codecs_of.shards([1], [LITTLE], [LITTLE])], [LITTLE], False, "shards within shards"),
    ],
)
def test_indexes_of_every_kind(
    codecs: list[Any], index_codecs: list[Any], known: bool, reason: str, tmp_path: Path
) -> None:
    chain = [codecs_of.shards([2], codecs, index_codecs)]
    value = np.arange(1, 9, dtype=np.int32)
    group_of(tmp_path / "g")
    by_tensorstore(tmp_path / "g" / "whole", value, (4,), chain)
    by_tensorstore(tmp_path / "g" / "lacking", np.where(value < 3, 0, value), (4,), chain)
    assert whole_ones(tmp_path / "g") == {"whole": known, "lacking": False}, reason


def test_shards_that_are_encoded_once_more_are_not_known_to_be_whole(shard: tuple[Manifest, bytes]) -> None:
    manifest, _ = shard
    codec = replace(manifest.codec, encoding=encoding_of([*json.loads(manifest.codec.encoding), GZIP]))
    assert wholly_stored(manifest)
    assert not wholly_stored(replace(manifest, codec=codec))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "the checksum is another"),
        (lambda data: data[:-36] + b"\0" * 36, "the checksum of nothing is none"),
        (lambda data: data[:20], "shorter than its index"),
        (lambda data: data[10:], "what the index tells of lies beyond the end"),
    ],
)
def test_damaged_indexes_are_not_whole(change: Any, reason: str, shard: tuple[Manifest, bytes]) -> None:
    """Such arrays are computed, and reading them tells what is wrong."""
    manifest, data = shard
    for stored, whole in ((data, True), (change(data), False)):
        chunks = {(0,): Chunk("", 0, len(stored), stored)}  # as in the index of a database
        assert wholly_stored(replace(manifest, chunks=chunks)) == whole, reason


def test_a_shard_within_a_file(shard: tuple[Manifest, bytes], tmp_path: Path) -> None:
    manifest, data = shard
    (tmp_path / "file").write_bytes(b"before" + data + b"after")
    moved = replace(manifest, chunks={(0,): Chunk(str(tmp_path / "file"), 6, len(data))})
    assert wholly_stored(moved)
    (tmp_path / "file").unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        wholly_stored(moved)


def test_only_indexes_are_read_and_only_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(tmp_path / "g")
    group.create_array("plain", data=np.ones(1 << 16), chunks=(1 << 12,))
    group.create_array("sharded", data=np.ones(1 << 16), chunks=(1 << 12,), shards=(1 << 14,))
    found, lengths = manifests(tmp_path / "g"), lengths_read(monkeypatch)
    assert wholly_stored(found["plain"])
    assert lengths == []
    assert wholly_stored(found["sharded"])
    assert lengths == [4 * zarr_shards.ENTRY_BYTES + zarr_shards.CRC_BYTES] * 4


def test_shards_with_little_in_them_are_not_taken_for_damaged(tmp_path: Path) -> None:
    """Of 64 MiB one chunk of 64 is stored, in some hundred bytes."""
    size = 1 << 20
    made = group_of(tmp_path / "g").create_array(
        "a", shape=(64 * size,), chunks=(size,), shards=(64 * size,), dtype="uint8"
    )
    made[5 * size : 6 * size] = 1
    source = open_source(os.fspath(tmp_path / "g"))
    leaf = source.leaves()["a"]
    assert leaf.manifest.chunks[0,].length < 2048
    around = source.read(leaf, Region((5 * size - 2,), (5 * size + 2,)))
    assert around.tolist() == [0, 0, 1, 1]


def test_shards_without_room_for_their_index_are_damaged(
    shard: tuple[Manifest, bytes], tmp_path: Path
) -> None:
    (tmp_path / "g" / "a" / "c" / "0").write_bytes(shard[1][-67:])
    with pytest.raises(SourceError, match="`a`: its chunk c/0 has 67 stored bytes"):
        open_source(os.fspath(tmp_path / "g")).leaves()
