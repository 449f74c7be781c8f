"""What `inspect` and `diff` do, for Python. Nothing of recipes is needed, nor imported."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core.arguments import Size, bytes_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.engine.resources import default_memory
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.report import values as compare
from ckpt_surgery.report.differences import Difference, Holds, diff_trees

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found."""

    path: str
    format: str
    step: int | None
    item: str | None
    metadata: Mapping[str, Any]
    leaves: tuple[Leaf, ...]


def inspect(
    path: PathLike, *, step: int | None = None, item: str | None = None, format: str | None = None
) -> Inspection:
    """What is in a checkpoint, without reading an array. Raises SourceError or UsageError."""
    source = formats.open_source(os.fspath(path), format, step, item)
    leaves = tuple(source.leaves().values())
    return Inspection(source.path, source.format, source.step, source.item, source.metadata, leaves)


def diff(
    a: PathLike,
    b: PathLike,
    *,
    step: int | None = None,
    item: str | None = None,
    values: bool = False,
    memory: Size | None = None,
) -> Difference:
    """How two checkpoints differ in keys, containers, shapes and dtypes; with `values`, in numbers too.

    What could not be compared is told; the two are then not known to be the same.
    """
    budget = bytes_of("memory", memory)
    one, other = (formats.open_source(os.fspath(p), None, step, item) for p in (a, b))
    difference = diff_trees(one.leaves(), other.leaves(), _holds(one.format), _holds(other.format))
    if values:
        found = compare.value_differences(one, other, budget or default_memory())
        difference = replace(difference, values=found.values, uncompared=found.uncompared)
    return difference


def _holds(format: str) -> Holds:
    """What is known of a source's format, by the name that the source gives it."""
    known = formats.formats().get(format)
    return Holds(format) if known is None else Holds(format, known.holds_empty, known.holds_lists)
