"""Sort the objects below a destination in a store: unpublished work of earlier runs, and all others.

Only the run that holds the destination's lock asks: every other run has ended, or will find that it has lost
the lock before it publishes anything.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.leftovers import Leftover
from ckpt_surgery.engine.staging.object_journal import (
    WRITING,
    ObjectJournal,
    from_bytes,
    journal_name,
    own_prefix,
    tasks_prefix,
)
from ckpt_surgery.engine.staging.object_lock import LEASE
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.publications import SWITCHING
from ckpt_surgery.storage.store import Stat, Store


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


@dataclass(frozen=True)
class StoredObjects:
    """All objects below a destination."""

    others: Mapping[str, Stat]
    """Objects that are no leftovers, by name below the destination."""
    leftovers: Sequence[LeftObjects]


def listed(store: Store, prefix: str) -> dict[str, Stat]:
    """List every object below a destination by its name there. Raises StorageError."""
    return {name[len(prefix) + 1 :]: stat for name, stat in store.walk(f"{prefix}/").items()}


def examine(store: Store, prefix: str) -> StoredObjects:
    """Group the objects below a destination by the run that put them. Raises StorageError, SourceError."""
    left = listed(store, prefix)
    leftovers = []
    where = f"what lies below {shown(f'{store.url}/{prefix}')}"
    for run in sorted({_run_of(name) for name in left if name.startswith(OWN)} - {""}):
        name = journal_name(run)
        journal = from_bytes(store.read(f"{prefix}/{name}")) if name in left else None
        own = _own_objects(run, journal, left)
        writing = journal is not None and journal.state == WRITING
        resumable = writing and any(name.startswith(tasks_prefix(run)) for name in own)
        identity = {} if journal is None else journal.identity
        leftovers.append(LeftObjects(where, identity, resumable, run, journal, own))
        left = {other: stat for other, stat in left.items() if other not in own}
    return StoredObjects(left, leftovers)


def _run_of(name: str) -> str:
    """Token in the name of an object below `.ckpt-surgery/`; empty if there is none."""
    return name.removeprefix(OWN).partition("/")[0].removesuffix(".json")


def _own_objects(run: str, journal: ObjectJournal | None, objects: Mapping[str, Stat]) -> dict[str, Stat]:
    kept = {
        name: stat
        for name, stat in objects.items()
        if name == journal_name(run) or name.startswith(own_prefix(run))
    }
    if journal is None:
        return kept
    until = max(stat.modified for stat in kept.values()) + int(LEASE * 1e9)
    return kept | {
        name: stat
        for name, stat in objects.items()
        if name not in journal.before
        and name not in journal.around
        and name not in journal.adopted
        and not name.startswith(OWN)
        and stat.modified <= until
    }


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
    notices = []
    for leftover in leftovers:
        remove(store, prefix, leftover.run, list(leftover.objects))
        count = len(leftover.objects)
        where = shown(f"{store.url}/{prefix}")
        notices.append(
            f"removed {count} object{'' if count == 1 else 's'} below {where}, which an unfinished run left "
            "behind"
        )
    return notices
