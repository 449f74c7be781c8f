"""Where a checkpoint is written until it is published: beside its destination, or in its object store."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ckpt_surgery.destinations import Publication, is_file
from ckpt_surgery.engine.journal import journal_of
from ckpt_surgery.engine.staging import local
from ckpt_surgery.engine.staging.checks import check_same
from ckpt_surgery.planner.options import Prepared
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

    def journal(self, worker: int) -> Path:
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
    replaces: str | None
    """State of what is replaced, when it was looked at; None: nothing may be there."""

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

    def journal(self, worker: int) -> Path:
        """A file in the temporary directory."""
        return journal_of(self.staging.directory, worker)

    def put_beside(self, record: str) -> None:
        """Put the record into the temporary directory. Raises StorageError."""
        put_record(self.staging.directory / beside(self.staging.destination).name, record)

    def publish(self) -> None:
        """Rename it to the destination. Raises DestinationError, StorageError, VerificationError."""
        check_same(self.staging.destination, self.replaces)
        local.publish(self.staging, overwrite=self.replaces is not None)


@contextlib.contextmanager
def staged(prepared: Prepared, where: Publication, resume: bool) -> Iterator[Stage]:
    """The place for a result; it is left, or removed, as its staging says. Raises SurgeryError."""
    one_file, identity = is_file(prepared.destination), identity_of(prepared)
    with local.staged(where.path, one_file, identity, resume) as staging:
        yield LocalStage(staging, prepared.replaces)
