"""The journal of a run that writes to a store: other runs recognize its objects by it.

Everything of a run `TOKEN` lies below `.ckpt-surgery/` there until it has published:
- `TOKEN.json`: whose run it is, what it does, and what was there before it: the journal;
- `TOKEN/alive`: its latest sign of life;
- `TOKEN/journal-*.json`: which tasks are done;
- `TOKEN/data/`: data whose names the older checkpoint has, until that is replaced.

Data lies in its place from the beginning. It is recognized by two facts: it was not there when the run began,
and it is no younger than the run's latest sign of life and the lease that this gave.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ckpt_surgery.storage.draft import OWN

WRITING = "writing"
"""State of a run that has not begun to publish: the destination is unchanged."""


@dataclass(frozen=True)
class ObjectJournal:
    """A run's identity, the objects that existed before it, and its publication, if that has begun."""

    run: str
    """Token of the run. Another process that resumes it keeps the token."""
    identity: Mapping[str, str]
    """Identity of the run, for `resume`."""
    before: Mapping[str, str]
    """Versions of the objects that existed when it began, by name below the destination."""
    adopted: frozenset[str] = frozenset()
    """Names of data that shards wrote for it; kept if the run fails."""
    state: str = WRITING
    documents: Mapping[str, bytes] = field(default_factory=dict)
    """While switching: documents to put, in this order; the marker is the last."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """While switching: final names of data to be copied, with their present names."""
    data: frozenset[str] = frozenset()
    """While switching: names of all data."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Versions of all other objects of a step in which one item is written. They are kept."""
    amended: Mapping[str, bytes] = field(default_factory=dict)
    """While switching: new content of some of those, put after the marker."""

    @property
    def marker(self) -> str:
        """Object that completes the checkpoint: the last document, or else the last data."""
        return list(self.documents or self.waiting)[-1]

    @property
    def obsolete(self) -> list[str]:
        """Names of the older checkpoint's objects that are not in the new one."""
        return [name for name in self.before if name not in self.documents and name not in self.data]


def journal_name(run: str) -> str:
    """Name of a run's journal below its destination."""
    return f"{OWN}{run}.json"


def own_prefix(run: str) -> str:
    """Prefix of a run's other private objects, below its destination."""
    return f"{OWN}{run}/"


def alive_name(run: str) -> str:
    """Name of the object that a run renews while it is alive, below its destination."""
    return f"{own_prefix(run)}alive"


def tasks_prefix(run: str) -> str:
    """Prefix of a run's journals of tasks, below its destination."""
    return f"{own_prefix(run)}journal-"


def to_bytes(journal: ObjectJournal) -> bytes:
    """Serialize a journal as ASCII, with its documents in base64."""
    return json.dumps(vars(journal), default=_json).encode("ascii")


def _json(value: bytes | frozenset[str]) -> str | list[str]:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else sorted(value)


def from_bytes(content: bytes) -> ObjectJournal | None:
    """Parse a journal; None if the data is something else."""
    try:
        return msgspec.json.decode(content, type=ObjectJournal)
    except (ValueError, RecursionError):
        return None
