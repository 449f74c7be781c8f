"""Locks in object stores: an object beside the destination that its run writes again and again.

Whoever writes it names the version that has to be there, so that of two runs one always loses. A lock holds
for `LEASE` seconds by the store's own clock; another run takes it over after that, or at once where it can
see that the process has ended.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.locks import Taken, who
from ckpt_surgery.engine.staging.owners import Owner, from_json, has_ended, parsed, to_json
from ckpt_surgery.storage.store import ConditionFailed, Only, Stat, Store, Version

INTERVAL = 20.0
"""Seconds between two signs of life."""
LEASE = 60.0
"""Seconds without a sign of life after which a run counts as ended."""
_TRIES = 10
"""Attempts to take a lock that other runs take and release at the same time."""
_LONGEST_JOIN = 1.0
"""Seconds to wait for the thread at the end: it may wait for an answer of the store."""


def lock_name(name: str) -> str:
    """The name of the lock of a destination."""
    parent, slash, last = name.rpartition("/")
    return f"{parent}{slash}.{last}.ckpt-surgery-lock"


@dataclass(frozen=True)
class _Found:
    stat: Stat
    owner: Owner | None
    """None where the lock does not tell."""
    sign: object
    """Number of the sign of life."""


def _read(store: Store, name: str) -> _Found | None:
    """What a lock tells; None where there is none. Raises StorageError."""
    for _ in range(_TRIES):
        stat = store.stat(name)
        if stat is None:
            return None
        with contextlib.suppress(SourceError):  # it has just been renewed or released: look again
            document = parsed(store.read(name, version=stat.version))
            told = document if isinstance(document, dict) else {}
            return _Found(stat, from_json(told.get("owner")), told.get("sign"))
    raise _contended(store, name)


class ObjectLock:
    """A lock that this run holds. Safe to use from several threads."""

    def __init__(self, store: Store, name: str, owner: Owner):
        self.owner = owner
        self.url = f"{store.url}/{name}"
        self._store = store
        self._name = name
        self._signs = 0
        self._version = ""
        self._loser: _Found | None = None
        self._lost = False
        self._released = False
        self._guard = threading.Lock()

    def _content(self) -> bytes:
        """A new content each time: where versions are digests, equal bytes would have the same version."""
        self._signs += 1
        return json.dumps({"owner": to_json(self.owner), "sign": self._signs}).encode("ascii")

    def create(self) -> bool:
        """Create the lock; False where there is one. Raises StorageError."""
        try:
            self._version = self._store.put(self._name, self._content(), Only.ABSENT).version
        except ConditionFailed:
            return False
        return True

    def take(self, version: str) -> bool:
        """Replace the lock of an ended run; False where it has changed. Raises StorageError."""
        try:
            self._version = self._store.put(self._name, self._content(), Version(version)).version
        except ConditionFailed:
            return False
        return True

    def adopt(self, stat: Stat) -> None:
        """Take for this run's what it wrote although it got no answer."""
        self._version = stat.version

    def check_conditions(self) -> None:
        """Make sure that the store obeys conditions, without which a lock means nothing.

        Raises StorageError.
        """
        try:
            self._store.put(self._name, self._content(), Only.ABSENT)
        except ConditionFailed:
            return
        self._store.delete([self._name])
        raise StorageError(
            f"{shown(self._store.url)} replaces objects that are to be written only where there are none",
            hint="Nothing can be published safely there. Write to a local directory, and upload it.",
        )

    def renew(self) -> None:
        """Give a sign of life. A lock that another run has taken is noted as lost. Raises StorageError."""
        with self._guard:
            for _ in range(_TRIES):
                if self._lost or self._released or self.take(self._version):
                    return
                found = _read(self._store, self._name)
                if found is None:
                    if self.create():  # a person has removed it
                        return
                elif found.owner is not None and found.owner.run == self.owner.run:
                    self.adopt(found.stat)  # the answer to this request, or to an earlier one, was lost
                    if found.sign == self._signs:
                        return
                else:
                    self._lost, self._loser = True, found
            if not self._lost:
                raise _contended(self._store, self._name)

    def check(self) -> None:
        """Raise DestinationError where the lock is known to be lost; asks nothing."""
        if self._lost:
            taker = who(None if self._loser is None else self._loser.owner)
            raise DestinationError(
                f"{shown(self.url)}: {taker} has taken over this destination during this run",
                hint="Nothing was published. A run counts as dead after a minute without a sign of life, "
                "or when its lock was removed.",
            )

    def confirm(self) -> None:
        """Make sure that the lock is this run's, and renew it. Raises DestinationError, StorageError."""
        self.renew()
        self.check()

    @property
    def lost(self) -> bool:
        """Whether another run is known to have taken it."""
        return self._lost

    def release(self) -> None:
        """Remove the lock if it is this run's. Raises StorageError."""
        with self._guard:
            self._released = True
            found = _read(self._store, self._name)
            if found is not None and found.owner is not None and found.owner.run == self.owner.run:
                self._store.delete([self._name])


def acquire(store: Store, name: str, owner: Owner) -> tuple[ObjectLock, Taken]:
    """Create a lock, or take over that of a run that has ended.

    Raises DestinationError where a run is alive, StorageError where the store refuses, or obeys no
    conditions.
    """
    lock, taken = ObjectLock(store, name, owner), Taken()
    for _ in range(_TRIES):
        if lock.create():
            lock.check_conditions()
            return lock, taken
        found = _read(store, name)
        if found is None:  # its run has just ended
            continue
        if found.owner == owner:
            lock.adopt(found.stat)
            return lock, taken
        _check_ended(store, name, found)
        if lock.take(found.stat.version):
            return lock, Taken((_took_over(lock, found),), found.owner.run if found.owner else "")
    raise _contended(store, name)


def check_free(store: Store, name: str) -> None:
    """Raise DestinationError where `acquire` would; change nothing."""
    found = _read(store, name)
    if found is not None:
        _check_ended(store, name, found)


def _check_ended(store: Store, name: str, found: _Found) -> None:
    ended = None if found.owner is None else has_ended(found.owner)
    if ended:
        return
    age = max(0.0, (store.now() - found.stat.modified) / 1e9)
    if ended is None and age > LEASE:
        return
    hint = "Wait until it is done. If you are sure that it has ended, remove the lock."
    if ended is None:
        hint = (
            "Wait until it is done. If it has ended, which cannot be seen from here, its lock will be taken "
            f"over {LEASE - age:.0f} s from now; if you are sure of it, remove the lock."
        )
    raise DestinationError(
        f"{shown(f'{store.url}/{name}')}: {who(found.owner)} is writing this destination "
        f"(last sign of life {age:.0f} s ago)",
        hint=hint,
    )


def _took_over(lock: ObjectLock, found: _Found) -> str:
    if found.owner is None:
        return f"took over {shown(lock.url)}, which does not tell whose it is"
    return f"took over the lock of {who(found.owner)}, which has ended without finishing"


def _contended(store: Store, name: str) -> DestinationError:
    return DestinationError(
        f"{shown(f'{store.url}/{name}')}: other runs are just taking this lock", hint="Try again."
    )


@contextlib.contextmanager
def giving_signs(give: Callable[[], None]) -> Iterator[None]:
    """Within this context, a thread calls `give` every `INTERVAL` seconds.

    A store that cannot be reached for a while is no error: before publication, the lock is confirmed.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(INTERVAL):
            with contextlib.suppress(StorageError, DestinationError):
                give()

    thread = threading.Thread(target=repeat, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LONGEST_JOIN)
