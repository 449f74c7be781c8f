"""Where a checkpoint is written until it is published: beside its destination, or in its object store."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ckpt_surgery.destinations import Publication, is_file
from ckpt_surgery.engine.journal import FileLines, Lines, ObjectLines, journal_of
from ckpt_surgery.engine.staging import local, objects
from ckpt_surgery.engine.staging.checks import check_directory, check_same
from ckpt_surgery.engine.staging.local import Staging
from ckpt_surgery.engine.staging.object_directory import publish_directory
from ckpt_surgery.engine.staging.object_file import FileStaging, file_staged, publish_file
from ckpt_surgery.engine.staging.objects import ObjectStaging
from ckpt_surgery.engine.staging.spooled import spooled
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.resuming import identity_of
from ckpt_surgery.storage.record_files import beside, put_record


class Stage(Protocol):
    """A checkpoint that is being written, as the engine sees it."""

    @property
    def work(self) -> str:
        """Path or URL of the directory that the sink writes into."""
        ...

    @property
    def product(self) -> str:
        """Path or URL at which what was written is opened again: `work`, or the one file in it."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences about what earlier runs left, and about what could not be removed."""
        ...

    def journal(self, worker: str) -> Lines:
        """Where a worker notes what it has done."""
        ...

    def put_beside(self, record: str) -> None:
        """Keep the record of a format without a place for it, to be published with the checkpoint."""
        ...

    def publish(self) -> None:
        """Make what was written the destination, in one step. Raises SurgeryError."""
        ...


@dataclass(frozen=True)
class LocalStage:
    """A temporary directory beside the destination."""

    staging: local.Staging
    replaces: Replacement | None
    """What is replaced, as it was looked at; None: nothing may be there."""

    @property
    def work(self) -> str:
        """The directory's path."""
        return str(self.staging.work)

    @property
    def product(self) -> str:
        """The path of the directory, or of the one file in it."""
        return str(self.staging.product)

    @property
    def notices(self) -> tuple[str, ...]:
        """What staging has told so far."""
        return self.staging.notices

    def journal(self, worker: str) -> Lines:
        """A file in the temporary directory."""
        return FileLines(journal_of(self.staging.directory, worker))

    def put_beside(self, record: str) -> None:
        """Put the record into the temporary directory. Raises StorageError."""
        put_record(self.staging.directory / beside(self.staging.destination).name, record)

    def publish(self) -> None:
        """Rename it to the destination. Raises DestinationError, StorageError, VerificationError."""
        if self.replaces is not None:
            check_same(self.staging.destination, self.replaces.state, not self.replaces.one_item)
        local.publish(self.staging, overwrite=self.replaces is not None)


@dataclass(frozen=True)
class ObjectStage:
    """A draft in the destination's store."""

    staging: objects.ObjectStaging

    @property
    def work(self) -> str:
        """The draft's URL."""
        return self.staging.draft_url

    @property
    def product(self) -> str:
        """The draft's URL: what it shows is the checkpoint, before anybody else sees it."""
        return self.staging.draft_url

    @property
    def notices(self) -> tuple[str, ...]:
        """What staging has told so far."""
        return self.staging.notices

    def journal(self, worker: str) -> Lines:
        """Objects below the destination."""
        return ObjectLines(self.staging.store, f"{self.staging.tasks}{worker}-")

    def put_beside(self, record: str) -> None:
        """Never called: formats that write to stores themselves have a place for the record."""
        raise AssertionError(record)

    def publish(self) -> None:
        """Put the documents, the marker last. Raises DestinationError, StorageError."""
        objects.publish(self.staging)


@dataclass(frozen=True)
class SpooledStage:
    """A local directory from which everything is uploaded at the end."""

    spool: Staging
    target: FileStaging | ObjectStaging

    @property
    def work(self) -> str:
        """The directory's path."""
        return str(self.spool.work)

    @property
    def product(self) -> str:
        """The path of the directory, or of the one file in it."""
        return str(self.spool.product)

    @property
    def notices(self) -> tuple[str, ...]:
        """What both have told so far."""
        return self.target.notices + self.spool.notices

    @property
    def _record(self) -> Path:
        return self.spool.directory / beside(self.spool.destination).name

    def journal(self, worker: str) -> Lines:
        """A file beside the directory."""
        return FileLines(journal_of(self.spool.directory, worker))

    def put_beside(self, record: str) -> None:
        """Keep the record beside the directory. Raises StorageError."""
        put_record(self._record, record)

    def publish(self) -> None:
        """Upload it. Raises DestinationError, StorageError, VerificationError."""
        try:
            if isinstance(self.target, FileStaging):
                publish_file(self.target, self.spool.product, self._record)
            else:
                publish_directory(self.target, self.spool.work, self._record)
        finally:
            self.spool.published = self.target.published


@contextlib.contextmanager
def _spooled(prepared: Prepared, url: str, resume: bool, check: Callable[[], None]) -> Iterator[Stage]:
    """The place for a result in a store whose format writes to local directories."""
    one_file, identity = is_file(prepared.destination), identity_of(prepared)
    replaces, costs = prepared.replaces is not None, prepared.plan.costs
    sparse = formats.named(prepared.destination.format).sparse
    target: contextlib.AbstractContextManager[FileStaging | ObjectStaging] = (
        file_staged(url, replaces, check)
        if one_file
        else objects.object_staged(url, identity, overwrite=replaces, check=check)
    )
    nbytes = costs.bytes_copied + costs.bytes_computed
    with target as uploaded, spooled(url, one_file, identity, resume, nbytes) as spool:
        if isinstance(uploaded, ObjectStaging):
            _protect(uploaded, sparse)
        yield SpooledStage(spool, uploaded)


def _protect(staging: ObjectStaging, sparse: bool) -> None:
    """Let no data lie where the checkpoint that is replaced may lack a chunk: its reader would take it."""
    if staging.journal.before and sparse:
        staging.draft.hold_all()


@contextlib.contextmanager
def _in_store(prepared: Prepared, url: str, resume: bool) -> Iterator[Stage]:
    """The place for a result in a store."""
    found = prepared.replaces
    replaces = found is not None and found.overwrites

    def check() -> None:
        if not is_file(prepared.destination):
            check_directory(url)
        check_same(url, None if found is None else found.state)

    chosen = formats.named(prepared.destination.format)
    if not chosen.stores:
        with _spooled(prepared, url, resume, check) as stage:
            yield stage
        return
    within = prepared.destination.item if prepared.writes_one_item else None
    with objects.object_staged(url, identity_of(prepared), resume, replaces, check, within=within) as staging:
        _protect(staging, chosen.sparse)
        yield ObjectStage(staging)


@contextlib.contextmanager
def staged(prepared: Prepared, where: Publication, resume: bool) -> Iterator[Stage]:
    """The place for a result; it is left, or removed, as its staging says. Raises SurgeryError."""
    if where.is_url:
        with _in_store(prepared, where.place, resume) as stage:
            yield stage
        return
    one_file, identity = is_file(prepared.destination), identity_of(prepared)
    with local.staged(where.path, one_file, identity, resume) as staging:
        yield LocalStage(staging, prepared.replaces)
