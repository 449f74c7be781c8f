"""Files that torch.distributed did not write; `--overwrite` refuses to delete them."""

from collections.abc import Sequence

from ckpt_surgery.formats.dcp.detect import DATA_SUFFIX, METADATA


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Those of `names`, relative paths of all files in the directory, that no rank writes.

    A rank writes a data file even if nothing is in it.
    """
    return [name for name in names if name != METADATA and ("/" in name or not name.endswith(DATA_SUFFIX))]
