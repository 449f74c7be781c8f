"""The index of a model's shards: what it may name, and what its files must hold."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.config_files import check_shards, read_index


def index(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def test_an_index_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "i", "wb") as file:
        file.truncate(100_000_001)
    with pytest.raises(SourceError, match="has 100000001 bytes; 100000000 is the limit"):
        read_index(str(tmp_path / "i"))


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
