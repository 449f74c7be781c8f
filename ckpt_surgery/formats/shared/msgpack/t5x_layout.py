"""What a checkpoint of T5X, or of Orbax from before `_METADATA`, is recognized by: its MessagePack file.

Source of the conventions: google-research/t5x, `t5x/checkpoints.py`.
"""

from ckpt_surgery.formats.registry import claims
from ckpt_surgery.storage.reading import OpenFile

FILE_NAME = "checkpoint"
ROOT_NAMES = {"version", "optimizer"}
"""All names at the root of a T5X file; files of version 0 have others."""


def has_root(file: OpenFile) -> bool:
    """Whether a MessagePack file has T5X's root. Reads no further than it must to tell."""
    return claims(_has_root, file)


def _has_root(file: OpenFile) -> bool:
    from ckpt_surgery.formats.shared.msgpack.tree import root_names

    seen: set[str | int] = set()
    for name in root_names(file):
        if name not in ROOT_NAMES:
            return False
        seen.add(name)
    return seen == ROOT_NAMES
