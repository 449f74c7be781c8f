"""The records of zip archives have the lengths that the format says; the first member is named."""

import zipfile
from pathlib import Path

import pytest

from ckpt_surgery.formats.shared.zip import layout
from ckpt_surgery.formats.shared.zip.layout import LOCAL, LOCAL_FIELDS, first_name
from ckpt_surgery.storage.reading import opened


@pytest.mark.parametrize(
    ("record", "size"), [("LOCAL", 30), ("CENTRAL", 46), ("END", 22), ("END64", 56), ("LOCATOR64", 20)]
)
def test_records_have_the_lengths_of_the_specification(record: str, size: int) -> None:
    assert getattr(layout, f"{record}_FIELDS").size == size
    assert len(getattr(layout, record)) == 4


def first_of(path: Path) -> str | None:
    with opened(str(path)) as file:
        return first_name(file)


def test_the_first_member_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("é/data.pkl", b"1")
        archive.writestr("other", b"2")
    assert first_of(tmp_path / "x") == "é/data.pkl"


def test_a_file_without_a_whole_name_has_none(tmp_path: Path) -> None:
    header = LOCAL_FIELDS.pack(LOCAL, *[0] * 8, 3, 0)
    for data, name in (
        (b"", None),
        (header, None),
        (header + b"ab", None),
        (header + b"abcd", "abc"),
        (b"PK\3\4" + b"\xff" * 40, None),
    ):
        (tmp_path / "x").write_bytes(data)
        assert first_of(tmp_path / "x") == name
    (tmp_path / "x").write_bytes(b"QK" + header[2:] + b"abc")
    assert first_of(tmp_path / "x") is None
