"""Publish a checkpoint in an object store: a lock, data in its place, documents, and the marker last.

Nothing refers to data before the documents are there, and the last of them, the marker, makes the checkpoint
complete. At every moment the destination is not committed, or is one whole checkpoint.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging import object_leftovers as leftovers
from ckpt_surgery.engine.staging.checks import already_there, check_directory, check_same, is_of_shards
from ckpt_surgery.engine.staging.heartbeat import locked
from ckpt_surgery.engine.staging.life import Lines, ObjectLines, Staging, still_there
from ckpt_surgery.engine.staging.locks import ObjectLock, lock_name
from ckpt_surgery.engine.staging.object_leftovers import ObjectJournal, alive_name, journal_name, own_prefix
from ckpt_surgery.engine.staging.object_switch import Switch, in_order
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.draft import OWN, UnpublishedStore, scheme_of_draft
from ckpt_surgery.storage.publications import SWITCHING
from ckpt_surgery.storage.store import registered, store_of
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.signals import deferred
from ckpt_surgery.system.threads import run_requests


class StoreStage(Staging):
    """Stage of objects in a store, as a draft that readers do not see."""

    lock: ObjectLock
    run: str
    """Token of the run; a run that resumes it keeps the token."""
    draft: UnpublishedStore
    """Objects written so far, by name below the destination."""

    def __init__(
        self,
        url: str,
        identity: Mapping[str, str],
        replaces: Replacement | None,
        item: str | None = None,
        sparse: bool = False,
        shards: str = "",
    ):
        """`identity`: what the run does. `replaces`: what is replaced, as it was checked; None: nothing may
        be there. `item`: name of the item to write, if it is one of a step. `sparse`: true if
        readers of the format mistake chunks of the new checkpoint for the older one's. `shards`: token of
        shards that have put data there, which is published, or kept after a failure."""
        self.url = url
        self.called = shown(url)
        self.identity = identity
        self.store, self.prefix = store_of(url)
        self.lock = ObjectLock(self.store, lock_name(self.prefix))
        self._replaces = replaces
        self._sparse = sparse
        self._shards = shards
        self._item = item if replaces is not None and replaces.one_item else None
        self._adopted: frozenset[str] = frozenset()
        """Names of the shards' data below the destination."""
        self._journal: ObjectJournal | None = None
        self._switching = False
        """True once publication has begun: if this run dies, the next one completes it."""

    @property
    def before(self) -> Mapping[str, str]:
        """Versions of the objects that are replaced, by name below the destination."""
        return {} if self._journal is None else self._journal.before

    def opened(self) -> AbstractContextManager[object]:
        return registered(scheme_of_draft(self.run), lambda _: self.draft)

    def journal(self, worker: str) -> Lines:
        """Objects below the destination."""
        return ObjectLines(self.store, f"{self.prefix}/{leftovers.tasks_prefix(self.run)}{worker}-")

    def renew(self) -> None:
        """Renew the lock, and the object that shows that this run is alive, see `object_leftovers`."""
        self.lock.renew()
        if self._journal is not None and not self._switching:
            self.lock.check_held()
            self.store.put(f"{self.prefix}/{alive_name(self.run)}", secrets.token_hex(8).encode())

    # --- the beginning ------------------------------------------------------------------------------------

    def begin(self, resume: bool) -> None:
        """Complete an interrupted publication, remove or take over leftovers of runs, and note this run.

        Raises DestinationError if something is there without `overwrite`; PlanError, StorageError.
        """
        check_directory(self.url)
        check_same(self.url, self._replaces, self._shards)
        stored, left = leftovers.examine(self.store, self.prefix)
        notices = _roll_forward(self.url, self.lock, left)
        if notices:
            stored, left = leftovers.examine(self.store, self.prefix)
        if self._shards:
            self._adopted = frozenset(name for name in stored if is_of_shards(name, self._shards))
        present = {name: stat.version for name, stat in stored.items() if name not in self._adopted}
        inside = "" if self._item is None else f"{self._item}/"
        others = {name: version for name, version in present.items() if name.startswith(inside)}
        around = {name: version for name, version in present.items() if name not in others}
        if others and not (self._replaces is not None and self._replaces.overwrites):
            error = already_there(shown(f"{self.url}/{inside}".rstrip("/")))
            for notice in notices:
                errors.add_sentence(error, notice, hint="Look at it: there may be nothing left to do.")
            raise error
        self.notices += tuple(notices)
        to_resume = self.choose(left, resume)
        rest = [leftover for leftover in left if leftover is not to_resume]
        self.notices += tuple(leftovers.clear(self.store, self.prefix, rest))
        written = {name: stored[name] for name in self._adopted}
        self.run = self.lock.owner.run if to_resume is None else to_resume.run
        if to_resume is not None:
            written |= to_resume.data
        self.draft = UnpublishedStore(
            self.store, self.prefix, self.run, frozenset(others), written, self.lock.check_held
        )
        self.work = self.product = self.draft.url  # only this process sees the checkpoint there
        if others and self._sparse:
            self.draft.holds_all = True
        self._journal = ObjectJournal(self.run, dict(self.identity), others, self._adopted, around=around)
        self._note(self._journal)

    def _note(self, journal: ObjectJournal) -> None:
        self.store.put(f"{self.prefix}/{journal_name(self.run)}", leftovers.to_bytes(journal))

    # --- publication --------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Put the documents of the checkpoint, and the marker last.

        An older checkpoint stays whole and committed until this begins, and is replaced only in the versions
        that were there when this run began.
        """
        journal, draft = self._begun(), self.draft
        amended = {name: data for name, data in draft.documents.items() if name in journal.around}
        documents = {name: data for name, data in draft.documents.items() if name not in amended}
        waiting = {name: place for name, place in draft.places.items() if name != place}
        if not documents and not waiting:
            raise VerificationError(f"{self.called}: nothing was written that makes it a checkpoint")
        with deferred():
            self.lock.confirm()
            self._check_unchanged(journal)
            journal = replace(
                journal,
                state=SWITCHING,
                documents=in_order(documents, self.lock.owner.run),
                waiting=waiting,
                data=frozenset(draft.data),
                amended=amended,
            )
            self._switching = True
            self._note(journal)
            switch = Switch(self.store, self.prefix, journal, self.lock.confirm)
            switch.complete()
            self.published = True
            forget()
            try:
                switch.clear()
            except (StorageError, SourceError) as error:
                self.note_left(f"what it replaced could not be removed ({error})")

    def publish_last(self, upload: Callable[[], object]) -> None:
        """Publish by uploading the file without which there is no checkpoint. Raises as `publish` does."""
        self.lock.confirm()
        self._check_unchanged(self._begun())
        run_requests([upload])
        self.published = True
        forget()

    def _begun(self) -> ObjectJournal:
        assert self._journal is not None, "the stage has not begun"
        return self._journal

    def _check_unchanged(self, journal: ObjectJournal) -> None:
        """Refuse to publish if objects were added, changed or removed. Raises DestinationError."""
        there = leftovers.listed(self.store, self.prefix)
        own, written = own_prefix(self.run), {*self.draft.places.values()}
        mine = {name for name in there if name.startswith(own)} | written | {journal_name(self.run)}
        now = {(name, stat.version) for name, stat in there.items() if name not in mine}
        changed = {name for name, _ in now ^ {*journal.before.items(), *journal.around.items()}}
        lost = written - there.keys()
        if changed or lost:
            what = "was written or deleted" if changed else "of this run was deleted"
            place = shown(f"{self.url}/{min(changed or lost)}")
            problem = f"{place}: {what} during this run, so nothing was published"
            raise DestinationError(problem, hint="Look at what is there now; then run again.")

    # --- the end ------------------------------------------------------------------------------------------

    def kept_in(self) -> str | None:
        """Place below the destination, if tasks were finished or the store does not answer."""
        if self._journal is None or self._switching or self.lock.lost:
            return None
        try:
            own = self.store.walk(f"{self.prefix}/{own_prefix(self.run)}")
        except (StorageError, SourceError):
            return f"below {self.called}"
        tasks = f"{self.prefix}/{leftovers.tasks_prefix(self.run)}"
        return f"below {self.called}" if any(name.startswith(tasks) for name in own) else None

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """Remove this run's objects; after publication, only those that are not part of the checkpoint.

        What another run has in its hands stays, and so does a publication that has begun.
        """
        begun = self._switching and not self.published
        if keep or self._journal is None or (not self.published and self.lock.lost) or begun:
            return []
        store, prefix, run = self.store, self.prefix, self.run
        data = set() if self.published else {*self.draft.places.values()} - self._adopted
        try:
            own = (name[len(prefix) + 1 :] for name in store.walk(f"{prefix}/{own_prefix(run)}"))
            leftovers.remove(store, prefix, run, {journal_name(run), alive_name(run), *own, *data})
        except (StorageError, SourceError) as error:
            return [still_there(f"what lies at {shown(f'{self.url}/{own_prefix(run)}')}", error)]
        return []

    def report(self, failure: BaseException) -> None:
        """Add the state of the destination, or that its publication has begun."""
        if self._switching and not self.published and not self.lock.lost:
            errors.add_sentence(
                failure,
                f"publishing {self.called} was begun, and did not come to its end",
                hint="The next run to it, or `commit`, completes what was begun.",
            )
        elif self._journal is not None and (self.published or not self.lock.lost):
            self.report_state(failure, bool(self._journal.before))


def roll_forward(url: str) -> tuple[str, ...]:
    """Complete the publication that a dead run began at a destination; returns what was done.

    Does nothing if there is none. Raises DestinationError if a living run holds the lock, StorageError.
    """
    store, prefix = store_of(url)
    _, left = leftovers.examine(store, prefix)
    if not any(leftover.switching for leftover in left):
        return ()
    lock = ObjectLock(store, lock_name(prefix))
    try:
        with locked(lock) as notices:
            return (*notices, *_roll_forward(url, lock, leftovers.examine(store, prefix)[1]))
    finally:
        forget()


def _roll_forward(url: str, lock: ObjectLock, left: Sequence[leftovers.LeftObjects]) -> list[str]:
    store, prefix = store_of(url)
    notices = []
    for leftover in left:
        if leftover.switching is not None:
            switch = Switch(store, prefix, leftover.switching, lock.confirm)
            switch.complete()
            switch.clear()
            own = [name for name in leftover.objects if name.startswith(OWN)]
            leftovers.remove(store, prefix, leftover.run, own)
            notices.append(f"completed {shown(url)}, which a run had begun to publish before it ended")
            forget()
    return notices
