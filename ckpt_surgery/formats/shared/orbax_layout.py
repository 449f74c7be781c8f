"""Recognize directories of Orbax: items, checkpoints, and directories of steps.

Source of the conventions: orbax-checkpoint 0.12.8. A step's directory is named `[PREFIX_]DIGITS`; an
unfinished save has `.orbax-checkpoint-tmp` in its name.
"""

import os

from ckpt_surgery.formats.shared.steps import items_of, steps_of
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import directory_names, exists, has_entry, is_directory, real_path
from ckpt_surgery.storage.publications import is_published

TREE_METADATA = "_METADATA"
CHECKPOINT_METADATA = "_CHECKPOINT_METADATA"
COMMIT_FILE = "commit_success.txt"
V1_MARKER = "orbax.checkpoint"
UNFINISHED = ".orbax-checkpoint-tmp"
PROCESS_PREFIX = "ocdbt.process_"
MANIFEST = "manifest.ocdbt"
"""The file that every OCDBT database has at its root."""
TREE_FILE = "checkpoint"
"""The MessagePack file of T5X, and of Orbax from before `_METADATA`."""


def is_orbax(path: str) -> bool:
    """Whether a path is an Orbax checkpoint or a CheckpointManager's directory, whole or not."""
    if not is_directory(path):
        return False
    directory = real_path(path)
    return UNFINISHED in os.path.basename(directory) or is_checkpoint(directory) or bool(steps_in(directory))


def is_item(directory: str) -> bool:
    """Whether a directory holds a tree of arrays, perhaps a damaged one."""
    if has_any(directory, TREE_METADATA, MANIFEST):
        return True
    return any(name.startswith(PROCESS_PREFIX) for name in directory_names(directory).directories)


def is_checkpoint(directory: str) -> bool:
    """Whether a directory is one checkpoint (flat, or of named items), perhaps a damaged one.

    Flat checkpoints in `3` and `10` are steps of their parent and not its items.
    """
    if has_any(directory, CHECKPOINT_METADATA, V1_MARKER, COMMIT_FILE) or is_item(directory):
        return True
    return any(items_of(directory, is_item))


def steps_in(directory: str) -> dict[str, int]:
    """Step numbers by directory name, finished and damaged ones; temporary names are left out."""
    return steps_of(directory, is_checkpoint)


def committed(directory: str) -> bool:
    """Whether the save that wrote `directory` finished.

    Orbax writes `_CHECKPOINT_METADATA` at the start of a save and sets its commit time at the end;
    checkpoints older than that file are renamed into place when they are complete.
    """
    path = os.path.join(directory, CHECKPOINT_METADATA)
    if has_any(directory, COMMIT_FILE):
        return True
    if not is_published(directory):
        return False
    if not exists(path):
        return True
    return read_json(path).get("commit_timestamp_nsecs") is not None


def has_any(directory: str, *names: str) -> bool:
    """Whether a directory has an entry of one of these names."""
    return any(has_entry(os.path.join(directory, name)) for name in names)
