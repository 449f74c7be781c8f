"""The journal of a run to a store, by which other runs recognize its objects.

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
"""State of a run that has not begun to publish: the destination is as it was before."""


@dataclass(frozen=True)
class Journal:
    """A run's identity, the objects that were there before it, and the publication it has begun."""

    run: str
    """Token of the run. Another process that resumes it keeps the token."""
    identity: Mapping[str, str]
    """Identity of the run, for `resume`."""
    before: Mapping[str, str]
    """Versions of the objects that were there when it began, by their names below the destination."""
    adopted: frozenset[str] = frozenset()
    """Names of data that others wrote for it, which stays where the run fails."""
    state: str = WRITING
    documents: Mapping[str, bytes] = field(default_factory=dict)
    """While switching: the small objects that are to be put, in this order; the marker is the last."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """While switching: data that is to be copied to its name, with the name that it lies under."""
    data: frozenset[str] = frozenset()
    """While switching: names of all data."""
    around: Mapping[str, str] = field(default_factory=dict)
    """Versions of all other objects of a step that one item is written for. They stay."""
    amended: Mapping[str, bytes] = field(default_factory=dict)
    """While switching: what takes the place of some of those, after the marker."""

    @property
    def marker(self) -> str:
        """The object that makes the checkpoint complete: the last document, or else the last data."""
        return list(self.documents or self.waiting)[-1]

    @property
    def obsolete(self) -> list[str]:
        """Objects of the older checkpoint that the new one does not have."""
        return [name for name in self.before if name not in self.documents and name not in self.data]


def journal_name(run: str) -> str:
    """The name of a run's journal below its destination."""
    return f"{OWN}{run}.json"


def own_prefix(run: str) -> str:
    """The prefix below the destination of everything else that a run keeps for itself."""
    return f"{OWN}{run}/"


def alive_name(run: str) -> str:
    """The name of a run's sign of life below its destination."""
    return f"{own_prefix(run)}alive"


def tasks_prefix(run: str) -> str:
    """Prefix of a run's journals of tasks, below its destination."""
    return f"{own_prefix(run)}journal-"


def to_bytes(journal: Journal) -> bytes:
    """The journal as it is stored, in ASCII. Documents are within it, in base 64."""
    return json.dumps(vars(journal), default=_json).encode("ascii")


def _json(value: bytes | frozenset[str]) -> str | list[str]:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else sorted(value)


def from_bytes(content: bytes) -> Journal | None:
    """The journal that was stored; None where this is none."""
    try:
        return msgspec.json.decode(content, type=Journal)
    except (ValueError, RecursionError):
        return None
