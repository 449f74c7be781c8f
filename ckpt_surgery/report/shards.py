"""What one shard of a plan has done, and what `commit` says where there is nothing left to do."""

from dataclasses import dataclass
from typing import Literal

from ckpt_surgery.core.documents import Versioned
from ckpt_surgery.core.text import brief


@dataclass(frozen=True, kw_only=True)
class ShardResult(Versioned):
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

    __repr__ = brief


@dataclass(frozen=True, kw_only=True)
class CommittedDocument(Versioned):
    """`commit` where everything was published before."""

    destination: str
    """What was written."""
    committed: Literal[True] = True
    """Always true."""
