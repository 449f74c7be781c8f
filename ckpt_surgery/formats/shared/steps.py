"""Choosing a step among several checkpoints in a directory, and an item within a step.

Every format finds its own steps and items. This module chooses among them, and has the messages for an
unclear choice.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.storage.listing import check_link, directory_names, real_path

MOST_NAMES = 10
"""Names that a message lists at most."""
_NO_MODEL = re.compile(r"(?:.*_)?opt(?:im|imizer)?(?:_(?:states?|params))?|rngs?")
"""Names of items that training programs save beside the item with the model."""
STEP_NAME = re.compile(r"(?:.*_)?([0-9]{1,18})")
"""Name of the directory of a step: `[PREFIX_]DIGITS`."""


@dataclass(frozen=True)
class ChosenFile:
    """The file that was chosen."""

    directory: str
    """Directory that holds the file; the paths of its arrays are relative to it."""
    name: str
    """Name of the file in the directory."""
    step: int | None = None
    item: str | None = None

    @cached_property
    def path(self) -> str:
        """Path of the file: one string for all chunks in it."""
        return os.path.join(self.directory, self.name)


def steps_of(directory: str, is_checkpoint: Callable[[str], bool]) -> dict[str, int]:
    """Step numbers by the names of directories that are checkpoints, perhaps damaged ones."""
    numbers = {
        name: int(match[1])
        for name in directory_names(directory).directories
        if (match := STEP_NAME.fullmatch(name)) is not None
    }
    return {name: n for name, n in numbers.items() if is_checkpoint(os.path.join(directory, name))}


def items_of(directory: str, is_item: Callable[[str], bool]) -> Iterator[str]:
    """The names of directories that are items; checkpoints in `3` and `10` are steps of their parent."""
    names = (name for name in directory_names(directory).directories if not STEP_NAME.fullmatch(name))
    return (name for name in names if is_item(os.path.join(directory, name)))


def locate(
    path: str, step: int | None, steps: Mapping[str, int], is_finished: Callable[[str], bool] | None = None
) -> tuple[str, int | None]:
    """Real path of the directory of the step that is meant, and its number: of `path` itself without `steps`.

    `is_finished`: whether the save of a step's directory was finished; by default all were. Raises UsageError
    for a step that is not there, and SourceError where it is not clear which, and for a link that leaves.
    """
    root = real_path(path)
    if not steps:
        check_no_choice(path, step)
        return root, None
    finished = steps if is_finished is None else (n for n in steps if is_finished(os.path.join(root, n)))
    name = choose_step(root, steps, step, finished)
    check_link(os.path.join(root, name), root)
    return os.path.join(root, name), steps[name]


def choose_step(
    directory: str,
    steps: Mapping[str, int | float],
    wanted: int | None,
    finished: Iterable[str] | None = None,
) -> str:
    """The name of the step that is asked for, or of the latest one.

    `steps`: step number by name; there is at least one. `finished`: the names among which the latest is
    chosen; all of them by default. Raises UsageError where there is no step `wanted`, and SourceError where
    several names have that number, or no save was finished.
    """
    number: int | float | None = wanted
    if number is None:
        number = max((steps[name] for name in (steps if finished is None else finished)), default=None)
    if number is None:
        what = f"No step of {shown(directory)} was ever committed: {_latest(steps)}"
        raise SourceError(what, hint="Every save was interrupted; use another checkpoint.")
    names = sorted(name for name, step in steps.items() if step == number)
    if not names:
        what = f"{shown(directory)} has no step {number}"
        raise UsageError(what, hint=f"It has {_latest(steps) or 'no steps'}.")
    if len(names) > 1:
        what = f"{shown(directory)} has step {number} more than once: {quoted(names)}"
        raise SourceError(what, hint="Name the path of the one that is meant.")
    return names[0]


def choose_item(
    directory: str, items: Sequence[str], wanted: str | None, others: Iterable[str] = ()
) -> str | None:
    """The name of the item that is asked for, or of the one with the model; None where there are no items.

    `items`: those with arrays. `others`: names of what is there without arrays. Raises UsageError where
    `wanted` is not among the items, and where none is asked for and several can hold the model.
    """
    if wanted is None:
        items = [name for name in items if not holds_no_model(name)] or items
        if len(items) > 1:
            what = f"{shown(directory)} has several items with arrays: {quoted(items)}"
            raise UsageError(what, hint="Choose one: `item=NAME`.")
        return items[0] if items else None
    if wanted not in items:
        why = "has no arrays" if wanted in others else "does not exist"
        what = f"The item `{shown(wanted)}` of {shown(directory)} {why}{did_you_mean(wanted, items)}"
        raise UsageError(what, hint=f"Items with arrays: {quoted(items) or 'none'}.")
    return wanted


def holds_no_model(item: str) -> bool:
    """True for an item with the name of an optimizer's state, or of the state of random numbers."""
    return _NO_MODEL.fullmatch(item) is not None


def items_beside(directory: str) -> tuple[str, ...]:
    """The names of the items of the step that the directory of an item is in, its own among them."""
    return tuple(directory_names(os.path.dirname(directory)).directories)


def _latest(steps: Mapping[str, int | float]) -> str:
    """The names of the latest steps in the order of their numbers."""
    return quoted(sorted(steps, key=lambda name: (steps[name], natural_order(name))), last=True)


def quoted(names: Sequence[str], last: bool = False) -> str:
    """A list of names for a message: the first MOST_NAMES, or the `last`, and how many others there are."""
    kept = names[-MOST_NAMES:] if last else names[:MOST_NAMES]
    more = f" and {len(names) - len(kept)} more" if len(names) > len(kept) else ""
    return ", ".join(f"`{shown(name)}`" for name in kept) + more


def check_no_choice(path: str, step: int | None = None, item: str | None = None) -> None:
    """Raise UsageError if a step or an item is given for a path that does not hold several."""
    for name, value, other in (("step", step, ", or name its parent"), ("item", item, "")):
        if value is not None:
            what = f"{shown(path)} has no {name}s to choose from"
            raise UsageError(what, hint=f"Leave out `{name}={shown(str(value))}`{other}.")
