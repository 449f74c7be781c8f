"""Files that Orbax did not write; `--overwrite` refuses to delete them.

Source of the names: what orbax-checkpoint 0.2.7 to 0.12.8 writes. Items that are no trees of arrays (JSON,
the state of a data loader, metrics) have files with names of their handlers' own, so all that is in an item
that the checkpoint lists belongs to it.
"""

import os
from collections.abc import Iterator, Sequence

from ckpt_surgery.formats.orbax.structure import STRUCTURE
from ckpt_surgery.formats.orbax.tree import ARRAY_METADATA, SHARDINGS, STRINGS
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
    TREE_METADATA,
    V1_MARKER,
    is_item,
)
from ckpt_surgery.formats.shared.zarr.layout import zarr_names
from ckpt_surgery.storage.companion_names import KEPT
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import exists

_FILES_OF_STEP = {CHECKPOINT_METADATA, COMMIT_FILE, V1_MARKER}
_ITEMS_OF_STEP = {"metrics", "descriptor"}
"""Items that Orbax adds to a step by itself."""
_JSON = ["metadata"]
"""The only file of a JSON item, as older versions write it."""
_FILES_OF_ITEM = {TREE_METADATA, SHARDINGS, STRINGS, STRUCTURE, MANIFEST}
_DIRECTORIES_OF_ITEM = {"d", os.path.dirname(ARRAY_METADATA)}


def foreign_files(directory: str, names: Sequence[str]) -> Iterator[str]:
    """Those of `names`, relative paths of all files in the directory, that Orbax did not put there."""
    if is_item(directory):
        yield from _beside_item(names)
        return
    inside: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition("/")
        if rest:
            inside.setdefault(first, []).append(rest)
        elif name not in _FILES_OF_STEP:
            yield name
    listed = _items_listed(directory)
    for first, found in inside.items():
        if is_item(os.path.join(directory, first)):
            others: Sequence[str] = list(_beside_item(found))
        else:
            others = [] if first in listed or found == _JSON else found
        yield from (f"{first}/{name}" for name in others)


def _beside_item(names: Sequence[str]) -> Iterator[str]:
    """Those of the names, relative to an item's directory, that are not the item's."""
    own = zarr_names(names)
    for name in names:
        first, _, rest = name.partition("/")
        if rest:
            known = first in (*_DIRECTORIES_OF_ITEM, KEPT) or first.startswith(PROCESS_PREFIX)
        else:
            known = name in _FILES_OF_ITEM or name in _FILES_OF_STEP
        if not known and name not in own:
            yield name


def _items_listed(directory: str) -> set[str]:
    """The names of the items that the checkpoint says it has."""
    path = os.path.join(directory, CHECKPOINT_METADATA)
    handlers = read_json(path).get("item_handlers") if exists(path) else None
    return _ITEMS_OF_STEP | (set(handlers) if isinstance(handlers, dict) else set())
