"""The JSON documents of `plan`, and of what was carried out, as a whole or as one shard of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ckpt_surgery.core.documents import UNSET, Document, Versioned
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.text import brief
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.plan_json import PlannedDocument, planned_document
from ckpt_surgery.report.verification import VerifiedRun


@dataclass(frozen=True)
class SharedFile(Document):
    """A file that the result shares with a source."""

    file: str
    """Its name in the result."""
    source: str
    """Its path in the source."""
    size: int
    """Bytes."""
    mode: str
    """Mode of the link."""


@dataclass(frozen=True)
class CompanionFile(Document):
    """A config or tokenizer file copied beside the weights."""

    file: str
    """Its name in the result."""
    source: str
    """Its path beside the source."""
    size: int
    """Bytes."""


@frozen()
class OverflowedLeaf(Document):
    """A leaf of the result with permitted NaN or infinity (`allow_nonfinite`, `on_overflow='inf'`)."""

    key: str
    """Its key."""
    count: int
    """Elements that are not finite although what they were made of is."""


@dataclass(frozen=True, kw_only=True)
class PlanDocument(PlannedDocument):
    """`plan`, `apply`, `convert`, and `commit` where it publishes something."""

    misfits: Mapping[str, str | None] | None = UNSET
    """Of `plan plan.json`: for each source the reason why it no longer fits; null where it fits."""
    seconds: float | None = UNSET
    """Wall time; where the plan was carried out, as the members that follow."""
    destination: str | None = UNSET
    """Path or URL of the result."""
    verified: VerifiedRun | None = UNSET
    """Outcome of verification."""
    shared: tuple[SharedFile, ...] | None = UNSET
    """Files that the result shares with other checkpoints."""
    companions: tuple[CompanionFile, ...] | None = UNSET
    """Config and tokenizer files copied beside the weights."""
    overflowed: tuple[OverflowedLeaf, ...] | None = UNSET
    """Leaves with NaN or infinity that the recipe permitted."""


def plan_document(plan: Plan, **more: Any) -> PlanDocument:
    """The JSON document of a plan. `more`: members of `PlanDocument` about a run, or about a saved plan."""
    return PlanDocument(**vars(planned_document(plan)), **more)


@dataclass(frozen=True, kw_only=True)
class ShardResult(Versioned):
    """`apply --shard I/N`."""

    shard: int
    """Number of the shard, from 0 on."""
    shards: int
    """Number of shards."""
    destination: str
    """Path or URL of the result."""
    tasks: int
    """Number of regions and stored outputs of the shard."""
    bytes: int
    """Their size, decoded."""
    already_done: bool
    """Whether another run had done the shard before."""
    missing_shards: tuple[int, ...]
    """Shards that are not done yet."""
    seconds: float
    """Wall time."""

    __repr__ = brief


@dataclass(frozen=True, kw_only=True)
class CommittedDocument(Versioned):
    """`commit` where everything was published before."""

    destination: str
    """Path or URL of the result."""
    committed: Literal[True] = True
    """Always true."""
