"""Publishing a checkpoint of one file in a store: one object, written on a condition.

The object appears when all of it is there, so that it needs no marker and no journal: at every moment there
is the older file, or the new one, or none. The record beside it is removed before the file is replaced, and
is put after it.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, Interrupted, SourceError, StorageError, SurgeryError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.signals import deferred, unhindered
from ckpt_surgery.engine.staging.object_lock import ObjectLock, acquire, giving_signs, lock_name
from ckpt_surgery.engine.staging.outcomes import add, told
from ckpt_surgery.engine.staging.owners import this_process
from ckpt_surgery.engine.staging.uploading import carried_out
from ckpt_surgery.storage.record_files import beside_text
from ckpt_surgery.storage.store import ConditionFailed, Only, Stat, Store, Version
from ckpt_surgery.storage.stores import store_of
from ckpt_surgery.storage.views import forget

_PIECE = 16 << 20
"""Bytes that are compared in one go."""


@dataclass
class FileStaging:
    """A file that is to be put into a store."""

    url: str
    """The destination."""
    store: Store
    name: str
    """The destination's name in the store."""
    lock: ObjectLock
    before: Stat | None
    """The file that is replaced."""
    notices: tuple[str, ...] = ()
    """Sentences about what earlier runs left, and about what could not be done after publication."""
    published: bool = False
    """Whether the destination is new and complete."""


@contextlib.contextmanager
def file_staged(url: str, overwrite: bool, check: Callable[[], None]) -> Iterator[FileStaging]:
    """Lock a destination in a store that is to be one object.

    With `overwrite` the object is replaced that is there; `check` is called once the lock is held, and raises
    where that is not what was looked at.

    Raises DestinationError where a living run holds the lock, where something is there without `overwrite`,
    and where objects lie below the destination; StorageError where the store refuses, or obeys no conditions.
    """
    store, name = store_of(url)
    with deferred():
        lock, taken = acquire(store, lock_name(name), this_process(secrets.token_hex(8)))
    staging = FileStaging(url, store, name, lock, None, taken.notices)
    try:
        with giving_signs(lock.renew):
            staging.before = store.stat(name)
            check()
            _check_place(staging, overwrite)
            yield staging
        _end(staging)
    except BaseException as failure:
        with unhindered():
            _clean_up(staging, failure)
        raise


def _check_place(staging: FileStaging, overwrite: bool) -> None:
    if staging.before is not None and not overwrite:
        raise DestinationError(
            f"{shown(staging.url)}: exists already",
            hint="Choose another destination, or replace it: `overwrite=True`.",
        )
    objects, prefixes = staging.store.names_in(f"{staging.name}/")
    if objects or prefixes:
        raise DestinationError(
            f"{shown(staging.url)}: objects lie below it, and a file does not replace them",
            hint="Choose another destination, or delete them.",
        )


def publish_file(staging: FileStaging, file: Path, record: Path) -> None:
    """Upload a file to the destination, where there is still what was there when the run began.

    `record`: the record to put beside it, if there is such a file. Raises DestinationError where another
    process has written there, or has taken the destination over; StorageError where the store refuses.
    """
    staging.lock.confirm()
    found = staging.store.stat(staging.name)
    if (found and found.version) != (staging.before and staging.before.version):
        raise _changed(staging)
    with beside_published(staging.store, beside_text(staging.name), record) as notices:
        only = Only.ABSENT if staging.before is None else Version(staging.before.version)
        try:
            carried_out([partial(staging.store.upload, staging.name, file, only)])
            staging.published = True
        except BaseException as error:
            with unhindered():
                staging.published = _is_there(staging, file)
            if not staging.published and isinstance(error, ConditionFailed):
                raise _changed(staging) from error
            if not staging.published or not isinstance(error, ConditionFailed | StorageError):
                raise
        forget()
    staging.notices += tuple(f"{_complete(staging)}; {reason}" for reason in notices)


@contextlib.contextmanager
def beside_published(store: Store, name: str, record: Path) -> Iterator[list[str]]:
    """Within this context, in which a checkpoint is published, there is no record beside it.

    The older one is removed before, the new one is put after it: never is there a record of something else.
    What fails after publication is told in the list that is given. Raises StorageError.
    """
    store.delete([name])
    left: list[str] = []
    yield left
    if record.exists():
        try:
            store.put(name, record.read_bytes())
        except SurgeryError as error:
            left.append(f"its record {shown(f'{store.url}/{name}')} could not be written ({told(error)})")


def _is_there(staging: FileStaging, file: Path) -> bool:
    """Whether the destination is this very file: the answer to a request may have been lost."""
    with contextlib.suppress(StorageError, SourceError):
        found, size = staging.store.stat(staging.name), file.stat().st_size
        same = staging.before is not None and found is not None and found.version == staging.before.version
        if found is None or found.size != size or same:
            return False
        with file.open("rb") as reader:
            return all(
                staging.store.read(staging.name, start, min(start + _PIECE, size), found.version)
                == reader.read(_PIECE)
                for start in range(0, size, _PIECE)
            )
    return False


def _changed(staging: FileStaging) -> DestinationError:
    return DestinationError(
        f"{shown(staging.url)}: another process has written it during this run, so nothing was published",
        hint="Look at what is there now; then run again.",
    )


def _complete(staging: FileStaging) -> str:
    return f"{shown(staging.url)} is new and complete"


def _end(staging: FileStaging) -> None:
    left = _released(staging.lock)
    if left and not staging.published:
        raise StorageError("; ".join(left))
    staging.notices += tuple(f"{_complete(staging)}; {reason}" for reason in left)


def _released(lock: ObjectLock) -> list[str]:
    try:
        lock.release()
    except SurgeryError as error:
        return [f"{shown(lock.url)} is left ({told(error)}); the next run removes it"]
    return []


def _clean_up(staging: FileStaging, failure: BaseException) -> None:
    """After a failure, release the lock, and say how things are."""
    if staging.published:
        add(failure, _complete(staging))
    elif isinstance(failure, Interrupted) and not staging.lock.lost:
        state = "does not exist" if staging.before is None else "is as it was before"
        add(failure, f"nothing was published: {shown(staging.url)} {state}")
    for sentence in _released(staging.lock):
        add(failure, sentence)
