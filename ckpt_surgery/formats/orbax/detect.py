"""Where in an Orbax directory the item lies: flat, one step, or a CheckpointManager's many steps.

Source of the conventions: orbax-checkpoint 0.12.8. A step's directory is named `[PREFIX_]DIGITS`; an
unfinished save has `.orbax-checkpoint-tmp` in its name, or neither a commit time nor a commit file.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.ocdbt_reader import MANIFEST
from ckpt_surgery.storage.listing import (
    check_link,
    check_no_item,
    check_no_step,
    entries,
    is_directory,
    read_json,
)

TREE_METADATA = "_METADATA"
CHECKPOINT_METADATA = "_CHECKPOINT_METADATA"
COMMIT_FILE = "commit_success.txt"
V1_MARKER = "orbax.checkpoint"
UNFINISHED = ".orbax-checkpoint-tmp"
PROCESS_PREFIX = "ocdbt.process_"

_STEP_NAME = re.compile(r"(?:.*_)?([0-9]{1,18})")
_TREE_HANDLER = re.compile(r"(Standard|PyTree)\w*Handler$")


@dataclass(frozen=True)
class Location:
    """The item that was chosen, and what the step around it says."""

    directory: str
    """Real path of the item's directory."""
    root: str
    """Real path of what the user named: links must stay within it."""
    step: int | None = None
    item: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Custom metadata of the step, or of a v1 checkpoint."""


def _has(directory: str, *names: str) -> bool:
    return any(os.path.lexists(os.path.join(directory, name)) for name in names)


def _children(directory: str) -> list[str]:
    """Names of the directories in `directory`, sorted."""
    return sorted(entry.name for entry in entries(directory) if is_directory(entry))


def is_item(directory: str) -> bool:
    """Holds a tree of arrays, perhaps a damaged one."""
    if _has(directory, TREE_METADATA, MANIFEST):
        return True
    return any(name.startswith(PROCESS_PREFIX) for name in _children(directory))


def _is_checkpoint(directory: str) -> bool:
    """Is one checkpoint (flat, or of named items), perhaps a damaged one.

    Flat checkpoints in `3` and `10` are steps of their parent and not its items.
    """
    if _has(directory, CHECKPOINT_METADATA, V1_MARKER, COMMIT_FILE) or is_item(directory):
        return True
    names = (name for name in _children(directory) if not _STEP_NAME.fullmatch(name))
    return any(is_item(os.path.join(directory, name)) for name in names)


def _steps(directory: str) -> dict[str, int]:
    """Step numbers by directory name, of the finished and the damaged; temporary names left out."""
    matches = {name: _STEP_NAME.fullmatch(name) for name in _children(directory)}
    return {
        name: int(match[1])
        for name, match in matches.items()
        if match and _is_checkpoint(os.path.join(directory, name))
    }


def detect(path: Path) -> bool:
    """Whether `path` is an Orbax checkpoint or a CheckpointManager's directory, whole or not."""
    if not path.is_dir():
        return False
    directory = os.path.realpath(path)
    return UNFINISHED in os.path.basename(directory) or _is_checkpoint(directory) or bool(_steps(directory))


def check_holds_steps(directory: str, step: int) -> None:
    """Refuse to put a step into what holds none: a checkpoint, or the directory of a step itself.

    `directory` need not exist. Raises UsageError.
    """
    above, name = os.path.split(os.path.abspath(directory))
    if not name:
        return  # the root of the file system, which stands for any destination
    if os.path.isdir(directory) and _is_checkpoint(directory):
        problem = "is a checkpoint itself, and no directory of steps"
    elif name == str(step):
        problem = f"names the step {step} already"
    elif _STEP_NAME.fullmatch(name) and os.path.isdir(above) and _steps(above):
        problem = f"would be a step of {shown(above)} itself"
    else:
        return
    raise UsageError(
        f"{shown(directory)} {problem}", hint=f"Name the directory above it, or leave out `dst_step={step}`."
    )


def _check_finished(directory: str) -> None:
    if UNFINISHED in os.path.basename(directory):
        raise SourceError(
            f"{shown(directory)} is a save that was never finished",
            hint="Use another step; Orbax removes such directories itself.",
        )
    if not committed(directory):
        raise SourceError(
            f"{shown(directory)} was never committed: it has no {COMMIT_FILE} "
            f"and its {CHECKPOINT_METADATA} has no commit time",
            hint="The save was interrupted; use another checkpoint.",
        )


def committed(directory: str) -> bool:
    """Whether the save that wrote `directory` finished.

    Orbax writes `_CHECKPOINT_METADATA` at the start of a save and sets its commit time at the end;
    checkpoints older than that file are renamed into place when they are complete.
    """
    path = os.path.join(directory, CHECKPOINT_METADATA)
    if _has(directory, COMMIT_FILE) or not os.path.exists(path):
        return True
    return read_json(path).get("commit_timestamp_nsecs") is not None


def locate(path: str, selection: Selection) -> Location:
    """Find the item to read. Raises SourceError or UsageError with the names there are to choose from."""
    root = os.path.realpath(path)
    _check_finished(root)
    if UNFINISHED in os.path.basename(os.path.dirname(root)):
        _check_finished(os.path.dirname(root))
    if not _is_checkpoint(root) and (steps := _steps(root)):
        name = _choose_step(root, steps, selection.step)
        directory = os.path.join(root, name)
        check_link(directory, root)
        _check_finished(directory)
        return _in_checkpoint(directory, root, steps[name], selection.item)
    check_no_step(path, selection.step)
    return _in_checkpoint(root, root, None, selection.item)


def _choose_step(root: str, steps: Mapping[str, int], wanted: int | None) -> str:
    step = wanted
    if step is None:
        finished = [number for name, number in steps.items() if committed(os.path.join(root, name))]
        if not finished:
            raise SourceError(
                f"No step of {shown(root)} was ever committed: {_listed(steps)}",
                hint="Every save was interrupted; use another checkpoint.",
            )
        step = max(finished)
    names = [name for name, number in steps.items() if number == step]
    if not names:
        raise UsageError(f"{shown(root)} has no step {step}", hint=f"It has {_listed(steps)}.")
    if len(names) > 1:
        raise SourceError(
            f"{shown(root)} has step {step} more than once: {_listed(names)}",
            hint="Name the step's own directory instead.",
        )
    return names[0]


def _listed(names: Iterable[str], most: int = 10) -> str:
    known = [f"`{shown(name)}`" for name in names]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[-most:]) + more


def _in_checkpoint(directory: str, root: str, step: int | None, item: str | None) -> Location:
    """The item within one checkpoint: the directory itself, or one of its items."""
    about: dict[str, Any] = {}
    if os.path.exists(os.path.join(directory, CHECKPOINT_METADATA)):
        about = read_json(os.path.join(directory, CHECKPOINT_METADATA))
    custom, handlers = about.get("custom_metadata"), about.get("item_handlers")
    metadata = custom if isinstance(custom, dict) else {}
    if is_item(directory) or isinstance(handlers, str):
        check_no_item(directory, item)
        return Location(directory, root, step, None, metadata)
    name = _choose_item(directory, handlers if isinstance(handlers, dict) else {}, item)
    check_link(os.path.join(directory, name), root)
    return Location(os.path.join(directory, name), root, step, name, metadata)


def _is_tree_handler(name: Any) -> bool:
    return isinstance(name, str) and _TREE_HANDLER.search(name) is not None


def _choose_item(directory: str, handlers: Mapping[str, Any], wanted: str | None) -> str:
    present = _children(directory)
    items = [
        name
        for name in present
        if is_item(os.path.join(directory, name)) or _is_tree_handler(handlers.get(name))
    ]
    if wanted is not None:
        return _wanted_item(directory, wanted, items, present)
    missing = [name for name, handler in handlers.items() if _is_tree_handler(handler) and name not in items]
    if missing:
        raise SourceError(
            f"{shown(directory)} should hold {_listed(missing)}, which is missing",
            hint="The checkpoint is incomplete; take another copy, or choose another item: `item=NAME`.",
        )
    if not items:
        raise SourceError(
            f"{shown(directory)} has no item with arrays",
            hint=f"It has {_listed(present)}." if present else "It is incomplete; take another copy.",
        )
    if len(items) > 1:
        raise UsageError(
            f"{shown(directory)} has several items with arrays: {_listed(items)}",
            hint="Choose one: `item=NAME`.",
        )
    return items[0]


def _wanted_item(directory: str, wanted: str, items: list[str], present: list[str]) -> str:
    if wanted in items:
        return wanted
    why = "has no arrays" if wanted in present else "does not exist"
    raise UsageError(
        f"The item `{shown(wanted)}` of {shown(directory)} {why}{did_you_mean(wanted, items)}",
        hint=f"Items with arrays: {_listed(items) or 'none'}.",
    )
