"""T5X checkpoints, and Orbax's from before it wrote `_METADATA`: MessagePack, and zarr arrays beside it.

They are a file `checkpoint`, in steps and items. Source of the conventions: T5X writes
`checkpoint_<step>/checkpoint`; Orbax before `_METADATA` wrote `<step>/<item>/checkpoint`, or the file alone.
A save that was never finished has `tmp` in its name.
"""

import os
import re

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Format, Selection
from ckpt_surgery.formats.shared import steps
from ckpt_surgery.formats.shared.orbax_layout import TREE_FILE, is_item
from ckpt_surgery.storage import listing
from ckpt_surgery.storage.reading import opened

_UNFINISHED = re.compile(r"\.(?:orbax-checkpoint-)?tmp(?:-|\Z)")


def detect(path: str) -> bool:
    """Whether a path is a T5X or legacy Orbax checkpoint, or a directory of steps; damaged ones too."""
    if not listing.is_directory(path):
        return _is_tree_file(path)
    is_step = steps.STEP_NAME.fullmatch(os.path.basename(listing.real_path(path)))
    return _is_checkpoint(path) or bool(_steps(path)) or bool(is_step and _items(path))


def _is_tree_file(path: str) -> bool:
    """Whether a file holds a tree: by its root, or by its first byte where it has the usual name.

    By that byte it is a map of MessagePack, which TensorFlow's text file of the usual name is not.
    """
    with opened(path) as file:
        first = file.read(0, min(1, file.stat.size))
        if not first or not (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
            return False
        if os.path.basename(path) == TREE_FILE:
            return True
        from ckpt_surgery.formats.shared.msgpack.tree import has_t5x_root

        return has_t5x_root(file)


def _is_checkpoint(directory: str) -> bool:
    """Whether a directory has the file, without the `_METADATA` that Orbax wrote beside it for a while."""
    path = os.path.join(directory, TREE_FILE)
    return listing.is_file(path) and not is_item(directory) and _is_tree_file(path)


def _items(directory: str) -> list[str]:
    """The items in a step's directory."""
    return list(steps.items_of(directory, lambda path: not _is_unfinished(path) and _is_checkpoint(path)))


def _steps(directory: str) -> dict[str, int]:
    """Step numbers by directory name."""
    return steps.steps_of(directory, lambda path: _is_checkpoint(path) or bool(_items(path)))


def _is_unfinished(path: str) -> bool:
    return _UNFINISHED.search(os.path.basename(path)) is not None


def locate_file(path: str, selection: Selection) -> steps.ChosenFile:
    """Find the file to read. Raises SourceError or UsageError with the names there are to choose from."""
    if _is_unfinished(listing.real_path(path)):
        raise SourceError(f"{shown(path)} is a save that was never finished", hint="Use another step.")
    if not listing.is_directory(path):
        steps.check_no_choice(path, selection.step, selection.item)
        directory, name = os.path.split(path)
        return steps.ChosenFile(directory, name)
    directory, step = steps.locate(path, selection.step, {} if _has_file(path) else _steps(path))
    item, root = selection.item, listing.real_path(path)
    if _has_file(directory):
        steps.check_no_choice(directory, item=item)
    else:
        present = listing.directory_names(directory).directories
        item = steps.choose_item(directory, _items(directory), item, present)
        if item is None:
            what = f"holds no T5X checkpoint: neither a file `{TREE_FILE}` nor steps with one"
            hint = "Name the directory of a step, or the file itself."
            raise SourceError(f"{shown(directory)} {what}", hint=hint)
        directory = os.path.join(directory, item)
        listing.check_link(directory, root)
    listing.check_link(os.path.join(directory, TREE_FILE), root)
    return steps.ChosenFile(directory, TREE_FILE, step, item)


def choices(path: str, location: steps.ChosenFile) -> Choices:
    """The steps and items that the file at a path was chosen from."""
    numbers = () if location.step is None else tuple(sorted(_steps(path).values()))
    return Choices(numbers, items=() if location.item is None else steps.items_beside(location.directory))


def _has_file(directory: str) -> bool:
    return listing.has_entry(os.path.join(directory, TREE_FILE))


FORMAT = Format(
    name="t5x",
    detect=detect,
    module=__name__,
    choices=("step", "item"),
    replaces_files=True,
    holds_lists=False,
)
