"""Publish a checkpoint of one file in a store: one object, written conditionally.

The object appears when all of it is there, so that it needs no marker and no journal: at every moment there
is the older file, or the new one, or none. The record beside it is removed before the file is replaced, and
is put after it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, SurgeryError, in_one_line
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.checks import already_there, check_same
from ckpt_surgery.engine.staging.life import ANY
from ckpt_surgery.engine.staging.object_lock import ObjectLock, lock_name
from ckpt_surgery.engine.staging.spooled import Upload
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.record_files import beside_text
from ckpt_surgery.storage.store import ConditionFailed, Only, Stat, Store, Version, store_of
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.signals import unhindered
from ckpt_surgery.system.threads import run_requests

_PIECE = 16 << 20
"""Bytes compared at once."""


class FileUpload(Upload):
    """A file that is uploaded to a store when it is complete."""

    def __init__(
        self,
        url: str,
        identity: Mapping[str, str] = ANY,
        replaces: Replacement | None = None,
        nbytes: int = 0,
    ):
        """`replaces`: what is replaced, as it was checked; None: nothing. `nbytes`: size of the file."""
        self._url = url
        self._store, self._name = store_of(url)
        super().__init__(url, ObjectLock(self._store, lock_name(self._name)), True, identity, nbytes)
        self._replaces = replaces
        self._before: Stat | None = None
        """Size and version of the file that is replaced."""

    def begin(self, resume: bool) -> None:
        """Note the version of the existing file, and create the local directory.

        Raises DestinationError if something is there that is not to be replaced, and if objects lie
        below the destination; PlanError, StorageError.
        """
        self._before = self._store.stat(self._name)
        check_same(self._url, self._replaces)
        if self._before is not None and self._replaces is None:
            raise already_there(self.called)
        objects, prefixes = self._store.names_in(f"{self._name}/")
        if objects or prefixes:
            raise DestinationError(
                f"{self.called}: objects lie below it, and a file does not replace them",
                hint="Choose another destination, or delete them.",
            )
        super().begin(resume)

    def publish(self) -> None:
        """Upload the file, if the destination has not changed since the run began."""
        self.lock.confirm()
        before, now = self._before, self._store.stat(self._name)
        if (now and now.version) != (before and before.version):
            raise self._changed()
        with beside_published(self._store, beside_text(self._name), self.record) as notices:
            only = Only.ABSENT if before is None else Version(before.version)
            try:
                run_requests([partial(self._store.upload, self._name, self.output, only)])
                self.published = True
            except BaseException as error:
                with unhindered():
                    self.published = self._is_there()
                if not self.published and isinstance(error, ConditionFailed):
                    raise self._changed() from error
                if not self.published or not isinstance(error, ConditionFailed | StorageError):
                    raise
            forget()
        self.notices += tuple(f"{self.called} is new and complete; {reason}" for reason in notices)

    def _is_there(self) -> bool:
        """True if the destination is this file: the response to the upload may have been lost."""
        with contextlib.suppress(StorageError, SourceError):
            before, now, size = self._before, self._store.stat(self._name), self.output.stat().st_size
            same = before is not None and now is not None and now.version == before.version
            if now is None or now.size != size or same:
                return False
            with self.output.open("rb") as reader:
                return all(
                    self._store.read(self._name, start, min(start + _PIECE, size), now.version)
                    == reader.read(_PIECE)
                    for start in range(0, size, _PIECE)
                )
        return False

    def _changed(self) -> DestinationError:
        return DestinationError(
            f"{self.called}: another process has written it during this run, so nothing was published",
            hint="Look at what is there now; then run again.",
        )

    def report(self, failure: BaseException) -> None:
        """Add the state of the destination."""
        super().report(failure)
        if self.published or not self.lock.lost:
            self.report_state(failure, self._before is not None)


@contextlib.contextmanager
def beside_published(store: Store, name: str, record: Path) -> Iterator[list[str]]:
    """Context in which a checkpoint is published: swaps the record beside it.

    Removes the older one before and writes the new one after it, so that no record describes something else.
    Yields a list, to which failures after publication are added. Raises StorageError.
    """
    store.delete([name])
    left: list[str] = []
    yield left
    if record.exists():
        try:
            store.put(name, record.read_bytes())
        except SurgeryError as error:
            url = shown(f"{store.url}/{name}")
            left.append(f"its record {url} could not be written ({in_one_line(error)})")
