"""The index of a model's shards: what it may name, and what its files must hold."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names


def index(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def test_the_metadata_is_without_what_describes_the_weights(tmp_path: Path) -> None:
    metadata = {"total_size": 4, "total_parameters": 1, "format": "pt"}
    path = index(tmp_path / "i", {"metadata": metadata, "weight_map": {"a": "x"}})
    assert read_index(path) == ({"a": "x"}, {"format": "pt"})
    for nothing in ({"weight_map": {}}, {"weight_map": {}, "metadata": None}):
        assert read_index(index(tmp_path / "i", nothing)) == ({}, {})


@pytest.mark.parametrize(
    "document", [{}, {"weight_map": ["a"]}, {"weight_map": {}, "metadata": "pt"}, {"weight_map": None}]
)
def test_an_index_without_a_map_is_refused_with_its_path(document: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"i\.json: an index needs a `weight_map`"):
        read_index(index(tmp_path / "i.json", document))


@pytest.mark.parametrize("target", ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "a\0b", 5, None])
def test_a_file_that_is_no_plain_name_is_refused(target: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"`w` should be in `.*`, which is not a plain file name"):
        read_index(index(tmp_path / "i", {"weight_map": {"w": target}}))


def test_an_index_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "i", "wb") as file:
        file.truncate(100_000_001)
    with pytest.raises(SourceError, match="has 100000001 bytes; 100000000 is the limit"):
        read_index(str(tmp_path / "i"))


def test_each_file_is_named_once_and_links_must_not_leave_the_directory(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "outside").touch()
    assert shard_names(str(tmp_path / "d"), {"a": "2", "b": "1", "c": "2"}) == ["1", "2"]
    os.symlink(tmp_path / "outside", tmp_path / "d/1")
    with pytest.raises(SourceError, match="d/1"):
        shard_names(str(tmp_path / "d"), {"b": "1"})


def test_the_index_and_the_files_must_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    files = {"a": "1", "b": "2"}
    check_shards("d", files, {"1": ["a"], "2": ["b"]})
    with pytest.raises(SourceError, match="d/2 holds `a`, which the index places elsewhere"):
        check_shards("d", files, {"1": ["a"], "2": ["b", "a"]})
    with pytest.raises(SourceError, match="d/1 holds `c`, which the index places elsewhere or not at all"):
        check_shards("d", files, {"1": ["a", "c"], "2": ["b"]})
    with pytest.raises(SourceError, match="`b` is not in d/2, where the index places it"):
        check_shards("d", files, {"1": ["a"], "2": []})


@pytest.mark.parametrize("suffix", ["safetensors", "bin", "msgpack"])
def test_a_shard_of_the_same_set_that_the_index_leaves_out(tmp_path: Path, suffix: str) -> None:
    listed = {"a": f"model-00001-of-00002.{suffix}"}
    for name in (*listed.values(), f"model-00001-of-00003.{suffix}", f"other-00002-of-00002.{suffix}"):
        (tmp_path / name).touch()
    held = {name: ["a"] for name in listed.values()}
    check_shards(str(tmp_path), listed, held)
    (tmp_path / f"model-00002-of-00002.{suffix}").touch()
    with pytest.raises(SourceError, match=rf"does not list model-00002-of-00002\.{suffix}"):
        check_shards(str(tmp_path), listed, held)
