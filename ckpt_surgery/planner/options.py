"""The options and open sources with which a plan is carried out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Encoder, Source
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.plan import Plan, Replacement

DEFAULT_FORMAT = "orbax"
DEFAULT_ITEM = "default"
"""Name of the item of a step where neither the caller nor the source has one."""


@dataclass(frozen=True)
class DestinationOptions:
    """Destination of the result, and options for writing it."""

    path: str | None
    """Path of the destination; None if the plan is made without one."""
    format: str
    step: int | None
    """Number of the step that the destination gets; None if it is no CheckpointManager directory."""
    item: str | None
    zarr: int
    """Version of the zarr specification: 2 or 3."""
    structure_file: bool
    """Whether the tree is also written as the file that older versions of Orbax look for."""
    shard_size: int | None
    """Bytes of arrays per file at most; None: one file."""
    link_mode: LinkMode

    @property
    def name(self) -> str:
        """The last component of the path; `checkpoint`, which implies no format, where there is no path."""
        return "checkpoint" if self.path is None else os.path.basename(urls.absolute(self.path))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan with everything that is needed to carry it out."""

    plan: Plan
    sources: Mapping[str, Source]
    """The open sources by name; `target` is the target, where that is a checkpoint."""
    destination: DestinationOptions
    encoder: Encoder
    """Encoder of the destination's format."""
    memory: int
    """Budget in bytes."""
    workers: int
    hooks: HookFile | None
    """The hooks of the recipe that the plan was made from; None if it has none or they must not run."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None] = field(default_factory=dict)
    """Name and content of each config that planning read, by source; None where there was none."""
    listing: Mapping[str, Leaf] | None = None
    """Leaves of the target by key, where that is a listing."""

    def replacing(self, replacement: Replacement | None) -> "Prepared":
        """The same for a destination at which this is."""
        return replace(self, plan=replace(self.plan, replaces=replacement))
