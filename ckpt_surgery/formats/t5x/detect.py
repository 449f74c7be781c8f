"""Where a T5X checkpoint or a legacy one of Orbax lies: a file `checkpoint`, in steps and items.

Source of the conventions: T5X writes `checkpoint_<step>/checkpoint`; Orbax before `_METADATA` wrote
`<step>/<item>/checkpoint`, or the file alone. A save that was never finished has `tmp` in its name.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.formats.orbax.detect import is_item
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.storage.listing import check_link, check_no_item, check_no_step, entries, is_directory
from ckpt_surgery.storage.reading import OpenFile, opened

FILE_NAME = "checkpoint"
ROOT_NAMES = {"version", "optimizer"}
"""All that is at the root of a T5X file, but for those of version 0."""

_STEP_NAME = re.compile(r"(?:.*_)?([0-9]{1,18})")
_UNFINISHED = re.compile(r"\.(?:orbax-checkpoint-)?tmp(?:-|\Z)")


@dataclass(frozen=True)
class Location:
    """The file that was chosen."""

    directory: str
    """That it is in, and that its arrays are relative to."""
    name: str
    """Of the file."""
    step: int | None = None
    item: str | None = None

    @cached_property
    def path(self) -> str:
        """Of the file."""
        return os.path.join(self.directory, self.name)


# --- recognizing ------------------------------------------------------------------------------------------


def detect(path: Path) -> bool:
    """Whether a path is a T5X or legacy Orbax checkpoint, or a directory of steps; damaged ones too."""
    root = os.fspath(path)
    try:
        if not os.path.isdir(root):
            return _is_file(root)
        is_step = _STEP_NAME.fullmatch(os.path.basename(os.path.realpath(root)))
        return _is_checkpoint(root) or bool(_steps(root)) or bool(is_step and _items(root))
    except SourceError:
        return False


def _is_file(path: str) -> bool:
    """A file of any name by its root; one with the usual name if it is MessagePack's."""
    with opened(path) as file:
        usual = os.path.basename(path) == FILE_NAME
        return _begins_with_map(file) and (usual or has_root(file))


def _begins_with_map(file: OpenFile) -> bool:
    """TensorFlow has a text file of the usual name."""
    first = file.read(0, min(1, file.stat.size))
    return bool(first) and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF))


def has_root(file: OpenFile) -> bool:
    """Whether a MessagePack file has T5X's root. Walks through it only as long as it may."""
    from ckpt_surgery.formats.shared.msgpack_tree import root_names

    seen: set[str | int] = set()
    try:
        for name in root_names(file):
            if name not in ROOT_NAMES:
                return False
            seen.add(name)
    except SourceError:
        return False
    return seen == ROOT_NAMES


def _is_checkpoint(directory: str) -> bool:
    """Has the file, and is not one of those that Orbax wrote along with it for a while."""
    path = os.path.join(directory, FILE_NAME)
    return os.path.isfile(path) and not is_item(directory) and _is_file(path)


def _directories(directory: str) -> list[str]:
    return sorted(entry.name for entry in entries(directory) if is_directory(entry))


def _items(directory: str) -> list[str]:
    """The directories with checkpoints in a step's directory; other steps are none."""
    names = (name for name in _directories(directory) if not _STEP_NAME.fullmatch(name))
    return [n for n in names if not _UNFINISHED.search(n) and _is_checkpoint(os.path.join(directory, n))]


def _steps(directory: str) -> dict[str, int]:
    """Step numbers by directory name."""
    matches = {name: _STEP_NAME.fullmatch(name) for name in _directories(directory)}
    found = {}
    for name, match in matches.items():
        inside = os.path.join(directory, name)
        if match and (_is_checkpoint(inside) or _items(inside)):
            found[name] = int(match[1])
    return found


# --- choosing ---------------------------------------------------------------------------------------------


def locate(path: str, selection: Selection) -> Location:
    """Find the file to read. Raises SourceError or UsageError with the names there are to choose from."""
    _check_finished(path)
    if not os.path.isdir(path):
        check_no_step(path, selection.step)
        check_no_item(path, selection.item)
        directory, name = os.path.split(path)
        return Location(directory, name)
    root = os.path.realpath(path)
    if not _has_file(path) and (steps := _steps(path)):
        name = _choose_step(path, steps, selection.step)
        directory = os.path.join(path, name)
        check_link(directory, root)
        return _in_step(directory, root, steps[name], selection.item)
    check_no_step(path, selection.step)
    return _in_step(path, root, None, selection.item)


def _has_file(directory: str) -> bool:
    return os.path.lexists(os.path.join(directory, FILE_NAME))


def _check_finished(path: str) -> None:
    if _UNFINISHED.search(os.path.basename(os.path.realpath(path))):
        raise SourceError(f"{shown(path)} is a save that was never finished", hint="Use another step.")


def _choose_step(path: str, steps: Mapping[str, int], wanted: int | None) -> str:
    step = max(steps.values()) if wanted is None else wanted
    names = [name for name, number in steps.items() if number == step]
    if not names:
        known = sorted(steps, key=lambda name: steps[name])
        raise UsageError(f"{shown(path)} has no step {step}", hint=f"It has {_listed(known[-10:])}.")
    if len(names) > 1:
        raise SourceError(
            f"{shown(path)} has step {step} more than once: {_listed(names)}",
            hint="Name the step's own directory instead.",
        )
    return names[0]


def _in_step(directory: str, root: str, step: int | None, item: str | None) -> Location:
    """The file of a step's directory: its own, or that of an item."""
    if _has_file(directory):
        check_no_item(directory, item)
    else:
        item = _choose_item(directory, item)
        directory = os.path.join(directory, item)
        check_link(directory, root)
    check_link(os.path.join(directory, FILE_NAME), root)
    return Location(directory, FILE_NAME, step, item)


def _choose_item(directory: str, wanted: str | None) -> str:
    items = _items(directory)
    if wanted is not None and wanted not in items:
        raise UsageError(
            f"{shown(directory)} has no item `{shown(wanted)}` with arrays{did_you_mean(wanted, items)}",
            hint=f"It has {_listed(items) or 'none'}.",
        )
    if wanted is None and len(items) > 1:
        raise UsageError(
            f"{shown(directory)} has several items with arrays: {_listed(items)}",
            hint="Choose one: `item=NAME`.",
        )
    if not items:
        raise SourceError(
            f"{shown(directory)} holds no T5X checkpoint: neither a file `{FILE_NAME}` nor steps with one",
            hint="Name the directory of a step, or the file itself.",
        )
    return items[0] if wanted is None else wanted


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    return ", ".join(f"`{shown(name)}`" for name in names)
