"""What one shard of a plan has done, and its JSON document."""

from dataclasses import dataclass
from typing import Literal

from ckpt_surgery.core.documents import Versioned
from ckpt_surgery.core.text import brief


@dataclass(frozen=True)
class ShardResult:
    """What one shard has done."""

    index: int
    """Number of the shard, from 0 on."""
    count: int
    """Number of shards."""
    destination: str
    """Path or URL of the destination."""
    tasks: int
    """Number of regions and stored outputs that belong to the shard."""
    nbytes: int
    """Their size in bytes, decoded."""
    already: bool
    """Whether another attempt had finished the shard before, so that this one counts for nothing."""
    missing: tuple[int, ...]
    """Shards that are not done yet."""
    seconds: float
    """Wall time."""

    __repr__ = brief


@dataclass(frozen=True, kw_only=True)
class ShardDocument(Versioned):
    """`apply --shard I/N`."""

    shard: int
    """Number of the shard, from 0 on."""
    shards: int
    """Number of shards."""
    destination: str
    """What is written."""
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


def shard_document(result: ShardResult) -> ShardDocument:
    """What `apply --shard --json` writes."""
    return ShardDocument(
        shard=result.index,
        shards=result.count,
        destination=result.destination,
        tasks=result.tasks,
        bytes=result.nbytes,
        already_done=result.already,
        missing_shards=result.missing,
        seconds=result.seconds,
    )


@dataclass(frozen=True, kw_only=True)
class CommittedDocument(Versioned):
    """`commit` where everything was published before."""

    destination: str
    """What was written."""
    committed: Literal[True] = True
    """Always true."""
