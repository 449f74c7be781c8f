"""The records of zip archives have the lengths that the format says; the first member is named."""

from pathlib import Path

from ckpt_surgery.formats.shared.zip.layout import LOCAL, LOCAL_FIELDS, first_name
from ckpt_surgery.storage.reading import opened


def first_of(path: Path) -> str | None:
    with opened(str(path)) as file:
        return first_name(file)


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
