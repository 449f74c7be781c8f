"""Publish a checkpoint on disk: the rename to the destination, and the record beside it."""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.renaming import exchange, move
from ckpt_surgery.engine.staging.syncing import sync_directory
from ckpt_surgery.storage.paths import exists
from ckpt_surgery.storage.record_files import beside

ASIDE = "old"
"""Name of the old checkpoint in the temporary directory, on file systems that cannot exchange names."""
_OLD_RECORD = "old-record"


def check_alone(file: Path) -> None:
    """Raise VerificationError unless the directory holds only this file: anything else would be lost."""
    written = sorted(os.listdir(file.parent))
    if written != [file.name] or not stat.S_ISREG(os.lstat(file).st_mode):
        others = ", ".join(shown(name) for name in written if name != file.name)
        raise VerificationError(
            f"{shown(file.name)} was to be written as one file; there is {others or 'something else'}"
        )


def put_in_place(product: Path, destination: Path, directory: Path, overwrite: bool) -> None:
    """Durably rename the product to the destination, or exchange them. Undo it if that fails.

    A record beside the destination is the old checkpoint's: it goes first, so that no checkpoint is ever
    beside the record of another. Raises DestinationError, OSError.
    """
    swap = overwrite and exists(destination)
    with _without_record(destination, directory):
        _rename(product, destination, directory, swap)
        try:
            # Every directory whose entries have changed.
            for changed in dict.fromkeys((destination.parent, product.parent)):
                sync_directory(changed)
        except OSError:
            # What is not durable is not published; the old checkpoint has not been removed yet.
            if swap:
                _rename(product, destination, directory, swap)
            else:
                move(destination, product)
            raise


def _rename(product: Path, destination: Path, directory: Path, swap: bool) -> None:
    if swap:
        exchange(product, destination, directory / ASIDE)
    else:
        move(product, destination)


@contextlib.contextmanager
def _without_record(destination: Path, directory: Path) -> Iterator[None]:
    """Move the record beside the destination into the temporary directory; move it back after a failure."""
    record, moved = beside(destination), directory / _OLD_RECORD
    if not exists(record) or not stat.S_ISREG(os.lstat(record).st_mode):
        yield
        return
    os.rename(record, moved)
    try:
        sync_directory(destination.parent)
        yield
    except BaseException:
        os.rename(moved, record)
        raise


def add_record(destination: Path, directory: Path) -> None:
    """Move the new record from the temporary directory to beside the checkpoint. Raises OSError."""
    record = beside(destination)
    if exists(directory / record.name):
        os.rename(directory / record.name, record)
        sync_directory(destination.parent)
