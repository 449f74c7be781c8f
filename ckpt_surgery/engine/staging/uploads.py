"""Checkpoints for an object store that are built in a local directory, and uploaded when they are complete.

Formats whose writers write in place (a file that is made in its full size and filled by several threads) need
a file system. Their files are written to a directory of this user below the system's directory for temporary
files, are read back there, and are uploaded when they are complete. A run that is resumed on the same machine
finds what it has written.

One file becomes one object, written conditionally. It appears when all of it is there, so that it needs no
marker and no journal: at every moment there is the older file, or the new one, or none. The record beside it
is removed before the file is replaced, and is put after it.

Of several files, data is uploaded first; then the documents that make it readable are put, with the protocol
of `objects`. Where there are no documents, one file of data makes the checkpoint complete, and comes last.
"""

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ckpt_surgery.core import errors
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.checks import already_there, check_same, check_space
from ckpt_surgery.engine.staging.local import DirectoryStage
from ckpt_surgery.engine.staging.locks import ObjectLock, lock_name
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import walk
from ckpt_surgery.storage.paths import path_text
from ckpt_surgery.storage.reading import OBJECT_PIECE
from ckpt_surgery.storage.record_files import beside_text, is_companion
from ckpt_surgery.storage.store import ConditionFailed, Only, Stat, Store, store_of
from ckpt_surgery.storage.views import forget
from ckpt_surgery.system.signals import unhindered
from ckpt_surgery.system.threads import run_requests


def spool_of(url: str) -> Path:
    """Local directory for checkpoints to upload to a URL: one for each user, machine, and URL."""
    digest = hashlib.sha256(os.fsencode(url)).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"ckpt-surgery-{os.getuid()}-{digest}")


class Upload(DirectoryStage):
    """A local directory, uploaded to a URL when it is complete; the URL's lock keeps others from it."""

    lock: ObjectLock

    def __init__(self, url: str, lock: ObjectLock, one_file: bool, identity: Mapping[str, str], nbytes: int):
        """`nbytes`: bytes that will be written."""
        self._spool = spool_of(url)
        self._nbytes = nbytes
        self._made = False
        """True once the directory is known to be this user's."""
        super().__init__(self._spool / os.path.basename(url), lock, one_file, identity)
        self.called = shown(url)

    def begin(self, resume: bool) -> None:
        """Begin as on a disk. Raises StorageError if the directory is another user's, or has no space."""
        with storage_errors(self._spool):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._spool, 0o700)
            status = os.lstat(self._spool)
        # For this user alone: its name can be guessed.
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            problem = f"{path_text(self._spool)} is not a directory that only this user may use"
            raise StorageError(problem, hint="Remove it, or set TMPDIR to a directory of yours.")
        self._made = True
        super().begin(resume)
        if not self.resumed:
            check_space(self.destination, self._nbytes)

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """As on a disk."""
        left = super().remove(keep, quickly)
        with contextlib.suppress(OSError):  # what is kept to be resumed is in it
            if self._made:
                os.rmdir(self._spool)
        return left

    @contextlib.contextmanager
    def record_replaced(self, store: Store, name: str) -> Iterator[None]:
        """Context in which a checkpoint is published: replaces the record beside it, whose name is given.

        Removes the older one before and writes the new one after it, so that no record describes something
        else. Raises StorageError.
        """
        store.delete([name])
        yield
        if self.record.exists():
            try:
                store.put(name, self.record.read_bytes())
            except errors.SurgeryError as error:
                url = shown(f"{store.url}/{name}")
                self.note_left(f"its record {url} could not be written ({errors.in_one_line(error)})")

    def report(self, failure: BaseException) -> None:
        """After a failed write, add why this directory is written to."""
        if isinstance(failure, StorageError) and path_text(self._spool) in str(failure):
            hint = "Set TMPDIR to a directory of yours with enough space."
            sentence = f"{self.called} is written to {path_text(self._spool)} first"
            errors.add_sentence(failure, sentence, hint)


# --- one file ---------------------------------------------------------------------------------------------


class FileUpload(Upload):
    """A file that is uploaded to a store when it is complete."""

    def __init__(self, url: str, identity: Mapping[str, str], replaces: Replacement | None, nbytes: int):
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
            problem = f"{self.called}: objects lie below it, and a file does not replace them"
            raise DestinationError(problem, hint="Choose another destination, or delete them.")
        super().begin(resume)

    def publish(self) -> None:
        """Upload the file, if the destination has not changed since the run began."""
        self.lock.confirm()
        before, now = self._before, self._store.stat(self._name)
        if (now and now.version) != (before and before.version):
            raise self._changed()
        with self.record_replaced(self._store, beside_text(self._name)):
            only = Only.ABSENT if before is None else before.version
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

    def _is_there(self) -> bool:
        """True if the destination is this file: the response to the upload may have been lost."""
        with contextlib.suppress(StorageError, SourceError):
            before, now, size = self._before, self._store.stat(self._name), self.output.stat().st_size
            if now is None or now.size != size or (before and before.version == now.version):
                return False
            ranges = ((start, min(start + OBJECT_PIECE, size)) for start in range(0, size, OBJECT_PIECE))
            with self.output.open("rb") as reader:
                return all(
                    self._store.read(self._name, start, end, now.version) == reader.read(OBJECT_PIECE)
                    for start, end in ranges
                )
        return False

    def _changed(self) -> DestinationError:
        problem = f"{self.called}: another process has written it during this run, so nothing was published"
        return DestinationError(problem, hint="Look at what is there now; then run again.")

    def report(self, failure: BaseException) -> None:
        super().report(failure)
        if self.published or not self.lock.lost:
            self.report_state(failure, self._before is not None)


# --- several files ----------------------------------------------------------------------------------------


class DirectoryUpload(Upload):
    """Files that are uploaded to a store when all of them are complete."""

    def __init__(self, target: StoreStage, nbytes: int):
        """`target`: stage in the store. `nbytes`: the size of all files."""
        super().__init__(target.url, target.lock, False, target.identity, nbytes)
        self._target = target

    def begin(self, resume: bool) -> None:
        """Prepare the destination, and create the local directory."""
        self._target.begin(False)
        super().begin(resume)

    def renew(self) -> None:
        self._target.renew()

    def remove(self, keep: bool = False, quickly: bool = False) -> list[str]:
        """Remove the local directory, and from the store all but the checkpoint."""
        return [*super().remove(keep, quickly), *self._target.remove()]

    def report(self, failure: BaseException) -> None:
        super().report(failure)
        self._target.report(failure)

    def publish(self) -> None:
        """Upload everything, then switch the destination; the older one stays whole until then."""
        target = self._target
        files = {name: self.tree / name for name in sorted(walk(self.work, self.work))}
        if not files:
            raise VerificationError(f"{self.called}: nothing was written that makes it a checkpoint")
        documents = [name for name in files if _is_document(name, files[name].stat().st_size)]
        # Weights come last.
        data = sorted(files.keys() - documents, key=lambda name: (not is_companion(name), name))
        draft, last = target.draft, None if documents else data.pop()
        if target.before:  # whoever reads the older one must not find the config of this one
            draft.held.update(filter(is_companion, data))
        run_requests([partial(draft.upload, name, files[name]) for name in data])
        try:
            with self.record_replaced(target.store, beside_text(target.prefix)):
                if last is None:
                    draft.finishing = True
                    for name in documents:
                        draft.put(name, files[name].read_bytes())
                    target.publish()
                elif target.before:
                    draft.held.add(last)
                    run_requests([partial(draft.upload, last, files[last])])
                    target.publish()
                else:
                    target.publish_last(partial(draft.upload, last, files[last], Only.ABSENT))
        finally:
            self.published = target.published
            self.notices += target.notices


def _is_document(name: str, size: int) -> bool:
    """True if a file describes others, judged by its name: `.zarray`, `model.safetensors.index.json`.

    Config files do not: without the weights they are no checkpoint. Files of more than 64 MiB count as data,
    because documents are held in memory.
    """
    base = name.rpartition("/")[2]
    return (base.endswith(".json") or base.startswith(".")) and size <= 64 << 20 and not is_companion(name)
