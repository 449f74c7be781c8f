"""The plan: what every output leaf is, where it comes from, and what bringing it about costs.

A plan is made from metadata alone. What is printed, what `plan` and `--dry-run` report as JSON, and what is
executed are this one value.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.graph.nodes import Node
from ckpt_surgery.language.params import ParamValue
from ckpt_surgery.planner.cutting import Cut
from ckpt_surgery.planner.entries import RuleRef


class Fate(enum.StrEnum):
    KEPT = "kept"
    RENAMED = "renamed"
    TRANSFORMED = "transformed"
    DEFAULTED = "defaulted"
    ADDED = "added"


class Transfer(enum.StrEnum):
    LINK = "link"
    COPY = "copy"
    COMPUTE = "compute"


@frozen()
class Step:
    """One output leaf."""

    leaf: Leaf
    """Key, kind, spec, sharding and other metadata as they will be written; without a manifest."""
    value: Node
    fate: Fate
    rule: RuleRef | None
    """None where a policy decided (`unmatched: keep`, `target.prefer`)."""
    sources: tuple[tuple[str, str], ...]
    """(source name, key text) of every leaf that is read, in order, without repeats."""
    transfer: Transfer = Transfer.COMPUTE
    cut: Cut | None = None
    """How it is cut into chunks and tasks; None where nothing is computed."""
    stored: Manifest | None = None
    """The stored bytes that become it as they are; None where it is computed or has no array."""


@frozen()
class Dropped:
    """A source leaf that feeds no output."""

    source: str
    leaf: Leaf
    rule: RuleRef | None
    why: str
    """`drop`, `unmatched: drop`, `not in target`, …"""


@dataclass(frozen=True)
class Input:
    """A source, or the target, as the plan saw it."""

    name: str
    path: str
    format: str
    leaves: int
    fingerprint: str
    step: int | None = None
    """The step that was chosen of a directory of steps, None elsewhere."""
    item: str | None = None
    """The item that was chosen of a composite checkpoint, None elsewhere."""


@dataclass(frozen=True)
class Costs:
    """All in bytes."""

    bytes_out: int
    """Size of the output arrays: shape × itemsize. The sum of the next three."""
    bytes_linked: int
    bytes_copied: int
    bytes_computed: int
    bytes_read: int
    """Decoded bytes that are read from the inputs to compute, and stored bytes that are copied."""
    peak_memory: int
    """Predicted working set, without the interpreter and its libraries."""
    bytes_dead: int = 0
    """Bytes inside linked files that no output uses."""


@dataclass(frozen=True)
class Plan:
    """Everything that `apply` will do. Made from metadata alone."""

    recipe: str
    """Path of the recipe."""
    recipe_sha256: str
    inputs: tuple[Input, ...]
    """The sources in order, then the target where it is a checkpoint."""
    steps: tuple[Step, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    costs: Costs
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The custom metadata of the result: the first source's, and the record of the conversion."""
    params: tuple[ParamValue, ...] = ()
    """The recipe's params, with where their values come from."""
    hooks_sha256: str | None = None
    """Of the file of hooks, None where the recipe has none."""
    restorable_by: Mapping[str, str] = field(default_factory=dict)
    """The oldest version of each package that restores the result, where that is known."""
