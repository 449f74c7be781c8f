"""Which names in a checkpoint's directory are not Orbax's."""

import json
from collections.abc import Iterable
from pathlib import Path

from ckpt_surgery.formats.orbax.source import foreign_files


def touched(directory: Path, names: Iterable[str]) -> list[str]:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
    return sorted(names)


def test_beside_an_item(tmp_path: Path) -> None:
    own = [
        *("_METADATA", "_CHECKPOINT_METADATA", "_sharding", "_strings.json", "checkpoint", "manifest.ocdbt"),
        *("array_metadatas/process_0", "d/0a", "ocdbt.process_0/d/0b", "ocdbt.process_0/manifest.ocdbt"),
        *("params.w/.zarray", "params.w/0.1", "params.v/zarr.json", "params.v/c/0/1", "commit_success.txt"),
    ]
    others = ["_METADATA~", "c/0/1", "config.json", "e/0a", "params.w/notes"]
    assert list(foreign_files(str(tmp_path), touched(tmp_path, own + others))) == others


def test_beside_named_items(tmp_path: Path) -> None:
    own = ["state/_METADATA", "state/d/0a", "data/any/thing", "metrics/metrics", "old/metadata"]
    others = ["mine/a", "mine/b", "notes.txt", "state/notes.txt", "twice/metadata", "twice/other"]
    names = touched(tmp_path, own + others)
    (tmp_path / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": {"state": "", "data": ""}}))
    found = foreign_files(str(tmp_path), [*names, "_CHECKPOINT_METADATA", "commit_success.txt"])
    assert sorted(found) == others
