"""Which names in a group's directory are not zarr's."""

from ckpt_surgery.formats.zarr.source import foreign_files


def test_metadata_and_chunks_are_the_groups() -> None:
    own = [
        *("zarr.json", ".zattrs", "a/zarr.json", "a/c/0/1", "a/0.1", "a/c", "a/c.0.1"),
        *("layers/0/.zarray", "layers/0/0.0", "layers/0/1/2", "layers/.zgroup"),
    ]
    others = ["notes", "a/notes", "a/c/x", "a/c/0/x/1", "b/0.1", "b/c/0", "layers/notes", "a/0.1.part"]
    assert foreign_files("", own + others) == others
    assert foreign_files("", ["0/1", "c/0"]) == ["0/1", "c/0"]
