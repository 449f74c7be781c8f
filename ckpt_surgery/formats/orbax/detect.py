"""Find the item in an Orbax directory: flat, in one step, or in one of a CheckpointManager's steps.

Source of the conventions: orbax-checkpoint 0.12.8. An unfinished save has `.orbax-checkpoint-tmp` in its
name, or neither a commit time nor a commit file. Names: `ckpt_surgery.formats.shared.orbax_layout`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.protocols import Choices
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    UNFINISHED,
    committed,
    is_checkpoint,
    is_item,
    steps_in,
)
from ckpt_surgery.formats.shared.steps import (
    STEP_NAME,
    check_no_choice,
    choose_item,
    items_beside,
    locate,
    quoted,
)
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import check_link, directory_names, exists, is_directory, real_path

JSON_FILE = "metadata"
"""The file of an item that Orbax's JsonSave wrote."""
_TREE_HANDLER = re.compile(r"(Standard|PyTree)\w*Handler$")


@dataclass(frozen=True)
class OrbaxItem:
    """The item that was chosen, and what the step around it says."""

    directory: str
    """Real path of the item's directory."""
    root: str
    """Real path of what the user named: links must stay within it."""
    step: int | None = None
    item: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Custom metadata of the step, or of a v1 checkpoint."""


def check_holds_steps(directory: str, step: int) -> None:
    """Refuse to put a step into what holds none: a checkpoint, or the directory of a step itself.

    `directory` need not exist. Raises UsageError.
    """
    above, name = os.path.split(urls.absolute(directory))
    if not name:
        return  # the root of the file system, which stands for any destination
    if is_directory(directory) and is_checkpoint(directory):
        problem = "is a checkpoint itself, not a directory of steps"
    elif name == str(step):
        problem = f"names the step {step} already"
    elif STEP_NAME.fullmatch(name) and is_directory(above) and steps_in(above):
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


def locate_item(path: str, selection: Selection) -> OrbaxItem:
    """Find the item to read. Raises SourceError or UsageError with the names there are to choose from."""
    root = real_path(path)
    _check_finished(root)
    if UNFINISHED in os.path.basename(os.path.dirname(root)):
        _check_finished(os.path.dirname(root))
    steps = {} if is_checkpoint(root) else steps_in(root)
    directory, step = locate(path, selection.step, steps, committed)
    if step is not None:
        _check_finished(directory)
    return _in_checkpoint(directory, root, step, selection.item)


def choices(location: OrbaxItem) -> Choices:
    """The steps and items that an item was chosen from."""
    steps = {} if location.step is None else steps_in(location.root)
    finished = {name for name in steps if committed(os.path.join(location.root, name))}
    return Choices(
        tuple(sorted(steps[name] for name in finished)),
        tuple(sorted(number for name, number in steps.items() if name not in finished)),
        () if location.item is None else items_beside(location.directory),
    )


def _in_checkpoint(directory: str, root: str, step: int | None, item: str | None) -> OrbaxItem:
    """The item within one checkpoint: the directory itself, or one of its items."""
    about: dict[str, Any] = {}
    if exists(os.path.join(directory, CHECKPOINT_METADATA)):
        about = read_json(os.path.join(directory, CHECKPOINT_METADATA))
    custom, handlers = about.get("custom_metadata"), about.get("item_handlers")
    metadata = custom if isinstance(custom, dict) else {}
    if is_item(directory) or isinstance(handlers, str):
        if not is_item(directory) and not _is_tree_handler(handlers):
            _refuse_item_without_arrays(directory)
        check_no_choice(directory, item=item)
        return OrbaxItem(directory, root, step, None, metadata)
    name = _chosen_item(directory, handlers if isinstance(handlers, dict) else {}, item)
    check_link(os.path.join(directory, name), root)
    return OrbaxItem(os.path.join(directory, name), root, step, name, metadata)


def _is_tree_handler(name: Any) -> bool:
    return isinstance(name, str) and _TREE_HANDLER.search(name) is not None


def _refuse_item_without_arrays(directory: str) -> None:
    """Raise UsageError for an item of JSON, which is not damaged, and SourceError for other files alone."""
    names = directory_names(directory)
    if names.files and not names.directories:
        hint = "Name the step above it, or another item."
        if JSON_FILE in names.files:
            raise UsageError(f"{shown(directory)} is an item of JSON, without arrays", hint=hint)
        raise SourceError(f"{shown(directory)} holds no arrays, only {few(names.files)}", hint=hint)


def _chosen_item(directory: str, handlers: Mapping[str, Any], wanted: str | None) -> str:
    present = directory_names(directory).directories
    items = [
        name
        for name in present
        if is_item(os.path.join(directory, name)) or _is_tree_handler(handlers.get(name))
    ]
    missing = [name for name, handler in handlers.items() if _is_tree_handler(handler) and name not in items]
    if missing and wanted is None:
        raise SourceError(
            f"{shown(directory)} should hold {quoted(missing)}, which is missing",
            hint="The checkpoint is incomplete; take another copy, or choose another item: `item=NAME`.",
        )
    name = choose_item(directory, items, wanted, present)
    if name is None:
        _refuse_item_without_arrays(directory)
        raise SourceError(
            f"{shown(directory)} has no item with arrays",
            hint=f"It has {quoted(present)}." if present else "It is incomplete; take another copy.",
        )
    return name
