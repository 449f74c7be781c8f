"""Locks in object stores: an object beside the destination that its run rewrites periodically.

Whoever writes it names the version that has to be there, so that of two runs one always loses. A lock holds
for `LEASE` seconds by the store's own clock.
"""

import contextlib
import threading

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.heartbeat import TRIES, Lock, Sign
from ckpt_surgery.engine.staging.owners import Note, Owner, note_bytes, parse_note
from ckpt_surgery.storage.store import Condition, ConditionFailed, Only, Store, Version

LEASE = 60.0
"""Seconds without a renewal after which a run counts as ended."""


def lock_name(name: str) -> str:
    """Name of the lock object of a destination."""
    parent, slash, last = name.rpartition("/")
    return f"{parent}{slash}.{last}.ckpt-surgery-lock"


class ObjectLock(Lock):
    """A lock object. Safe to use from several threads. Methods raise StorageError."""

    interval = 20.0
    limit = LEASE

    def __init__(self, store: Store, name: str):
        super().__init__(f"{store.url}/{name}")
        self._store = store
        self._name = name
        self._signs = 0
        self._version = ""
        self._taker: Owner | None = None
        self._released = False
        self._guard = threading.Lock()

    def read(self) -> Sign | None:
        """Read the lock; None if there is none. Notes the version if it is this run's."""
        for _ in range(TRIES):
            stat = self._store.stat(self._name)
            if stat is None:
                return None
            with contextlib.suppress(SourceError):  # it has just been renewed or released: look again
                note = parse_note(self._store.read(self._name, version=stat.version))
                sign = Sign(note.owner, stat.modified / 1e9, stat.version, note.sign)
                if self._is_own(sign):
                    self._version = stat.version
                return sign
        raise self._contended()

    def renew(self) -> None:
        """Rewrite the lock. If another run took it, it is marked as lost."""
        with self._guard:
            for _ in range(TRIES):
                if self.lost or self._released or self._put(Version(self._version)):
                    return
                sign = self.read()
                if sign is None:
                    if self._put(Only.ABSENT):  # a person has removed it
                        return
                elif self._is_own(sign):
                    if sign.number == self._signs:
                        return  # the answer to this request was lost; else, to an earlier one: try again
                else:
                    self.lost, self._taker = True, sign.owner
            if not self.lost:
                raise self._contended()

    def check_held(self) -> None:
        """Raise DestinationError if the lock is known to be lost; sends no request."""
        if self.lost:
            raise self._taken(self._taker)

    def confirm(self) -> None:
        """Check that this run holds the lock, and renew it. Raises DestinationError."""
        self.renew()
        self.check_held()

    def release(self) -> None:
        """Remove the lock if it is this run's, and stop renewing it."""
        with self._guard:
            self._released = True
            super().release()

    def _create(self) -> bool:
        if not self._put(Only.ABSENT):
            return False
        if self._put(Only.ABSENT):  # it takes no notice of conditions, without which a lock is useless
            self._remove()
            raise StorageError(
                f"{shown(self._store.url)} replaces objects that are to be written only where there are none",
                hint="Nothing can be published safely there. Write to a local directory, and upload it.",
            )
        return True

    def _replace(self, sign: Sign) -> bool:
        return self._put(Version(str(sign.version)))

    def _put(self, only: Condition) -> bool:
        """Write the lock conditionally; False if the condition does not hold.

        The content is new each time: if versions are digests, equal bytes would have the same version.
        """
        self._signs += 1
        content = note_bytes(Note(self.owner, sign=self._signs))
        with contextlib.suppress(ConditionFailed):
            self._version = self._store.put(self._name, content, only).version
            return True
        return False

    def _remove(self) -> None:
        self._store.delete([self._name])

    def _now(self) -> float:
        return self._store.now() / 1e9
