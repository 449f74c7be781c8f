"""The life of an unpublished checkpoint: locked, written, then published or removed.

with interruptible(), staged(DiskStage(path, one_file, identity, replaces)) as stage:
    ...  # write into stage.work
    stage.publish()
"""

import contextlib
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import DestinationError, Interrupted, PlanError, StorageError, SurgeryError
from ckpt_surgery.engine.staging.heartbeat import Lock, keep_alive
from ckpt_surgery.engine.staging.leftovers import RUN, L, difference
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.store import Store
from ckpt_surgery.system.signals import deferred, unhindered


@dataclass(frozen=True)
class FileLines:
    """Lines in one file."""

    path: Path

    def read(self) -> bytes:
        """Read all lines. Raises StorageError.

        A torn last line, of a process that died, is dropped from the file too: the next one would join it.
        """
        with storage_errors(self.path):
            if not self.path.exists():
                return b""
            text = self.path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                os.truncate(self.path, len(whole))
        return whole

    def add(self, lines: bytes) -> None:
        """Append whole lines. Raises StorageError."""
        with storage_errors(self.path), open(self.path, "ab") as file:
            file.write(lines)


@dataclass(frozen=True)
class ObjectLines:
    """Lines in objects that share a prefix."""

    store: Store
    prefix: str

    def read(self) -> bytes:
        """Read the lines of all objects."""
        directory = self.prefix.rpartition("/")[0]
        names = [name for name in self.store.walk(f"{directory}/") if name.startswith(self.prefix)]
        return b"".join(self.store.read(name) for name in sorted(names))

    def add(self, lines: bytes) -> None:
        """Put one more object with whole lines. Raises StorageError."""
        self.store.put(f"{self.prefix}{secrets.token_hex(8)}.jsonl", lines)


Lines = FileLines | ObjectLines
"""Storage for the lines of a run's journal."""


class Staging(ABC):
    """Holds a checkpoint until it is published."""

    lock: Lock
    """The destination's lock."""
    identity: Mapping[str, str]
    """Identity of the run, for `resume`."""
    called: str
    """Name of the destination in messages."""
    work: str
    """Path or URL of the directory that the sink writes into."""
    product: str
    """Path or URL at which the written checkpoint can be opened: `work`, or the one file in it."""
    resumed: bool = False
    """True if this run resumes another one."""
    published: bool = False
    """True if the destination is new and complete."""
    notices: tuple[str, ...] = ()
    """Sentences about leftovers of earlier runs, and files that could not be removed after publication."""

    @abstractmethod
    def begin(self, resume: bool) -> None:
        """Clean up after other runs and create this run's place; with `resume`, take over an earlier run's.

        Raises PlanError if there is something to resume that another run did.
        """

    def choose(self, candidates: Sequence[L], resume: bool) -> L | None:
        """The leftover to continue, if `resume` asks for one; adds a notice if there is none.

        Raises PlanError if it has another identity.
        """
        if not resume:
            return None
        leftover = next((leftover for leftover in candidates if leftover.resumable), None)
        self.resumed = leftover is not None
        if leftover is None:
            self.notices += (f"nothing can be resumed for {self.called}: this run starts from the beginning",)
            return None
        name, reason = difference(leftover.identity, self.identity)
        if name:
            reason = reason if leftover.identity else f"its {RUN} cannot be read"
            hint = "Without `resume=True`, the run removes it and starts from the beginning."
            raise PlanError(f"{leftover.where} cannot be resumed: {reason}", hint=hint)
        return leftover

    @abstractmethod
    def journal(self, worker: str) -> Lines:
        """Journal of one worker."""

    def put_beside(self, record: str) -> None:
        """Store the record to be published beside the checkpoint, for formats that cannot contain it.

        Those that write to stores themselves can.
        """
        raise AssertionError(record)

    @abstractmethod
    def publish(self) -> None:
        """Publish at the destination, which stays unchanged until then, whatever fails.

        Raises DestinationError if another run has taken the destination over, or if something is there that
        is not to be replaced; StorageError; VerificationError if what was written makes no checkpoint.
        """

    @abstractmethod
    def kept_in(self) -> str | None:
        """Place of finished tasks, as in "kept in …"; None if there are none."""

    @abstractmethod
    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """Remove this run's leftovers. `keep`: finished tasks stay; `quickly`: a signal waits.

        Returns a sentence for what could not be removed.
        """

    @abstractmethod
    def report(self, failure: BaseException) -> None:
        """Add the state of the destination to a failure's message."""

    def renew(self) -> None:
        """Renew the lock."""
        self.lock.renew()

    def note_left(self, *reasons: str) -> None:
        """Add notices of what could not be done after publication."""
        self.notices += tuple(f"{self.called} is new and complete; {reason}" for reason in reasons)

    def opened(self) -> contextlib.AbstractContextManager[object]:
        """Context in which `work` and `product` can be opened."""
        return contextlib.nullcontext()

    def report_state(self, failure: BaseException, existed: bool) -> None:
        """Add to a failure's message whether the destination is new, if the user could be in doubt."""
        if self.published:
            errors.add_sentence(failure, f"{self.called} is new and complete")
        elif isinstance(failure, Interrupted):
            state = "is as it was before" if existed else "does not exist"
            errors.add_sentence(failure, f"nothing was published: {self.called} {state}")


S = TypeVar("S", bound=Staging)


@contextlib.contextmanager
def staged(stage: S, resume: bool = False) -> Iterator[S]:
    """Lock a stage's destination and prepare the stage; remove all but the checkpoint at the end.

    After a failure inside, the destination is as it was, unless its publication had begun in a store: the
    next run completes that. What was written is kept for `resume` after an interruption or a StorageError,
    if there are finished tasks, and is removed otherwise. After publication nothing fails: what cannot be
    removed is told in `notices`.

    Raises DestinationError if a living run holds the lock, and what `begin` and `publish` raise.
    """
    held = False
    try:
        with deferred():
            stage.notices += stage.lock.acquire()
            held = True
        with keep_alive(stage.renew, stage.lock.interval):
            stage.begin(resume)
            with stage.opened():
                yield stage
        _end(stage)
    except BaseException as failure:
        if held:
            with unhindered():
                _clean_up(stage, failure)
        raise


def _end(stage: Staging) -> None:
    """Remove a run's leftovers. Failing that is a notice after publication, otherwise an error."""
    left = [*stage.remove(), *_released(stage.lock)]
    if left and not stage.published:
        raise StorageError("; ".join(left))
    stage.note_left(*left)


def _clean_up(stage: Staging, failure: BaseException) -> None:
    """Clean up after a failure: report the state, keep or remove what was written, release the lock."""
    stage.report(failure)
    resumable = not stage.published and isinstance(failure, Interrupted | StorageError | KeyboardInterrupt)
    kept = stage.kept_in() if resumable else None
    if kept is not None:
        errors.add_sentence(failure, f"what was written is kept {kept}", hint=errors.GO_ON)
    left = stage.remove(kept is not None, isinstance(failure, Interrupted))
    for sentence in [*left, *_released(stage.lock)]:
        errors.add_sentence(failure, sentence)


def _released(lock: Lock) -> list[str]:
    try:
        lock.release()
    except (OSError, StorageError, DestinationError) as error:
        return [still_there(lock.place, error)]
    return []


def still_there(place: str, why: OSError | SurgeryError | str) -> str:
    """Say that something could not be removed."""
    reason = errors.in_one_line(why) if isinstance(why, SurgeryError) else why
    return f"{place} is left ({getattr(why, 'strerror', None) or reason}); the next run removes it"
