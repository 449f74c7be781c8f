"""Archives that are laid out beforehand are what Python's own reader takes for one."""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.formats.planned_sink import PlannedSink
from ckpt_surgery.formats.registry import FilePlan
from ckpt_surgery.formats.shared.zip.writing import PlacedMember, archived
from ckpt_surgery.storage.regions import PlacedArray
from tests.support.writing import output_of, write_all

names = st.text(st.characters(codec="utf-8", exclude_characters="\0/\\"), min_size=1, max_size=8)


@given(members=st.dictionaries(names, st.binary(max_size=40), max_size=5), comment=st.binary(max_size=20))
def test_members_lie_where_the_archive_says(members: dict[str, bytes], comment: bytes) -> None:
    files = [FilePlan(name, len(data), [(0, data)]) for name, data in members.items()]
    with tempfile.TemporaryDirectory() as directory:
        write_all(PlannedSink(Path(directory), [archived("x.zip", files, comment)], []), {})
        with zipfile.ZipFile(Path(directory, "x.zip")) as file:
            assert file.testzip() is None
            assert {name: file.read(name) for name in file.namelist()} == members
            assert file.comment == comment


def test_arrays_of_members_are_arrays_of_the_archive(tmp_path: Path) -> None:
    value = np.arange(6, dtype=np.int16)
    array = PlacedArray(ArraySpec((6,), value.dtype), ((1, 4), (7, 8)))
    members = [FilePlan("a", 3, [(0, b"abc")]), FilePlan("b", 16, [(0, b"<"), (15, b">")], {"x": array})]
    sink = PlannedSink(tmp_path, [archived("x.zip", members)], [output_of("x", value)])
    sink.create()
    assert not zipfile.is_zipfile(tmp_path / "x.zip")
    size = (tmp_path / "x.zip").stat().st_size
    write_all(sink, {"x": value})
    assert (tmp_path / "x.zip").stat().st_size == size
    with zipfile.ZipFile(tmp_path / "x.zip") as file:
        assert file.testzip() is None
        data = value.tobytes()
        assert file.read("b") == b"<" + data[:4] + b"\0\0" + data[4:] + b">"


def test_large_members_have_zip64_fields() -> None:
    """Only the arithmetic: nothing of that size is written."""
    wide = (5 << 30).to_bytes(8, "little")
    plan = archived("x.zip", [FilePlan("a", 5 << 30, []), FilePlan("b", 1, [(0, b"!")])])
    (_, first), (_, second), (place, data) = plan.pieces
    assert wide in first
    assert (len(second), data) == (31, b"!")
    assert plan.size > place == len(first) + (5 << 30) + len(second)
    assert wide in PlacedMember(b"b", 5 << 30, 1).entry(0)
