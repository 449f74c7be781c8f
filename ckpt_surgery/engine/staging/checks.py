"""Checks before anything is written: the place of the destination, and free space."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, StorageError, UsageError
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.engine.staging.locks import check
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, lies_in, path_text, same_place


def check_paths(sources: Sequence[Path], destination: Path, overwrite: bool) -> None:
    """Refuse destinations that would harm a source, exist already, or cannot be created.

    Paths are compared with links, `..` and trailing slashes resolved. Raises UsageError where source and
    destination are the same or one lies inside the other, or where the parent directory is missing;
    DestinationError where the destination exists or another run writes it; StorageError where the parent
    is read-only.
    """
    with storage_errors(destination):
        for source in sources:
            _check_apart(source, destination)
        _check_absent(destination, overwrite)
        _check_parent(destination)
        check(lock_of(absolute(destination)))


def _check_apart(source: Path, destination: Path) -> None:
    if same_place(source, destination):
        problem = f"{path_text(destination)}: the destination is the source itself"
    elif lies_in(destination, source):
        problem = f"{path_text(destination)}: the destination lies inside the source {path_text(source)}"
    elif lies_in(source, destination):
        problem = f"{path_text(source)}: the source lies inside the destination {path_text(destination)}"
    else:
        return
    raise UsageError(problem, hint="Choose another destination; sources are never written to.")


def check_files(files: Iterable[str], destination: Path) -> None:
    """Refuse a destination that is one of `files`, the files of all sources. Raises UsageError.

    They can be in any directory, and need not exist.
    """
    if destination.is_dir():
        return
    for file in files:
        if same_place(Path(file), destination):
            raise UsageError(
                f"{path_text(destination)}: the destination is a file of a source",
                hint="Choose another destination; sources are never written to.",
            )


def _check_absent(destination: Path, overwrite: bool) -> None:
    if not exists(destination):
        return
    if not overwrite:
        raise DestinationError(
            f"{path_text(destination)}: exists already",
            hint="Choose another destination, or replace it: `overwrite=True`.",
        )
    if destination.is_symlink():
        raise DestinationError(
            f"{path_text(destination)}: is a symbolic link, which is never replaced",
            hint=f"Name {path_text(Path(os.path.realpath(destination)))} instead, or remove the link.",
        )
    if same_place(Path.cwd(), destination) or lies_in(Path.cwd(), destination):
        raise UsageError(
            f"{path_text(destination)}: contains the working directory and is not replaced",
            hint="Name the checkpoint's own directory.",
        )


def _check_parent(destination: Path) -> None:
    """Raise UsageError where the parent directory is missing, StorageError where it is read-only."""
    parent = absolute(destination).parent
    if not parent.is_dir():
        raise UsageError(f"{path_text(parent)}: no such directory", hint="Create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path_text(parent)}: cannot be written to", hint="Check its permissions.")


def check_document(document: Path, others: Iterable[Path]) -> None:
    """Refuse to write a document (a saved plan, JSON) over or into another path of the command.

    The others are the inputs and the destination; they need not exist. Raises UsageError, and StorageError
    where the document's directory is read-only.
    """
    with storage_errors(document):
        _check_parent(document)
        for other in others:
            if same_place(document, other) or lies_in(document, other):
                raise UsageError(
                    f"{path_text(document)}: a document cannot be written over or into {path_text(other)}",
                    hint="Name a file elsewhere.",
                )


def check_space(destination: Path, bytes_needed: int) -> None:
    """Raise StorageError where the destination's file system has less than `bytes_needed` bytes free."""
    parent = absolute(destination).parent
    with storage_errors(parent):
        free = shutil.disk_usage(parent).free
    if free < bytes_needed:
        raise StorageError(
            f"{path_text(parent)}: {bytes_text(bytes_needed)} are to be written, {bytes_text(free)} are free",
            hint="Free some space, or choose a destination on another file system.",
        )


def lock_of(destination: Path) -> Path:
    """The lock file of a destination."""
    return destination.with_name(f".{destination.name}.ckpt-surgery-lock")
