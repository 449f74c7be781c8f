"""How a checkpoint comes into being all at once: a lock, a temporary directory, one rename.

Everything is written into a directory with a random name beside the destination. It, or the one file
in it, becomes the destination by one rename, after all of it has reached the disk. Until then nobody
sees it, and whatever goes wrong, the destination is what it was before.

    with interruptible(), staged(destination) as staging:
        ...  # write into staging.directory
        publish(staging, overwrite=False)
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.core.errors import (
    Interrupted,
    Problem,
    SurgeryError,
    VerificationError,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.signals import deferred, unhindered
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.locks import acquire
from ckpt_surgery.engine.staging.renaming import aside, exchange, move
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, path_text


@dataclass
class Staging:
    """A checkpoint on its way: where it is written, and where it will be."""

    destination: Path
    """What the rename creates or replaces; absolute."""
    directory: Path
    """Beside the destination, empty at first. Nobody else looks at it."""
    product: Path
    """What becomes the destination: the directory, or the one file in it, which has the same name."""
    notices: tuple[str, ...] = ()
    """What was found and put in order, one sentence each: a dead run's lock, its leftovers."""
    made: os.stat_result | None = None
    """Of the product, to recognize it by at the destination; a file's is known when it is published."""


# --- the temporary directory ----------------------------------------------------------------------


@contextlib.contextmanager
def staged(destination: Path, one_file: bool = False) -> Iterator[Staging]:
    """Lock a destination and make a temporary directory beside it; afterwards neither is left.

    With `one_file` not the directory is published, but the file that is written into it under the
    destination's name.

    What a dead run left is put in order first: its lock is taken over, its temporary directory
    removed, and a checkpoint that it had moved aside is put back. On any failure inside, the
    temporary directory goes and the destination stays as it was.

    Raises DestinationError where a living run holds the lock, StorageError for what the file system
    refuses.
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
    """Remove temporary and lock after a failure; what cannot be removed is added to its message."""
    try:
        with unhindered():
            _tidy(destination)
            os.unlink(lock)
    except OSError as error:
        reason = error.strerror or str(error)
        _add(
            failure, f"{path_text(lock)} and its directory stay behind ({reason}); the next run removes them"
        )


def _tell_outcome(staging: Staging, failure: BaseException) -> None:
    """Say so where a run is stopped after all that matters was done."""
    destination, made = staging.destination, staging.made
    try:
        published = made is not None and exists(destination) and os.path.samestat(made, os.lstat(destination))
    except OSError as error:
        _add(failure, f"{path_text(destination)} cannot be looked at ({error.strerror})")
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
    """Put a checkpoint back that was moved aside, remove all temporary directories; what was done.

    Only for whoever holds the lock, which makes sure that nobody uses them.
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
    """Make the temporary directory, or the file in it, the destination, once every byte is on the disk.

    An existing destination is refused, also one that has come into being meanwhile; with `overwrite`
    the two change places in one step and the old one is removed afterwards. Where the file system
    cannot do that (renameat2(2) with RENAME_NOREPLACE and RENAME_EXCHANGE), the old one is moved aside
    first, which leaves a moment without either; the next run puts it back should this one die then.

    Raises DestinationError where something is in the way, StorageError for what the file system refuses,
    VerificationError where there is anything but the one file that was to be written.
    """
    product, destination = staging.product, staging.destination
    with storage_errors(staging.directory):
        if product != staging.directory:
            _check_alone(product)
        _sync_tree(staging.directory)
        staging.made = os.lstat(product)
    with deferred(), storage_errors(destination):
        swapped = overwrite and exists(destination)
        (exchange if swapped else move)(product, destination)
        try:
            # All directories that have changed; the temporary one has if it is not what was renamed.
            for directory in dict.fromkeys((destination.parent, product.parent)):
                _sync(directory, os.O_DIRECTORY)
        except OSError:
            # Not durable means not published: put things back before the old one could be removed.
            if swapped:
                exchange(product, destination)
            else:
                move(destination, product)
            raise


def _check_alone(file: Path) -> None:
    """Nothing that was written may be lost: the directory holds this one file."""
    written = sorted(os.listdir(file.parent))
    if written != [file.name] or not stat.S_ISREG(os.lstat(file).st_mode):
        others = ", ".join(shown(name) for name in written if name != file.name)
        raise VerificationError(
            f"{shown(file.name)} was to be written as one file; there is {others or 'something else'}"
        )


def _sync_tree(directory: Path) -> None:
    """fsync every file, then every directory, each after what it holds."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, files in os.walk(directory, topdown=False, onerror=refuse):
        for name in files:
            _sync(Path(folder, name), os.O_NOFOLLOW)
        _sync(Path(folder), os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
