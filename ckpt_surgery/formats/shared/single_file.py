"""The file that stands for a whole directory: the only one of its kind, or the index of several shards."""

import os
from collections.abc import Callable, Sequence

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.listing import check_link, is_directory, real_path


def file_of(path: str, chosen: Callable[[str], str]) -> tuple[str, str]:
    """The directory and the name of the file that `path` means: itself, or the one that `chosen` names in it.

    Raises SourceError for a link that leaves the directory, and whatever `chosen` raises.
    """
    if not is_directory(path):
        directory, name = os.path.split(path)
        return directory, name
    name = chosen(path)
    check_link(os.path.join(path, name), real_path(path))
    return path, name


def not_one(directory: str, kind: str, found: Sequence[str]) -> SourceError:
    """The error where no file, or several, could stand for a directory. `kind`: `.npz files`."""
    names = f": {few(found)}" if found else ""
    return SourceError(
        f"{shown(directory)} holds {len(found)} {kind}{names}", hint="Name the file that is meant."
    )


def without_index(directory: str, shards: Sequence[str], index: str) -> SourceError:
    """The error where a directory holds shards of a model, but not the index that joins them."""
    return SourceError(
        f"{shown(directory)} holds shards ({few(shards)}) without their index {index}", hint=DAMAGED
    )
