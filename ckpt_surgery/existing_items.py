"""Items of a step that exists: which of them a run replaces, and which stay.

A run that writes one item never removes another. What has no items is replaced as a whole: see `replacing`.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.destinations import Publication
from ckpt_surgery.engine.staging.checks import replaced_by, state_of
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.formats.shared.orbax_layout import committed, is_checkpoint, is_item, steps_in
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.replacing import REMOVE, check_one, replaceable
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import (
    directory_names,
    exists,
    is_directory,
    paths_below,
    real_path,
    walk,
)
from ckpt_surgery.storage.reading import stat_file

MOST_NAMES = 5
"""Number of items that a message names."""


def items_of(directory: str) -> tuple[str, ...] | None:
    """Names of all items of a step, with arrays or without; None where a path is not a directory of items."""
    if not is_directory(directory) or is_item(directory) or not is_checkpoint(directory):
        return None
    if steps_in(directory):
        return None
    return tuple(name for name in directory_names(directory).directories if name != OWN.rstrip("/"))


def writes_one_item(where: Publication) -> bool:
    """Whether one named item is to be written into a step that exists."""
    there = _there(where)
    return where.item is not None and there is not None and items_of(there) is not None


def replacement(where: Publication, overwrite: bool) -> Replacement | None:
    """What is at a local destination, and what of it a run replaces; None where nothing is there.

    Raises DestinationError where it is not replaced: without `overwrite`, an item of the name that is
    written; with it, anything but one whole checkpoint or an empty directory. Reads metadata only.
    """
    there = _there(where)
    if there is not None and writes_one_item(where):
        return item_replacement(where, there, items_of(there) or (), overwrite, state_of(where.path) or "")
    if not overwrite:
        return None
    state = replaceable(where.path)
    if state is None:
        return None
    return whole_replacement(where, there or where.place, state)


def item_replacement(
    where: Publication,
    there: str,
    items: Sequence[str],
    overwrite: bool,
    state: str,
    ignored: Collection[str] = (),
) -> Replacement:
    """What one item replaces in a step, which lies at `there` and has these items.

    `ignored`: names below the item of what ended runs left. Raises DestinationError.
    """
    item = str(where.item)
    stays = tuple(name for name in items if name != item)
    found = Replacement(where.place, state, one_item=True, stays=stays)
    if not committed(there):
        raise DestinationError(f"{shown(where.place)}: was never committed; no item is added", hint=REMOVE)
    if item not in items:
        return found
    if not overwrite:
        raise DestinationError(
            f"{shown(os.path.join(where.place, item))}: exists already",
            hint="Choose another name, `dst_item=NAME`, or replace this item alone: `overwrite=True`.",
        )
    path = os.path.join(there, item)
    check_one(path, ignored)
    leaves = len(formats.open_source(path).leaves())
    return replace(found, items=(item,), leaves=leaves, nbytes=_size(path))


def whole_replacement(where: Publication, there: str, state: str) -> Replacement:
    """What a checkpoint replaces that takes the place of everything at a destination."""
    return Replacement(where.place, state, items=items_of(there) or (), nbytes=_size(there))


def _size(path: str) -> int:
    """Size of a file, or of all files below a directory. Follows no link."""
    if not is_directory(path):
        return stat_file(path).size
    if urls.is_url(path):
        return sum(stat.size for stat in walk(path, path).values())
    return sum(os.lstat(os.path.join(path, name)).st_size for name in paths_below(path))


def check_items_kept(found: Replacement | None, written: str | None) -> None:
    """Refuse to replace a step if that removes items that the run does not write. Raises DestinationError.

    `written`: name of the item that it writes; None where it writes a checkpoint without items.
    """
    if found is None or found.one_item:
        return
    lost = [name for name in found.items if name != written]
    if lost and (written is not None or len(found.items) > 1):
        raise DestinationError(
            f"{shown(found.path)}: has items that this run does not write "
            f"({few([shown(name) for name in lost], MOST_NAMES)}); it is not replaced",
            hint="Write one item of it, `dst_item=NAME`, which leaves the others as they are; or remove what "
            "nobody needs yourself.",
        )


def exists_already(where: Publication) -> DestinationError | None:
    """The error for a step of items where nothing says which item is written; None for anything else."""
    there = _there(where)
    items = None if there is None or where.item is not None else items_of(there)
    if items is None:
        return None
    names = few([shown(name) for name in items], MOST_NAMES)
    return DestinationError(
        f"{shown(where.place)}: exists already, with items: {names}",
        hint="Write one item into it, which leaves the others as they are: `dst_item=NAME`. If its only item "
        "is the one that is written, replace it: `overwrite=True`.",
    )


def _there(where: Publication) -> str | None:
    """Real path, or URL, of what is at a destination, or was moved aside from there; None: nothing."""
    if where.is_url:
        return where.place if exists(where.place) else None
    with storage_errors(where.path):
        found: Path | None = replaced_by(where.path)
    return None if found is None else real_path(os.fspath(found))
