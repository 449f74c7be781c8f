"""The directory of parts beside a destination, where the machines of a sharded run leave their results.

`.NAME.ckpt-surgery-parts/` holds
- `head.json`: which plan is carried out, and by how many shards; whoever comes first writes it;
- `plan-RUN.json`: that plan, as it was saved;
- `I.done.json`: what the first finished attempt at shard I has written;
- `result/`: what the sinks of all attempts write into, on a file system; `complete/` once it is published.

An attempt writes under a name that nobody else has, or the same bytes at the same place as another attempt,
and is not looked at unless its shard names it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import msgspec

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.journal import parsed_result, result_json
from ckpt_surgery.engine.tracking import ShardProgress
from ckpt_surgery.planner.plan import Replacement

HEAD = "head.json"


@dataclass(frozen=True)
class Head:
    """Header shared by all shards of one destination: identity, number of shards, the plan's name."""

    run: str
    """Random token of these parts."""
    identity: Mapping[str, str]
    """Version of the program, and digests of the plan and of its sources."""
    count: int
    """Number of shards."""
    replaces: Replacement | None
    """The checked state of the checkpoint that is replaced; None: nothing may be at the destination."""
    step_only: bool
    """True if the destination is one step of an existing CheckpointManager directory."""
    memory: int
    """Budget in bytes of the process that started the shards; the plan is cut for it on a cluster."""
    record_bytes: int
    """Bytes reserved for the record in formats that reserve some. It names paths of sources, and shards must
    come to the same offsets, even if sources are mounted at another place."""

    @property
    def plan(self) -> str:
        """The name of the document of the plan."""
        return f"plan-{self.run}.json"


class Parts(Protocol):
    """The parts of one destination. Documents are immutable: the first one put under a name wins."""

    place: str
    """Path or URL of the directory of parts, for messages."""
    work: str
    """Path or URL of the directory that sinks write into."""

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Start the shards, unless another process started them meanwhile.

        `plan` is the document of the plan. `create` is called once, with the directory that will be `work`,
        to make in it what all workers share. Raises StorageError.
        """
        ...

    def read(self, name: str) -> bytes | None:
        """Read a document; None if it does not exist. Raises StorageError."""
        ...

    def put(self, name: str, document: bytes) -> bool:
        """Add a document durably; False if its name is taken. Raises StorageError."""
        ...

    def sync(self, written: Iterable[str]) -> None:
        """Flush files and directories below `work` to stable storage, and nothing else there.

        Other shards write into `work` at the same time, and their files come and go. Raises StorageError.
        """
        ...

    def clear(self) -> None:
        """Remove everything, the head first. Raises StorageError."""
        ...


def head_of(parts: Parts) -> Head | None:
    """Read the head; None if no shard was started.

    Raises SourceError if that is damaged, StorageError.
    """
    text = parts.read(HEAD)
    if text is None:
        return None
    try:
        return msgspec.convert(json.loads(text), Head)
    except ValueError as error:
        raise _damaged(parts, HEAD, error) from error


def head_bytes(head: Head) -> bytes:
    """The head as a document."""
    return json.dumps(asdict(head)).encode("ascii")


def done_name(index: int) -> str:
    """Name of the document that records a shard's progress."""
    return f"{index}.done.json"


def part_of(parts: Parts, index: int) -> ShardProgress | None:
    """Read the progress of a finished shard; None if it is unfinished. Raises SourceError for damage."""
    name = done_name(index)
    text = parts.read(name)
    if text is None:
        return None
    try:
        document = json.loads(text)
        done = {int(number): parsed_result(entry) for number, entry in document["tasks"].items()}
        return ShardProgress(document["worker"], done)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(parts, name, error) from error


def missing(parts: Parts, head: Head) -> list[int]:
    """Numbers of the unfinished shards."""
    return [index for index in range(head.count) if parts.read(done_name(index)) is None]


def part_bytes(part: ShardProgress) -> bytes:
    """The progress of a finished shard as a document."""
    tasks = {str(number): result_json(done) for number, done in part.done.items()}
    return json.dumps({"worker": part.worker, "tasks": tasks}).encode("ascii")


def _damaged(parts: Parts, name: str, error: Exception) -> SourceError:
    return SourceError(
        f"{shown(f'{parts.place}/{name}')} is damaged ({type(error).__name__})",
        hint="Remove the directory, and run all shards again.",
    )


def shards_text(indices: Sequence[int], count: int, most: int = 20) -> str:
    """Shards for a message: `2/8, 5/8`."""
    named = ", ".join(f"{index}/{count}" for index in indices[:most])
    return named if len(indices) <= most else f"{named} and {len(indices) - most} more"
