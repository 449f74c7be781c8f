"""What one shard of a plan has done, and its JSON document."""

from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.documents import JSON_SCHEMA
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


def shard_document(result: ShardResult) -> dict[str, Any]:
    """What `apply --shard --json` writes."""
    return {
        "schema": JSON_SCHEMA,
        "shard": result.index,
        "shards": result.count,
        "destination": result.destination,
        "tasks": result.tasks,
        "bytes": result.nbytes,
        "already_done": result.already,
        "missing_shards": list(result.missing),
        "seconds": result.seconds,
    }


def committed_document(destination: str) -> dict[str, Any]:
    """What `commit --json` writes where there was nothing left to do."""
    return {"schema": JSON_SCHEMA, "destination": destination, "committed": True}
