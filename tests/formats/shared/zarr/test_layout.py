"""Which directories are zarr groups or arrays."""

from pathlib import Path

import pytest

from ckpt_surgery.formats.shared.zarr.layout import RESERVED, detect


@pytest.mark.parametrize("name", [*RESERVED, "other"])
def test_directories_are_recognized_by_their_metadata(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert detect(str(tmp_path)) == (name not in (".zattrs", "other"))  # attributes alone are no group


def test_a_name_is_enough_where_the_metadata_is_gone(tmp_path: Path) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x.zarr")
    (tmp_path / "y.zarr").touch()
    assert detect(str(tmp_path / "x.zarr"))
    assert detect(str(tmp_path / "link"))  # the name that counts is the directory's own
    assert not detect(str(tmp_path / "y.zarr"))  # a file
    assert not detect(str(tmp_path / "missing.zarr"))
