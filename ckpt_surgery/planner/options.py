"""What a plan is asked for, and what it takes to carry one out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_surgery.core.protocols import LinkMode, Source
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.plan import Plan

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Request:
    """What a plan is asked for: the arguments of `plan` and `apply` that decide what comes out."""

    recipe: str | None
    """Path of the recipe; None: the empty one, which keeps every leaf."""
    sources: tuple[str, ...]
    target: str | None = None
    set: tuple[str, ...] = ()
    """`NAME=VALUE` overrides of the recipe's params."""
    step: int | None = None
    item: str | None = None
    src_format: str | None = None
    """Of the sources; None: by what they hold, each for itself."""
    format: str | None = None
    """Of the destination; None: the recipe's `output.format`, else by DST's name, else `orbax`."""
    dst: str | None = None
    dst_step: int | None = None
    dst_item: str | None = None
    shard_size: int | None = None
    """Bytes of arrays per file at most; None: one file."""
    memory: int | None = None
    """Budget in bytes; None: the smaller of 2 GiB and a quarter of what is available."""
    workers: int | None = None
    link_mode: LinkMode = LinkMode.AUTO
    """How stored bytes that need no change come into the destination."""
    allow_hooks: bool = False
    """Whether the recipe's hooks, Python code, may run."""


@dataclass(frozen=True)
class DestinationOptions:
    """Where the result goes, and how it is written there."""

    path: str | None
    """DST; None: it is not known yet."""
    format: str
    step: int | None
    """The number of the step that DST, a CheckpointManager directory, gets."""
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
        """The last part of the path; a name that says nothing where there is none yet."""
        return "checkpoint" if self.path is None else os.path.basename(os.path.abspath(self.path))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan together with what it will be carried out with."""

    plan: Plan
    sources: Mapping[str, Source]
    """By name; the target under its own name where it is a checkpoint."""
    destination: DestinationOptions
    memory: int
    """Budget in bytes."""
    workers: int
    hooks: HookFile | None
    """The hooks of the recipe that the plan was made from."""
