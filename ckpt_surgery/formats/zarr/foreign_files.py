"""Files that zarr did not write; `--overwrite` refuses to delete them."""

from collections.abc import Sequence

from ckpt_surgery.formats.shared.zarr.layout import zarr_names


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Those of `names`, relative paths of all files in the directory, that are no metadata and no chunks."""
    own = zarr_names(names)
    return [name for name in names if name not in own]
