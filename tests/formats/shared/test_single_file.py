"""The file that stands for a directory."""

from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.single_file import file_of, not_one, without_index


def test_a_file_stands_for_itself(tmp_path: Path) -> None:
    assert file_of(str(tmp_path / "x"), lambda directory: "other") == (str(tmp_path), "x")
    assert file_of("x", lambda directory: "other") == ("", "x")


def test_a_directory_is_asked_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert file_of(str(tmp_path), lambda directory: "x") == (str(tmp_path), "x")
    (tmp_path / "out").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="outside the checkpoint"):
        file_of(str(tmp_path), lambda directory: "out")


def test_what_is_said_where_no_file_does() -> None:
    assert str(not_one("dir", ".x files", [])) == "dir holds 0 .x files\n  Name the file that is meant."
    several = not_one("dir", ".x files", ["a", "b", "c", "d"])
    assert str(several).startswith("dir holds 4 .x files: a, b, c, …\n")
    assert str(without_index("dir", ["a", "b"], "i.json")).startswith(
        "dir holds shards (a, b) without their index i.json\n"
    )
