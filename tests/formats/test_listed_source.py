"""The source of checkpoints that are listed as plain data."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, Unreadable
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import Choices, SourceDetails, details_of
from ckpt_surgery.formats.listed_source import ListedSource
from ckpt_surgery.formats.registry import Directory, Listing
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import stat_file
from tests.support.leaves import array_leaf, by_key

INT16 = np.dtype(np.int16)


def listing_of(path: Path, **more: Any) -> Listing:
    """The array `a/b` of int16[2], which is all of a file."""
    path.write_bytes(b"\1\0\2\0")
    leaf = array_leaf("a/b", (2,), INT16)
    leaf.manifest = contiguous(leaf.spec, str(path), 0)
    return Listing(by_key(leaf), {str(path): stat_file(str(path))}, **more)


def source_of(path: Path, **more: Any) -> ListedSource:
    return ListedSource(str(path), "toy", listing_of(path, **more))


def test_a_file_that_changed_after_it_was_listed_is_refused_with_the_key(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x")
    [leaf] = source.leaves().values()
    assert source.read(leaf, Region.whole((2,))).tolist() == [1, 2]
    before = source.fingerprint()
    os.utime(tmp_path / "x", ns=(1, 1))
    with pytest.raises(SourceError, match=r"^`a/b`: .*x has changed since it was listed"):
        source.read(leaf, Region.whole((2,)))
    assert source.fingerprint() != before
    (tmp_path / "x").unlink()
    with pytest.raises(SourceError, match="x cannot be read"):
        source.fingerprint()


def test_files_of_a_directory_are_those_that_are_there_now(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x", directory=Directory(str(tmp_path), str(tmp_path)))
    before = source.fingerprint()
    (tmp_path / "ckpt_surgery.json").write_text("{}")
    assert source.fingerprint() == before
    (tmp_path / "chunk").write_bytes(b"1")
    assert source.fingerprint() != before
    assert sorted(source.files()) == [str(tmp_path / name) for name in ("chunk", "ckpt_surgery.json", "x")]


def test_files_that_are_expected_belong_to_it_and_not_to_its_fingerprint(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x", expected_files=[str(tmp_path / "x"), str(tmp_path / "gone")])
    assert list(source.files()) == [str(tmp_path / "x"), str(tmp_path / "gone")]
    before = source.fingerprint()
    (tmp_path / "gone").write_bytes(b"1")
    assert source.fingerprint() == before


def test_an_array_that_cannot_be_read_says_why_and_what_to_do() -> None:
    leaf = array_leaf("a/b", (2,), np.dtype("M8[s]"))
    leaf.unreadable = Unreadable("is an array of dates", "Save it as integers.")
    source = ListedSource("x", "toy", Listing(by_key(leaf)))
    with pytest.raises(SourceError, match=r"^`a/b`: it is an array of dates") as caught:
        source.read(leaf, Region.whole((2,)))
    assert caught.value.problems[0].hint == "Save it as integers."


def test_arrays_with_a_reader_of_their_own_are_read_by_it() -> None:
    class Ones:
        def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
            if region.starts == (0,):
                raise SourceError("the first is missing")
            return np.ones(region.shape, INT16)

    leaf = array_leaf("a/b", (3,), INT16)
    source = ListedSource("x", "toy", Listing(by_key(leaf), readers={"a/b": Ones()}))
    assert source.read(leaf, Region((1,), (3,))).tolist() == [1, 1]
    with pytest.raises(SourceError, match=r"^`a/b`: the first is missing"):
        source.read(leaf, Region((0,), (3,)))


def test_leaves_can_be_listed_when_they_are_first_asked_for(tmp_path: Path) -> None:
    asked = []

    def rest() -> Listing:
        asked.append(1)
        return listing_of(tmp_path / "x")

    source = ListedSource("x", "toy", Listing({}, metadata={"a": 1}, step=3), rest)
    assert (source.metadata, source.step, asked) == ({"a": 1}, 3, [])
    assert list(source.leaves()) == list(source.leaves()) == ["a/b"]
    assert list(source.files()) == [str(tmp_path / "x")]
    assert asked == [1]


def test_a_source_without_details_has_the_usual_ones(tmp_path: Path) -> None:
    class Stranger:
        def leaves(self) -> Mapping[str, Leaf]:
            return {}

    found = details_of(Stranger())  # type: ignore[arg-type]
    assert (found.choices(), found.model_files(), found.record) == (Choices(), {}, None)
    assert found.disguised_bfloat16 == frozenset()
    own = SourceDetails(record="text", holds_record=True)
    assert details_of(source_of(tmp_path / "x", details=own)) is own
