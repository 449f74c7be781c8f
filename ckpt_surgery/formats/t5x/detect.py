"""Where a T5X checkpoint or a legacy one of Orbax lies: a file `checkpoint`, in steps and items.

Source of the conventions: T5X writes `checkpoint_<step>/checkpoint`; Orbax before `_METADATA` wrote
`<step>/<item>/checkpoint`, or the file alone. A save that was never finished has `tmp` in its name.
"""

import os
import re
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.msgpack.t5x_layout import FILE_NAME, has_root
from ckpt_surgery.formats.shared.orbax_layout import STEP_NAME, is_item
from ckpt_surgery.formats.shared.steps import (
    check_no_item,
    check_no_step,
    choose_item,
    choose_step,
    items_beside,
)
from ckpt_surgery.storage.listing import (
    check_link,
    directory_names,
    has_entry,
    is_directory,
    is_file,
    real_path,
)
from ckpt_surgery.storage.reading import OpenFile, opened

_UNFINISHED = re.compile(r"\.(?:orbax-checkpoint-)?tmp(?:-|\Z)")


@dataclass(frozen=True)
class T5XFile:
    """The file that was chosen."""

    directory: str
    """Directory that holds the file; the paths of its arrays are relative to it."""
    name: str
    """Name of the file in the directory."""
    step: int | None = None
    item: str | None = None

    @cached_property
    def path(self) -> str:
        """Path of the file."""
        return os.path.join(self.directory, self.name)


# --- recognizing ------------------------------------------------------------------------------------------


def detect(path: str) -> bool:
    """Whether a path is a T5X or legacy Orbax checkpoint, or a directory of steps; damaged ones too."""
    if not is_directory(path):
        return _is_tree_file(path)
    is_step = STEP_NAME.fullmatch(os.path.basename(real_path(path)))
    return _is_checkpoint(path) or bool(_steps(path)) or bool(is_step and _items(path))


def _is_tree_file(path: str) -> bool:
    """Whether a file holds a tree: by its root, or by its first byte where it has the usual name."""
    with opened(path) as file:
        usual = os.path.basename(path) == FILE_NAME
        return _begins_with_map(file) and (usual or has_root(file))


def _begins_with_map(file: OpenFile) -> bool:
    """Whether a file can be a map of MessagePack; TensorFlow's text file of the usual name cannot."""
    first = file.read(0, min(1, file.stat.size))
    return bool(first) and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF))


def _is_checkpoint(directory: str) -> bool:
    """Whether a directory has the file, without the `_METADATA` that Orbax wrote beside it for a while."""
    path = os.path.join(directory, FILE_NAME)
    return is_file(path) and not is_item(directory) and _is_tree_file(path)


def _items(directory: str) -> list[str]:
    """The directories with checkpoints in a step's directory; other steps do not count."""
    names = (name for name in directory_names(directory).directories if not STEP_NAME.fullmatch(name))
    return [n for n in names if not _UNFINISHED.search(n) and _is_checkpoint(os.path.join(directory, n))]


def _steps(directory: str) -> dict[str, int]:
    """Step numbers by directory name."""
    found = {}
    for name in directory_names(directory).directories:
        inside, match = os.path.join(directory, name), STEP_NAME.fullmatch(name)
        if match and (_is_checkpoint(inside) or _items(inside)):
            found[name] = int(match[1])
    return found


# --- choosing ---------------------------------------------------------------------------------------------


def locate(path: str, selection: Selection) -> T5XFile:
    """Find the file to read. Raises SourceError or UsageError with the names there are to choose from."""
    _check_finished(path)
    if not is_directory(path):
        check_no_step(path, selection.step)
        check_no_item(path, selection.item)
        directory, name = os.path.split(path)
        return T5XFile(directory, name)
    root = real_path(path)
    if not _has_file(path) and (steps := _steps(path)):
        name = choose_step(path, steps, selection.step)
        directory = os.path.join(path, name)
        check_link(directory, root)
        return _in_step(directory, root, steps[name], selection.item)
    check_no_step(path, selection.step)
    return _in_step(path, root, None, selection.item)


def choices(path: str, location: T5XFile) -> Choices:
    """The steps and items that the file at a path was chosen from."""
    steps = () if location.step is None else tuple(sorted(_steps(path).values()))
    return Choices(steps, items=() if location.item is None else items_beside(location.directory))


def _has_file(directory: str) -> bool:
    return has_entry(os.path.join(directory, FILE_NAME))


def _check_finished(path: str) -> None:
    if _UNFINISHED.search(os.path.basename(real_path(path))):
        raise SourceError(f"{shown(path)} is a save that was never finished", hint="Use another step.")


def _in_step(directory: str, root: str, step: int | None, item: str | None) -> T5XFile:
    """The file of a step's directory: its own, or that of an item."""
    if _has_file(directory):
        check_no_item(directory, item)
    else:
        item = choose_item(directory, _items(directory), item, directory_names(directory).directories)
        if item is None:
            raise SourceError(
                f"{shown(directory)} holds no T5X checkpoint: neither a file `{FILE_NAME}` "
                "nor steps with one",
                hint="Name the directory of a step, or the file itself.",
            )
        directory = os.path.join(directory, item)
        check_link(directory, root)
    check_link(os.path.join(directory, FILE_NAME), root)
    return T5XFile(directory, FILE_NAME, step, item)
