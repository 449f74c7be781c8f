"""Publishing a checkpoint in an object store: a lock, data in its place, documents, and the marker last.

Nothing refers to data before the documents are there, and the last of them, the marker, makes the checkpoint
complete. At every moment the destination is not committed, or is one whole checkpoint.

    with object_staged(url, identity) as staging:
        ...  # write to staging.draft_url
        publish(staging)
"""

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ckpt_surgery.core.errors import (
    GO_ON,
    DestinationError,
    Interrupted,
    SourceError,
    StorageError,
    SurgeryError,
    VerificationError,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.signals import deferred, unhindered
from ckpt_surgery.engine.staging import object_leftovers as leftovers
from ckpt_surgery.engine.staging.leftovers import check_identity
from ckpt_surgery.engine.staging.local import ANY
from ckpt_surgery.engine.staging.object_journal import (
    Journal,
    alive_name,
    journal_name,
    own_prefix,
    tasks_prefix,
    to_bytes,
)
from ckpt_surgery.engine.staging.object_lock import ObjectLock, acquire, giving_signs, lock_name
from ckpt_surgery.engine.staging.object_switch import Switch, in_order
from ckpt_surgery.engine.staging.outcomes import add, told
from ckpt_surgery.engine.staging.owners import this_process
from ckpt_surgery.engine.staging.uploading import carried_out
from ckpt_surgery.storage.draft import Draft, scheme_of_draft
from ckpt_surgery.storage.publications import SWITCHING
from ckpt_surgery.storage.store import Stat, Store
from ckpt_surgery.storage.stores import registered, store_of
from ckpt_surgery.storage.views import forget


def _unchecked() -> None:
    """No check of what is replaced."""


@dataclass
class ObjectStaging:
    """A checkpoint that is being written to a store, and its destination."""

    url: str
    """The destination."""
    store: Store
    prefix: str
    """The destination's name in the store."""
    run: str
    """Token of the run, which a run that resumes it keeps."""
    lock: ObjectLock
    draft: Draft
    """What this run writes, by names below the destination."""
    journal: Journal
    resumed: bool = False
    """Whether this run goes on with what another one has written."""
    notices: tuple[str, ...] = ()
    """Sentences about what earlier runs left, and about what could not be removed after publication."""
    switching: bool = False
    """Whether publication has begun: from then on, whoever comes next carries it to its end."""
    published: bool = False
    """Whether the destination is new and complete."""

    @property
    def draft_url(self) -> str:
        """URL of the directory that the sink writes into, and at which what was written is opened."""
        return self.draft.url

    @property
    def tasks(self) -> str:
        """What the names in the store begin with of the journals of tasks."""
        return f"{self.prefix}/{tasks_prefix(self.run)}"


@contextlib.contextmanager
def object_staged(
    url: str,
    identity: Mapping[str, str] = ANY,
    resume: bool = False,
    overwrite: bool = False,
    check: Callable[[], None] = _unchecked,
    adopted: Collection[str] = (),
    within: str | None = None,
) -> Iterator[ObjectStaging]:
    """Lock a destination in a store and note there what this run does; remove both at the end.

    `identity` says what the run does. With `resume`, the objects of an ended run that did the same are taken
    over, where it has left finished tasks. With `overwrite`, whatever is there is replaced; `check` is called
    once the lock is held and before anything is written, and raises where that is not what was looked at.
    `adopted`: names below the destination of data that others wrote for this run. `within`: name of the one
    item that is written, where the destination is a step whose other items stay: only what lies below it is
    replaced.

    What ended runs left is put in order first: a publication that had begun is carried to its end, other
    objects are removed.

    After a failure inside, the destination is as it was, unless publication had begun: then the next run, or
    `roll_forward`, completes it. Objects are kept for `resume` after an interruption or a StorageError, if
    there are finished tasks, and are removed otherwise.

    Raises DestinationError where a living run holds the lock, or where something is there without
    `overwrite`; PlanError where there is something to resume that another run did; StorageError where the
    store refuses, or obeys no conditions.
    """
    store, prefix = store_of(url)
    lock: ObjectLock | None = None
    staging: ObjectStaging | None = None
    try:
        with deferred():
            lock, taken = acquire(store, lock_name(prefix), this_process(secrets.token_hex(8)))
        with giving_signs(lock.renew):
            check()
            staging = _begun(url, store, prefix, lock, identity, resume, overwrite, adopted, within)
            staging.notices = taken.notices + staging.notices
            store.put(f"{prefix}/{journal_name(staging.run)}", to_bytes(staging.journal))
            with (
                giving_signs(partial(_give_sign, staging)),
                registered(scheme_of_draft(staging.run), lambda _: staging.draft),
            ):
                yield staging
        with unhindered():
            _end(staging)
    except BaseException as failure:
        if lock is not None:
            with unhindered():
                _clean_up(staging, lock, failure)
        raise


def roll_forward(url: str) -> tuple[str, ...]:
    """Complete a publication at a destination that a run had begun when it ended; returns what was done.

    Does nothing where there is none. Raises DestinationError where a living run holds the lock, StorageError.
    """
    store, prefix = store_of(url)
    if not any(attempt.switching for attempt in leftovers.examine(store, prefix).attempts):
        return ()
    lock: ObjectLock | None = None
    try:
        with deferred():
            lock, taken = acquire(store, lock_name(prefix), this_process(secrets.token_hex(8)))
        with giving_signs(lock.renew):
            found = leftovers.examine(store, prefix)
            return taken.notices + tuple(_rolled_forward(url, store, prefix, lock, found))
    finally:
        forget()
        if lock is not None:
            lock.release()


# --- the beginning --------------------------------------------------------------------------------


def _begun(
    url: str,
    store: Store,
    prefix: str,
    lock: ObjectLock,
    identity: Mapping[str, str],
    resume: bool,
    overwrite: bool,
    adopted: Collection[str],
    within: str | None,
) -> ObjectStaging:
    """Put in order what ended runs left; the run that can begin then."""
    found = leftovers.examine(store, prefix)
    notices = _rolled_forward(url, store, prefix, lock, found)
    if notices:
        found = leftovers.examine(store, prefix)
    present = {name: stat for name, stat in found.others.items() if name not in adopted}
    prefix_of_item = "" if within is None else f"{within}/"
    others = {name: stat for name, stat in present.items() if name.startswith(prefix_of_item)}
    around = {name: stat.version for name, stat in present.items() if name not in others}
    if others and not overwrite:
        raise _exists(url if within is None else f"{url}/{within}", notices)
    taken_up = _to_resume(found, url, identity) if resume else None
    if resume and taken_up is None:
        notices.append(f"nothing can be resumed for {shown(url)}: this run starts from the beginning")
    notices += leftovers.clear(store, prefix, [one for one in found.attempts if one is not taken_up])
    run = lock.owner.run if taken_up is None else taken_up.run
    before = {name: stat.version for name, stat in others.items()}
    journal = Journal(run, identity, before, frozenset(adopted), around=around)
    written = {name: stat for name, stat in found.others.items() if name in adopted}
    if taken_up is not None:
        written |= taken_up.data
    draft = Draft(store, prefix, run, frozenset(before), written, lock.check)
    return ObjectStaging(url, store, prefix, run, lock, draft, journal, taken_up is not None, tuple(notices))


def _rolled_forward(
    url: str, store: Store, prefix: str, lock: ObjectLock, found: leftovers.Found
) -> list[str]:
    notices = []
    for attempt in found.attempts:
        if attempt.switching is not None:
            switch = Switch(store, prefix, attempt.switching, lock.confirm)
            switch.carry_out()
            switch.clear()
            leftovers.forget_run(store, prefix, attempt.run, attempt.objects)
            notices.append(f"completed {shown(url)}, which a run had begun to publish before it ended")
            forget()
    return notices


def _exists(url: str, notices: list[str]) -> DestinationError:
    if notices:
        return DestinationError(
            f"{shown(url)}: exists already: a run had begun to publish it before it ended, and it was "
            "completed just now",
            hint="Look at it: there may be nothing left to do. To replace it: `overwrite=True`.",
        )
    return DestinationError(
        f"{shown(url)}: exists already",
        hint="Choose another destination, or replace it: `overwrite=True`.",
    )


def _to_resume(found: leftovers.Found, url: str, identity: Mapping[str, str]) -> leftovers.Attempt | None:
    for attempt in found.attempts:
        if attempt.resumable and attempt.journal is not None:
            check_identity(f"what lies below {shown(url)}", attempt.journal.identity, identity)
            return attempt
    return None


def _give_sign(staging: ObjectStaging) -> None:
    """Say that the objects of this run are still its own, see `object_journal`."""
    staging.lock.check()
    if not staging.switching:
        staging.store.put(f"{staging.prefix}/{alive_name(staging.run)}", secrets.token_hex(8).encode())


# --- publication ----------------------------------------------------------------------------------


def publish(staging: ObjectStaging) -> None:
    """Make what was written the destination: its documents are put, and the marker last.

    An older checkpoint stays whole and committed until this begins, and is replaced only in the versions
    that were there when this run began.

    Raises DestinationError if something else was written there meanwhile, or another run has taken the
    destination over; StorageError if the store refuses; VerificationError if nothing was written that makes a
    checkpoint.
    """
    draft, lock = staging.draft, staging.lock
    amended = {name: data for name, data in draft.documents.items() if name in staging.journal.around}
    documents = {name: data for name, data in draft.documents.items() if name not in amended}
    waiting = {name: place for name, place in draft.places.items() if name != place}
    if not documents and not waiting:
        raise VerificationError(f"{shown(staging.url)}: nothing was written that makes it a checkpoint")
    with deferred():
        lock.confirm()
        _check_unchanged(staging)
        journal = replace(
            staging.journal,
            state=SWITCHING,
            documents=in_order(documents, lock.owner.run),
            waiting=waiting,
            data=frozenset(draft.data),
            amended=amended,
        )
        staging.switching = True
        staging.store.put(f"{staging.prefix}/{journal_name(staging.run)}", to_bytes(journal))
        switch = Switch(staging.store, staging.prefix, journal, lock.confirm)
        switch.carry_out()
        staging.published = True
        forget()
        try:
            switch.clear()
        except (StorageError, SourceError) as error:
            staging.notices += (f"{_complete(staging)}; what it replaced could not be removed ({error})",)


def publish_last(staging: ObjectStaging, upload: Callable[[], object]) -> None:
    """Make what was written a new destination by the upload of one more file, without which it is none.

    Raises as `publish` does.
    """
    staging.lock.confirm()
    _check_unchanged(staging)
    carried_out([upload])
    staging.published = True
    forget()


def _check_unchanged(staging: ObjectStaging) -> None:
    """Refuse to publish where objects have come, have changed or are gone. Raises DestinationError."""
    there = leftovers.listed(staging.store, staging.prefix)
    own = own_prefix(staging.run)
    written = set(staging.draft.places.values())
    mine = {name for name in there if name.startswith(own)} | written | {journal_name(staging.run)}
    others = {name: stat.version for name, stat in there.items() if name not in mine}
    before = {**staging.journal.before, **staging.journal.around}
    changed = [name for name in {**others, **before} if others.get(name) != before.get(name)]
    lost = sorted(written - set(there))
    if changed or lost:
        name = min(changed) if changed else lost[0]
        what = "was written or deleted" if changed else "of this run was deleted"
        raise DestinationError(
            f"{shown(f'{staging.url}/{name}')}: {what} during this run, so nothing was published",
            hint="Look at what is there now; then run again.",
        )


# --- the end --------------------------------------------------------------------------------------


def _end(staging: ObjectStaging) -> None:
    """Remove what is left of this run. After publication what cannot be removed is a notice."""
    left = _removed(staging)
    left += _released(staging.lock)
    if left and not staging.published:
        raise StorageError("; ".join(left))
    staging.notices += tuple(f"{_complete(staging)}; {reason}" for reason in left)


def _removed(staging: ObjectStaging) -> list[str]:
    """Remove this run's objects, or after publication what is not of the checkpoint. Says what is left."""
    store, prefix, run = staging.store, staging.prefix, staging.run
    own = {journal_name(run): Stat(0, ""), alive_name(run): Stat(0, "")}
    try:
        listed = store.walk(f"{prefix}/{own_prefix(run)}")
        objects = own | {name[len(prefix) + 1 :]: stat for name, stat in listed.items()}
        if staging.published:
            leftovers.forget_run(store, prefix, run, objects)
        else:
            places = staging.draft.places.values()
            data = [place for place in places if place not in staging.journal.adopted]
            leftovers.remove(store, prefix, run, sorted({*objects, *data}))
    except SurgeryError as error:
        where = shown(f"{staging.url}/{own_prefix(run)}")
        return [f"objects are left at {where} ({told(error)}); the next run removes them"]
    return []


def _released(lock: ObjectLock) -> list[str]:
    try:
        lock.release()
    except SurgeryError as error:
        return [f"{shown(lock.url)} is left ({told(error)}); the next run removes it"]
    return []


def _clean_up(staging: ObjectStaging | None, lock: ObjectLock, failure: BaseException) -> None:
    """After a failure, remove or keep what was written, release the lock, and say how things are."""
    left: list[str] = []
    if staging is None or lock.lost:
        pass  # nothing was written, or what was written is in the hands of the run that has the lock
    elif staging.published:
        add(failure, f"{_complete(staging)}")
        left = _removed(staging)
    elif staging.switching:
        add(
            failure,
            f"publishing {shown(staging.url)} was begun, and did not come to its end",
            hint="The next run to it, or `commit`, completes what was begun.",
        )
    else:
        if isinstance(failure, Interrupted):
            state = "is as it was before" if staging.journal.before else "does not exist"
            add(failure, f"nothing was published: {shown(staging.url)} {state}")
        if _is_kept(staging, failure):
            add(failure, f"what was written is kept below {shown(staging.url)}", hint=GO_ON)
        else:
            left = _removed(staging)
    for sentence in left + _released(lock):
        add(failure, sentence)


def _is_kept(staging: ObjectStaging, failure: BaseException) -> bool:
    """Whether what was written is worth keeping for `resume=True`."""
    if not isinstance(failure, Interrupted | StorageError | KeyboardInterrupt):
        return False
    try:
        found = staging.store.walk(f"{staging.prefix}/{own_prefix(staging.run)}")
    except SurgeryError:
        return True
    return any(name.startswith(staging.tasks) for name in found)


def _complete(staging: ObjectStaging) -> str:
    return f"{shown(staging.url)} is new and complete"
