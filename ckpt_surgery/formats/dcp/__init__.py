"""PyTorch's distributed checkpoints: a directory of `.metadata` and `__RANK_N.distcp`, read without torch.

Source of the conventions: torch.distributed.checkpoint.filesystem (2.2 to 2.13).
"""

import os

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.storage.listing import directory_names, is_directory
from ckpt_surgery.storage.reading import opened

METADATA = ".metadata"
"""Name of the file that says what there is and where; it is written last."""
DATA_SUFFIX = ".distcp"
MODULE = b"torch.distributed.checkpoint.metadata"
"""The first name in the pickle that a metadata file is, unless its class is of another library."""


def detect(path: str) -> bool:
    """Whether a path is a directory of data files, or of a metadata file alone; damaged ones too."""
    if not is_directory(path):
        return False
    names = directory_names(path).files
    if any(name.endswith(DATA_SUFFIX) for name in names):
        return True
    if METADATA not in names:
        return False
    with opened(os.path.join(path, METADATA)) as file:
        return MODULE in file.read(0, min(512, file.stat.size))


FORMAT = Format(name="dcp", detect=detect, module=__name__)
