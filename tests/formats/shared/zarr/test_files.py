"""Zarr arrays in directories: which files are their chunks, and which of them may be missing."""

from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zarr.files import Files, chunk_index, file_array
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import ZarrArray, parse_array
from tests.formats.shared.zarr.codecs import regular, stored


def definition(version: int = 2, **metadata: Any) -> bytes:
    """The metadata of a raw array of int16[4, 3] in chunks of 2 × 3, as TensorStore writes it."""
    described: dict[str, Any] = {"shape": [4, 3], "chunks": [2, 3], "compressor": None}
    if version == 3:
        described = {"shape": [4, 3], "chunk_grid": regular(2, 3), "codecs": [{"name": "bytes"}]}
    return stored(version, described | metadata, dtype="int16")[FILE_NAMES[version]]


def array(version: int = 2, **metadata: Any) -> ZarrArray:
    return parse_array(definition(version, **metadata), version)


def tree(root: Path, **files: int | bytes) -> Files:
    """Files of these contents, or of so many bytes; `__` in their names is `/`."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(content) if isinstance(content, int) else content)
    return Files.of(str(root))


def test_files_below_a_directory_are_not_those_of_its_namesakes(tmp_path: Path) -> None:
    files = tree(tmp_path, **{"a__x": 1, "a__b__y": 1, "a-b__x": 1, "ab": 1, "a0__x": 1})
    assert files.below("a/") == ["b/y", "x"]
    assert files.below("") == ["a-b/x", "a/b/y", "a/x", "a0/x", "ab"]
    assert files.below("b/") == []
    part = Files.of(str(tmp_path), "a")
    assert part.names == ["a/b/y", "a/x"]
    assert set(part.by_path) == {f"{tmp_path}/a/x", f"{tmp_path}/a/b/y"}


def test_a_file_that_changed_after_the_walk_is_refused(tmp_path: Path) -> None:
    files = tree(tmp_path, **{".zarray": definition()})
    (tmp_path / ".zarray").write_bytes(definition() + b" ")
    with pytest.raises(SourceError, match="has changed since it was listed"):
        file_array(files, "")


@pytest.mark.parametrize(
    ("version", "metadata", "name", "index"),
    [
        (2, {}, "1.0", (1, 0)),
        (2, {}, "2.0", None),  # beyond the grid
        (2, {}, "01.0", None),  # not as chunks are named
        (2, {}, "1.0.0", None),
        (2, {}, "1", None),
        (2, {}, "-1.0", None),
        (2, {}, "١.0", None),  # a digit that is not ASCII
        (2, {}, "9" * 5000 + ".0", None),
        (2, {}, ".zarray", None),
        (2, {"shape": [], "chunks": []}, "0", ()),
        (2, {"shape": [], "chunks": []}, "1", None),
        (3, {}, "c/1/0", (1, 0)),
        (3, {}, "1/0", None),
        (3, {}, "d/1/0", None),
        (3, {"chunk_key_encoding": {"name": "v2"}}, "1.0", (1, 0)),
    ],
)
def test_files_are_chunks_by_their_exact_names(
    version: int, metadata: dict[str, Any], name: str, index: tuple[int, ...] | None
) -> None:
    found = array(version, **metadata)
    assert chunk_index(found, name) == index
