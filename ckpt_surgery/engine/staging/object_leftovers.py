"""Objects below a destination in a store: unpublished work of earlier runs with its journals, and all others.

Only the run that holds the destination's lock asks: every other run has ended, or will find that it has lost
the lock before it publishes anything.

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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from ckpt_surgery.core.text import number_of, shown
from ckpt_surgery.engine.staging.leftovers import Leftover
from ckpt_surgery.engine.staging.locks import LEASE
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.publications import SWITCHING
from ckpt_surgery.storage.store import Stat, Store

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

    def as_json(value: bytes | frozenset[str]) -> str | list[str]:
        return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else sorted(value)

    return json.dumps(vars(journal), default=as_json).encode("ascii")


def from_bytes(content: bytes) -> ObjectJournal | None:
    """Parse a journal; None if the data is something else."""
    try:
        return msgspec.json.decode(content, type=ObjectJournal)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class LeftObjects(Leftover):
    """Objects that another run left."""

    run: str
    journal: ObjectJournal | None
    """None if the run ended before it wrote one, or after it removed it."""
    objects: Mapping[str, Stat]
    """All its objects, by name below the destination."""

    @property
    def switching(self) -> ObjectJournal | None:
        """The journal, if the run had begun to publish."""
        return self.journal if self.journal is not None and self.journal.state == SWITCHING else None

    @property
    def data(self) -> Mapping[str, Stat]:
        """The data that the run wrote, by present name."""
        waiting = f"{own_prefix(self.run)}data/"
        objects = self.objects.items()
        return {name: stat for name, stat in objects if not name.startswith(OWN) or name.startswith(waiting)}


def listed(store: Store, prefix: str) -> dict[str, Stat]:
    """List every object below a destination by its name there. Raises StorageError."""
    return {name[len(prefix) + 1 :]: stat for name, stat in store.walk(f"{prefix}/").items()}


def examine(store: Store, prefix: str) -> tuple[Mapping[str, Stat], Sequence[LeftObjects]]:
    """Tell leftovers from all other objects below a destination, which come first, by their names there.

    Raises StorageError, SourceError.
    """
    left = listed(store, prefix)
    leftovers = []
    where = f"what lies below {shown(f'{store.url}/{prefix}')}"
    tokens = (name.removeprefix(OWN).partition("/")[0] for name in left if name.startswith(OWN))
    for run in sorted({token.removesuffix(".json") for token in tokens} - {""}):
        name = journal_name(run)
        journal = from_bytes(store.read(f"{prefix}/{name}")) if name in left else None
        own = _own_objects(run, journal, left)
        writing = journal is not None and journal.state == WRITING
        resumable = writing and any(name.startswith(tasks_prefix(run)) for name in own)
        identity = {} if journal is None else journal.identity
        leftovers.append(LeftObjects(where, identity, resumable, run, journal, own))
        left = {other: stat for other, stat in left.items() if other not in own}
    return left, leftovers


def _own_objects(run: str, journal: ObjectJournal | None, objects: Mapping[str, Stat]) -> dict[str, Stat]:
    own, prefix = journal_name(run), own_prefix(run)
    kept = {name: stat for name, stat in objects.items() if name == own or name.startswith(prefix)}
    if journal is not None:
        until = max(stat.modified for stat in kept.values()) + int(LEASE * 1e9)
        known = {*journal.before, *journal.around, *journal.adopted}
        others = ((name, stat) for name, stat in objects.items() if stat.modified <= until)
        kept |= {name: stat for name, stat in others if name not in known and not name.startswith(OWN)}
    return kept


def remove(store: Store, prefix: str, run: str, objects: Collection[str]) -> None:
    """Remove a run's objects, named relative to the destination. Raises StorageError.

    Its journals of tasks come first, so that what is left of it is never resumed; the journal that tells
    what is its own comes last.
    """

    def turn(name: str) -> int:
        if name.startswith(tasks_prefix(run)):
            return 0
        return 2 if name.startswith(own_prefix(run)) else 3 if name == journal_name(run) else 1

    for _, group in groupby(sorted(objects, key=turn), turn):
        store.delete([f"{prefix}/{name}" for name in sorted(group)])


def clear(store: Store, prefix: str, leftovers: Sequence[LeftObjects]) -> list[str]:
    """Remove leftovers of runs that never published. Returns a sentence for each. Raises StorageError."""
    where, rest = shown(f"{store.url}/{prefix}"), "which an unfinished run left behind"
    for leftover in leftovers:
        remove(store, prefix, leftover.run, list(leftover.objects))
    counts = (number_of(len(leftover.objects), "object") for leftover in leftovers)
    return [f"removed {count} below {where}, {rest}" for count in counts]
