"""Publishing a checkpoint on a local file system: a lock, a temporary directory, one rename.

Everything is written into a directory with a random name beside the destination. After all of it has
reached the disk, one rename makes that directory, or the one file in it, the destination. Before the
rename the destination does not change, whatever goes wrong.

    with interruptible(), staged(destination) as staging:
        ...  # write into staging.directory
        publish(staging, overwrite=False)
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import Interrupted, Problem, SurgeryError, VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.signals import deferred, unhindered
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.locks import acquire
from ckpt_surgery.engine.staging.renaming import aside, exchange, move
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, path_text


@dataclass
class Staging:
    """A checkpoint that is being written, and its destination."""

    destination: Path
    """Absolute path that the rename creates or replaces."""
    directory: Path
    """Temporary directory beside the destination, empty at first. No other process writes there."""
    product: Path
    """What is renamed to the destination: the directory, or the one file in it, which has the same name."""
    notices: tuple[str, ...] = ()
    """Sentences about what a dead run left: a lock that was taken over, files that were removed."""
    made: os.stat_result | None = None
    """Identity of the product, by which it is recognized at the destination. If the product is one file,
    this is None until it is about to be published."""


# --- the temporary directory ----------------------------------------------------------------------


@contextlib.contextmanager
def staged(destination: Path, one_file: bool = False) -> Iterator[Staging]:
    """Lock a destination and make a temporary directory beside it; remove both at the end.

    With `one_file` the file that is written into the directory under the destination's name is published,
    otherwise the directory itself.

    What a dead run left is cleaned up first: its lock is taken over, its temporary directory is removed,
    and a checkpoint that it had moved aside is put back. After a failure inside, the temporary directory
    is removed and the destination is as it was.

    Raises DestinationError where a living run holds the lock, StorageError where the file system refuses
    an operation.
    """
    destination = absolute(destination)
    lock = lock_of(destination)
    directory = destination.with_name(f".{destination.name}.ckpt-surgery-{secrets.token_hex(8)}")
    staging = Staging(destination, directory, directory / destination.name if one_file else directory)
    held = False
    try:
        with storage_errors(lock), deferred():
            staging.notices = acquire(lock)
            held = True
        with storage_errors(destination):
            staging.notices += _tidy(destination)
            os.mkdir(directory)
            staging.made = None if one_file else os.lstat(directory)
        yield staging
        with storage_errors(destination):
            _tidy(destination)
            os.unlink(lock)
            held = False
    except BaseException as failure:
        _tell_outcome(staging, failure)
        if held:
            _clear(destination, lock, failure)
        raise


def _clear(destination: Path, lock: Path, failure: BaseException) -> None:
    """Remove temporary directory and lock after a failure, or say in its message that they are left."""
    try:
        with unhindered():
            _tidy(destination)
            os.unlink(lock)
    except OSError as error:
        reason = error.strerror or str(error)
        _add(failure, f"{path_text(lock)} and its directory are left ({reason}); the next run removes them")


def _tell_outcome(staging: Staging, failure: BaseException) -> None:
    """Add to the failure's message what the destination holds, where a user could be in doubt."""
    destination, made = staging.destination, staging.made
    try:
        published = made is not None and exists(destination) and os.path.samestat(made, os.lstat(destination))
    except OSError as error:
        _add(failure, f"{path_text(destination)} cannot be examined ({error.strerror})")
        return
    if published:
        _add(failure, f"{path_text(destination)} itself is new and complete")
    elif isinstance(failure, Interrupted):
        _add(failure, f"nothing was published: {path_text(destination)} is as it was before")


def _add(failure: BaseException, sentence: str) -> None:
    if isinstance(failure, SurgeryError):
        failure.problems += (Problem(sentence),)
        failure.args = ("\n\n".join(map(str, failure.problems)),)
    else:
        failure.add_note(sentence)


def _tidy(destination: Path) -> tuple[str, ...]:
    """Put back a checkpoint that was moved aside, and remove all temporary directories.

    Returns one sentence for each thing done. The caller holds the lock, so no other run uses them.
    """
    pattern = re.compile(re.escape(f".{destination.name}.ckpt-surgery-") + "([0-9a-f]{16}|old)")
    notices = []
    if exists(aside(destination)) and not exists(destination):
        os.rename(aside(destination), destination)
        notices.append(f"put {path_text(destination)} back, which a run had moved aside before it ended")
    with os.scandir(destination.parent) as entries:
        found = [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]
    for path in found:
        _remove(path)
        notices.append(f"removed {path_text(path)}, which an unfinished run left behind")
    return tuple(notices)


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


# --- publication ----------------------------------------------------------------------------------


def publish(staging: Staging, overwrite: bool) -> None:
    """Sync everything that was written, then rename it to the destination.

    An existing destination is refused, even one that was created during the run. With `overwrite` the old and
    the new checkpoint exchange names in one step, and the old one is removed when `staged` ends. If the
    system or the file system cannot exchange names, the old one is moved aside first. If the run dies before
    the new one is in place, the next run puts the old one back.

    Raises DestinationError if the destination exists, StorageError if the file system refuses an operation,
    VerificationError if the directory holds anything besides the one file that was to be written.
    """
    product = staging.product
    with storage_errors(staging.directory):
        if product != staging.directory:
            _check_alone(product)
        _sync_tree(staging.directory)
        staging.made = os.lstat(product)
    with deferred(), storage_errors(staging.destination):
        _put_in_place(product, staging.destination, overwrite and exists(staging.destination))


def _put_in_place(product: Path, destination: Path, swap: bool) -> None:
    """Rename, or exchange if `swap` is set, and make the change durable; if that fails, undo it."""
    (exchange if swap else move)(product, destination)
    try:
        # Every directory whose entries have changed: the product's own parent can be the temporary one.
        for directory in dict.fromkeys((destination.parent, product.parent)):
            _sync(directory, os.O_DIRECTORY)
    except OSError:
        # What is not durable is not published; the old checkpoint has not been removed yet.
        if swap:
            exchange(product, destination)
        else:
            move(destination, product)
        raise


def _check_alone(file: Path) -> None:
    """Raise VerificationError unless the directory holds this one file: anything else would be lost."""
    written = sorted(os.listdir(file.parent))
    if written != [file.name] or not stat.S_ISREG(os.lstat(file).st_mode):
        others = ", ".join(shown(name) for name in written if name != file.name)
        raise VerificationError(
            f"{shown(file.name)} was to be written as one file; there is {others or 'something else'}"
        )


def _sync_tree(directory: Path) -> None:
    """Sync every file, and every directory after its contents."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, files in os.walk(directory, topdown=False, onerror=refuse):
        for name in files:
            _sync(Path(folder, name), os.O_NOFOLLOW)
        _sync(Path(folder), os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        _flush(handle)
    finally:
        os.close(handle)


def _flush(handle: int) -> None:
    """Have the disk itself store what was written. On macOS fsync(2) alone leaves it in the disk's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(handle, full)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):  # network file systems
                raise
    os.fsync(handle)
