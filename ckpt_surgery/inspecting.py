"""What is in a checkpoint, and how two differ: `inspect` and `diff`. Imports nothing of recipes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core.arguments import CheckpointLike, Size, bytes_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.engine.resources import default_memory
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.opening import opened, without_values
from ckpt_surgery.report.differences import Difference, Holds, diff_trees
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.values import statistics, value_differences
from ckpt_surgery.requests import checkpoint_or_tree
from ckpt_surgery.storage.views import forget


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found."""

    path: str
    """Path as the caller gave it."""
    format: str
    """Name of the format."""
    step: int | None
    """The step that was chosen; None where the checkpoint is not one of several steps."""
    item: str | None
    """The item that was chosen; None where the checkpoint is not composite."""
    metadata: Mapping[str, Any]
    """The user's custom metadata."""
    leaves: tuple[Leaf, ...]
    """Every leaf, in the checkpoint's order."""
    statistics: Mapping[str, Statistics | Unread] | None = None
    """Statistics by key text, of every leaf with an array; None where no values were read."""


@memory_errors("inspect the checkpoint")
def inspect(
    path: CheckpointLike,
    *,
    step: int | None = None,
    item: str | None = None,
    format: str | None = None,
    stats: bool = False,
) -> Inspection:
    """What is in a checkpoint, or in a pytree. Arrays are read only with `stats`, which reads all of them.

    `step` and `item` choose from a checkpoint that holds several (default: the latest step, the only item
    with arrays); `format` is what it is read as (default: what its content says). Raises SourceError or
    UsageError.
    """
    forget()
    source = opened(checkpoint_or_tree(path), format, step, item)
    leaves = tuple(source.leaves().values())
    found = statistics(source, default_memory()) if stats else None
    return Inspection(source.path, source.format, source.step, source.item, source.metadata, leaves, found)


@memory_errors("compare the checkpoints")
def diff(
    a: CheckpointLike,
    b: CheckpointLike,
    *,
    step: int | None = None,
    item: str | None = None,
    values: bool = False,
    memory: Size | None = None,
) -> Difference:
    """How two checkpoints or pytrees differ: keys, containers, shapes and dtypes; with `values`, values too.

    `step` and `item` choose from checkpoints that hold several. `memory` is the budget for values: bytes, or
    a text such as `2GiB`. Values that cannot be compared are listed; the two then count as different. Raises
    SourceError or UsageError.
    """
    forget()
    budget = bytes_of("memory", memory)
    one, other = (_opened(given, step, item) for given in (a, b))
    difference = diff_trees(one.leaves(), other.leaves(), _holds(one.format), _holds(other.format))
    if values:
        bare = without_values(one) | without_values(other)
        found = value_differences(one, other, budget or default_memory(), bare)
        difference = replace(difference, values=found.values, uncompared=found.uncompared)
    return difference


def _opened(given: CheckpointLike, step: int | None, item: str | None) -> Source:
    """A checkpoint with this step and item, or a tree, which has neither."""
    found = checkpoint_or_tree(given)
    return opened(found, None, step, item) if isinstance(found, str) else opened(found)


def _holds(format: str) -> Holds:
    """Which parts of a tree's structure a format can express; all of them, if no format has that name."""
    known = formats.formats().get(format)
    return Holds(format) if known is None else Holds(format, known.holds_empty, known.holds_lists)
