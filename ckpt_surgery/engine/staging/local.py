"""Publishing a checkpoint on a local file system: a lock, a temporary directory, one rename.

Everything is written into a directory with a random name beside the destination. After all of it has
reached the disk, one rename makes what was written, a directory or one file, the destination. Before the
rename the destination does not change, whatever goes wrong.

    with interruptible(), staged(destination) as staging:
        ...  # write into staging.work
        publish(staging, overwrite=False)
"""

import contextlib
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ckpt_surgery.core.errors import (
    GO_ON,
    DestinationError,
    Interrupted,
    StorageError,
)
from ckpt_surgery.engine.signals import deferred, unhindered
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.heartbeat import beating
from ckpt_surgery.engine.staging.locks import acquire, confirm, release
from ckpt_surgery.engine.staging.outcomes import add
from ckpt_surgery.engine.staging.owners import Owner, this_process
from ckpt_surgery.engine.staging.publishing import add_record, check_alone, put_in_place
from ckpt_surgery.engine.staging.syncing import interruptibly, sync_file, sync_tree
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, path_text
from ckpt_surgery.storage.record_files import beside

ANY: Mapping[str, str] = MappingProxyType({})
"""The identity of runs that are not told apart."""
_LONGEST_REMOVAL = 1.0
"""Seconds for which a run that is to stop removes its files; more can take long on slow disks."""


@dataclass
class Staging:
    """A checkpoint that is being written, and its destination."""

    destination: Path
    """Absolute path that the rename creates or replaces."""
    directory: Path
    """Temporary directory beside the destination. No other process writes there. Journals are in it, and a
    record `NAME.ckpt_surgery.json`, if there is one, that is published beside the destination."""
    work: Path
    """Directory that the checkpoint is written into, empty at first unless `resumed`; or the one that others
    have written into."""
    product: Path
    """What is renamed to the destination: `work`, or the one file in it, which has the destination's name."""
    owner: Owner
    """This run, as the lock names it."""
    called: str
    """What messages call the destination."""
    spool: bool
    """Whether what is written is uploaded from here, and nothing is published here."""
    resumed: bool = False
    """Whether this run goes on with what another one has written."""
    notices: tuple[str, ...] = ()
    """Sentences about what a dead run left: a lock that was taken over, files that were removed; and about
    what could not be removed after publication."""
    made: os.stat_result | None = None
    """Identity of the product, by which it is recognized at the destination; None until it is about to be
    published."""
    published: bool = False
    """Whether the destination is new and complete."""


@contextlib.contextmanager
def staged(
    destination: Path,
    one_file: bool = False,
    identity: Mapping[str, str] = ANY,
    resume: bool = False,
    written: Path | None = None,
    called: str | None = None,
) -> Iterator[Staging]:
    """Lock a destination and make a temporary directory beside it; remove both at the end.

    With `one_file` the file that is written into `work` under the destination's name is published, otherwise
    `work` itself. `identity` says what the run does. With `resume`, the temporary directory of a dead run
    that did the same is taken over, where there is one with finished tasks. `written` is a directory on the
    same file system that others have written into, which takes the place of `work`, and which is theirs again
    after a failure. `called`: what messages call the destination, where it is not this path but what is
    uploaded from here.

    Other leftovers of dead runs are cleaned up first: a lock is taken over, temporary directories are
    removed, and a checkpoint that was moved aside is put back.

    After a failure inside, the destination is as it was. The temporary directory is kept for `resume` after
    an interruption or a StorageError, if a journal in it names finished tasks, and is removed otherwise.
    After publication nothing fails: what cannot be removed is told in `notices`.

    Raises DestinationError where a living run holds the lock, PlanError where there is something to resume
    that another run did, StorageError where the file system refuses an operation.
    """
    destination = absolute(destination)
    lock = lock_of(destination)
    owner = this_process(secrets.token_hex(8))
    directory = leftovers.directory_of(destination, owner.run)
    work = directory / leftovers.RESULT if written is None else written
    product = work / destination.name if one_file else work
    name = path_text(destination) if called is None else called
    staging = Staging(destination, directory, work, product, owner, name, called is not None)
    held = False
    try:
        with storage_errors(lock), deferred():
            taken = acquire(lock, owner)
            held = True
        with beating((lock, directory / leftovers.RUN), owner.run):
            with storage_errors(destination):
                staging.notices = () if staging.spool else taken.notices
                _begin(staging, lock, taken.ended, identity, resume)
            yield staging
        _end(staging, lock)
    except BaseException as failure:
        if held:
            _clean_up(staging, lock, failure)
        raise


def _begin(staging: Staging, lock: Path, ended: str, identity: Mapping[str, str], resume: bool) -> None:
    """Put in order what dead runs left, and make this run's directory or take over one of theirs."""
    destination, directory = staging.destination, staging.directory
    found = leftovers.leftovers(destination, lock, ended)
    taken_up = leftovers.to_resume(found, identity) if resume else None
    notices = leftovers.put_back(found, destination)
    if taken_up is not None:
        leftovers.take_over(taken_up, directory, staging.owner, identity)
        staging.resumed = True
    elif resume:
        notices.append(f"nothing can be resumed for {staging.called}: this run starts from the beginning")
    notices += leftovers.clear([other for other in found if other is not taken_up], destination)
    if taken_up is None:
        leftovers.begin(directory, staging.owner, identity)
    staging.notices += tuple(notices)


# --- publication ----------------------------------------------------------------------------------


def publish(staging: Staging, overwrite: bool) -> None:
    """Sync everything that was written, then rename it to the destination.

    An existing destination is refused, even one that was created during the run. With `overwrite` the old and
    the new checkpoint exchange names in one step, and the old one is removed when `staged` ends. If the
    system or the file system cannot exchange names, the old one is moved aside first. If the run dies before
    the new one is in place, the next run puts the old one back. A record in the temporary directory is put
    beside the destination after that.

    Raises DestinationError if the destination exists, or another run has taken it over, StorageError if the
    file system refuses an operation, VerificationError if the directory holds anything besides the one file
    that was to be written.
    """
    product, directory = staging.product, staging.directory
    with storage_errors(directory):
        if not leftovers.is_own(directory, staging.owner.run):
            raise DestinationError(
                f"{path_text(directory)} was taken over or removed during this run",
                hint="Nothing was published. A run counts as dead after two minutes without a sign of life.",
            )
        if product != staging.work:
            check_alone(product)
        interruptibly(partial(_sync, staging))
        staging.made = os.lstat(product)
        leftovers.announce(directory, staging.made)
    with deferred(), storage_errors(staging.destination):
        confirm(lock_of(staging.destination), staging.owner)
        put_in_place(product, staging.destination, directory, overwrite)
        staging.published = True
        try:
            add_record(staging.destination, directory)
        except OSError as error:
            record = path_text(beside(staging.destination))
            reason = f"its record {record} could not be written ({error.strerror or error})"
            staging.notices += (f"{path_text(staging.destination)} is complete; {reason}",)


def _sync(staging: Staging) -> None:
    sync_tree(staging.work)
    record = staging.directory / beside(staging.destination).name
    if exists(record):
        sync_file(record)


# --- the end --------------------------------------------------------------------------------------


def _end(staging: Staging, lock: Path) -> None:
    """Remove directory and lock. After publication what cannot be removed is a notice; before, an error."""
    left = _removed(staging) + _released(staging, lock)
    if left and not staging.published:
        raise StorageError("; ".join(left))
    staging.notices += tuple(f"{staging.called} is complete; {reason}" for reason in left)


def _removed(staging: Staging, seconds: float = math.inf) -> list[str]:
    """Remove the temporary directory unless another run has taken it over. Says what is left, and why."""
    directory, reason = staging.directory, "there is much to remove"
    try:
        if not exists(directory) or not leftovers.is_own(directory, staging.owner.run):
            return []
        if interruptibly(partial(leftovers.remove, directory), seconds):
            return []
    except OSError as error:
        reason = error.strerror or str(error)
    leftovers.give_up(directory)
    return [f"{path_text(directory)} is left ({reason}); the next run removes it"]


def _released(staging: Staging, lock: Path) -> list[str]:
    try:
        release(lock, staging.owner)
    except OSError as error:
        return [f"{path_text(lock)} is left ({error.strerror or error}); the next run removes it"]
    return []


def _clean_up(staging: Staging, lock: Path, failure: BaseException) -> None:
    """After a failure, remove or keep the temporary directory, release the lock, and say how things are."""
    with unhindered():
        if not staging.spool:  # else the store's own staging tells
            _tell_outcome(staging, failure)
        if _is_kept(staging, failure):
            _tell_kept(staging, failure)
            leftovers.give_up(staging.directory)
            left = []
        else:
            left = _removed(staging, _LONGEST_REMOVAL if isinstance(failure, Interrupted) else math.inf)
        for sentence in left + _released(staging, lock):
            add(failure, sentence)


def _is_kept(staging: Staging, failure: BaseException) -> bool:
    """Whether the temporary directory is worth keeping for `resume=True`."""
    if staging.published or not isinstance(failure, Interrupted | StorageError | KeyboardInterrupt):
        return False
    try:
        return leftovers.is_own(staging.directory, staging.owner.run) and bool(
            leftovers.journals(staging.directory)
        )
    except OSError:
        return True


def _tell_kept(staging: Staging, failure: BaseException) -> None:
    add(
        failure,
        f"what was written is kept in {path_text(staging.directory)}{_finished(staging.directory)}",
        hint=GO_ON,
    )


def _finished(directory: Path) -> str:
    try:
        lines = sum(journal.read_bytes().count(b"\n") for journal in leftovers.journals(directory))
    except OSError:
        return ""
    return f": {lines} finished task{'' if lines == 1 else 's'}"


def _tell_outcome(staging: Staging, failure: BaseException) -> None:
    """Add to the failure's message what the destination holds, where a user could be in doubt."""
    destination, made = staging.destination, staging.made
    try:
        there = os.lstat(destination) if exists(destination) else None
    except OSError as error:
        add(failure, f"{path_text(destination)} cannot be examined ({error.strerror})")
        return
    if staging.published or (made is not None and there is not None and os.path.samestat(made, there)):
        staging.published = True
        add(failure, f"{path_text(destination)} itself is new and complete")
    elif isinstance(failure, Interrupted):
        state = "is as it was before" if there else "does not exist"
        add(failure, f"nothing was published: {path_text(destination)} {state}")
