"""T5X's files are told from other MessagePack files by the names at their root."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from ckpt_surgery.formats.shared.msgpack.t5x_layout import has_root
from ckpt_surgery.storage.reading import opened


@pytest.mark.parametrize(
    ("document", "known"),
    [
        ({"version": 3, "optimizer": {"state": {}}}, True),
        ({"optimizer": {}, "version": 3}, True),  # in any order
        ({"version": 3}, False),
        ({"version": 3, "optimizer": {}, "more": 1}, False),
        ({"target": {}, "state": {}}, False),
        ({}, False),
        (["version", "optimizer"], False),
    ],
)
def test_the_root_has_these_names_and_no_others(document: Any, known: bool, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(msgpack.packb(document))
    with opened(str(tmp_path / "x")) as file:
        assert has_root(file) == known


def test_another_name_is_enough_to_tell(tmp_path: Path) -> None:
    """What follows it is not read, so that damage there is nothing to this question."""
    (tmp_path / "x").write_bytes(b"\x82\xa5other\xc1")
    with opened(str(tmp_path / "x")) as file:
        assert not has_root(file)


def test_a_damaged_file_has_no_root(tmp_path: Path) -> None:
    data = msgpack.packb({"version": 3, "optimizer": {"a": 1}})
    for cut in range(len(data)):
        (tmp_path / "x").write_bytes(data[:cut])
        with opened(str(tmp_path / "x")) as file:
            assert not has_root(file)
