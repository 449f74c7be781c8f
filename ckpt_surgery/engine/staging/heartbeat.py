"""Locks beside a destination: each names its run, which renews it while it is alive.

A run has ended as soon as its process has, if that can be known (`owners.has_ended`), and otherwise if
its lock was not renewed for `limit` seconds. Ages are differences of times that the file system or the store
of the destination gave, so that the clocks of two machines are never compared.

Who holds the lock owns what all runs keep beside the destination: that of others can be resumed or
removed, for each run confirms its lock before it publishes.
"""

import contextlib
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from ckpt_surgery.core.errors import DestinationError, SurgeryError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.owners import Owner, has_ended, this_process
from ckpt_surgery.system.signals import deferred, unhindered

TRIES = 10
"""Attempts at a contended lock."""


@dataclass(frozen=True)
class Sign:
    """Content and times of a lock at one moment."""

    owner: Owner | None
    """None if the lock does not say."""
    modified: float
    """Time of the last renewal in seconds since the epoch, by the clock of the file system or store."""
    version: Hashable
    """Changes with each renewal."""
    number: int = 0
    """Number of renewals, if locks count them."""


@dataclass(frozen=True)
class Life:
    """Judgement on a run: whether it has ended, and how that is known."""

    ended: bool
    known: bool
    """True if its process can be seen from here; otherwise only its renewals count."""
    age: float
    """Seconds since the last renewal."""


class Lock(ABC):
    """A lock for one run, held or not. Methods raise OSError, or StorageError if it is in a store."""

    interval: ClassVar[float]
    """Seconds between two renewals."""
    limit: ClassVar[float]
    """Seconds without a renewal after which a run counts as ended."""
    lost = False
    """True if another run is known to hold it."""

    def __init__(self, place: str):
        """`place`: the lock's path or URL."""
        self.place = place
        self.owner = this_process(secrets.token_hex(8))

    def acquire(self) -> tuple[str, ...]:
        """Create the lock, or take over a dead run's; returns a sentence for the user in that case.

        Raises DestinationError if a run is alive.
        """
        for _ in range(TRIES):
            if self._create():
                return ()
            sign = self.read()
            if sign is None:  # its run has just ended
                continue
            if sign.owner == self.owner:
                return ()  # the answer to the request that created it was lost, as networks can lose one
            self._check_ended(sign)
            if self._replace(sign):
                return (f"took over the lock of {who(sign.owner)}, which has ended without finishing",)
        raise self._contended()

    def check(self) -> None:
        """Raise DestinationError if `acquire` would; changes nothing."""
        sign = self.read()
        if sign is not None:
            self._check_ended(sign)

    def judge(self, sign: Sign) -> Life:
        """Decide whether the run that made a lock has ended."""
        ended = None if sign.owner is None else has_ended(sign.owner)
        age = max(0.0, self._now() - sign.modified)
        return Life(age > self.limit if ended is None else ended, ended is not None, age)

    def release(self) -> None:
        """Remove the lock if it is this run's."""
        sign = self.read()
        if sign is not None and self._is_own(sign):
            self._remove()

    @abstractmethod
    def read(self) -> Sign | None:
        """Read the lock; None if there is none."""

    @abstractmethod
    def renew(self) -> None:
        """Renew the lock."""

    @abstractmethod
    def confirm(self) -> None:
        """Check right before publication that this run holds the lock; create it again if it was removed.

        Raises DestinationError if another run has it.
        """

    @abstractmethod
    def _create(self) -> bool:
        """Create the lock; False if there is one."""

    @abstractmethod
    def _replace(self, sign: Sign) -> bool:
        """Replace a dead run's lock by this run's; False if that changed meanwhile."""

    @abstractmethod
    def _remove(self) -> None:
        """Remove this run's lock."""

    @abstractmethod
    def _now(self) -> float:
        """Current time by the clock of the lock's file system or store."""

    def _is_own(self, sign: Sign) -> bool:
        return sign.owner is not None and sign.owner.run == self.owner.run

    def _check_ended(self, sign: Sign) -> None:
        life = self.judge(sign)
        if life.ended:
            return
        seen = f"{who(sign.owner)} is writing this destination ({last_sign(life)})"
        later = f"; else it will be taken over {max(0.0, self.limit - life.age):.0f} s from now"
        rest = "." if life.known else f"{later}, if it gives no sign of life."
        hint = f"Wait until it is done. If you are sure that it has ended, remove the lock file{rest}"
        raise DestinationError(f"{shown(self.place)}: {seen}", hint=hint)

    def _taken(self, owner: Owner | None) -> DestinationError:
        what = f"{who(owner)} has taken over this destination during this run"
        return DestinationError(f"{shown(self.place)}: {what}", hint=self.loss)

    @property
    def loss(self) -> str:
        """Hint: how another run could take the destination."""
        return (
            f"Nothing was published. A run counts as dead after {self.limit:.0f} s without a sign of life, "
            "or when its lock was removed."
        )

    def _contended(self) -> DestinationError:
        problem = f"{shown(self.place)}: other runs are just taking this lock"
        return DestinationError(problem, hint="Try again.")


def who(owner: Owner | None) -> str:
    """Describe a run for messages."""
    return "another run" if owner is None else shown(str(owner))


def last_sign(life: Life) -> str:
    """Describe when a run renewed its lock last."""
    return f"last sign of life {life.age:.0f} s ago"


@contextlib.contextmanager
def keep_alive(renew: Callable[[], None], interval: float) -> Iterator[None]:
    """Call `renew` every `interval` seconds in a thread, within this context.

    A lock that is missing or cannot be renewed is no error: it is confirmed before publication.
    """
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(interval):
            with contextlib.suppress(OSError, SurgeryError):
                renew()

    thread = threading.Thread(target=repeat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)  # it may hang in a network file system or store


@contextlib.contextmanager
def locked(lock: Lock) -> Iterator[tuple[str, ...]]:
    """Hold a lock within this context; yields what `acquire` returns. Raises what `acquire` raises."""
    held = False
    try:
        with deferred():
            notices = lock.acquire()
            held = True
        with keep_alive(lock.renew, lock.interval):
            yield notices
    finally:
        if held:
            with unhindered(), contextlib.suppress(OSError, SurgeryError):  # the next run takes it over
                lock.release()
