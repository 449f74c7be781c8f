"""Checks before anything is written: the place of the destination, and free space."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, StorageError, UsageError
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.engine.staging.leftovers import moved_aside
from ckpt_surgery.engine.staging.locks import check
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists, is_stream, lies_in, path_text, same_place


def check_paths(
    sources: Sequence[Path], destination: Path, overwrite: bool, beside: Sequence[Path] = ()
) -> None:
    """Refuse destinations that would harm what is read, exist already, or cannot be created.

    `beside`: files that are read besides the sources, such as the recipe. Paths are compared with links,
    `..` and trailing slashes resolved. Raises UsageError where the destination is a source or lies in one, or
    where its parent directory is missing; DestinationError where it holds what is read, where it exists (with
    `overwrite`: where it holds the working directory, or is a link), or where another run writes it;
    StorageError where its parent is read-only.
    """
    with storage_errors(destination):
        for source in sources:
            _check_apart(source, destination)
        _check_absent(destination, overwrite)
        for file in beside:
            if same_place(file, destination) or lies_in(file, destination):
                raise _held(destination, f"{path_text(file)}, which this run reads")
        _check_parent(destination)
        check(lock_of(absolute(destination)))


def _check_apart(source: Path, destination: Path) -> None:
    if same_place(source, destination):
        problem = f"{path_text(destination)}: the destination is the source itself"
    elif lies_in(destination, source):
        problem = f"{path_text(destination)}: the destination lies inside the source {path_text(source)}"
    elif lies_in(source, destination):
        raise _held(destination, f"the source {path_text(source)}")
    else:
        return
    raise UsageError(problem, hint="Choose another destination; sources are never written to.")


def _held(destination: Path, what: str) -> DestinationError:
    """The error where replacing the destination would remove what the run needs."""
    return DestinationError(
        f"{path_text(destination)}: is not replaced, for it holds {what}", hint="Choose another destination."
    )


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
    if replaced_by(destination) is None:
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
        raise _held(destination, "the working directory")


# --- what is replaced -------------------------------------------------------------------------------------


def replaced_by(destination: Path) -> Path | None:
    """The path of what a new checkpoint would replace; None where there is nothing.

    That is the destination, or where it was moved by a run that was killed while it replaced it.
    """
    if exists(destination):
        return destination
    with storage_errors(destination):
        return moved_aside(absolute(destination))


def state_of(destination: Path) -> str | None:
    """A text that changes whenever what would be replaced changes; None where there is nothing.

    It is made of the names, types, numbers (inodes), sizes and times of all files, wherever they lie.
    Raises StorageError where a directory cannot be listed.
    """
    path = replaced_by(destination)
    if path is None:
        return None
    with storage_errors(path):
        digest = hashlib.sha256()
        for name, found in _entries(path):
            of_file = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
            digest.update(repr((name, found.st_mode, found.st_ino, *of_file)).encode())
        return digest.hexdigest()


def _entries(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """A path and everything below it, by relative names, in a fixed order. Follows no link."""
    pending = [("", os.lstat(path))]
    while pending:
        name, found = pending.pop()
        yield name, found
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path / name) as inner:
                entries = sorted(inner, key=lambda entry: entry.name)
            pending += [(os.path.join(name, e.name), e.stat(follow_symlinks=False)) for e in entries]


def check_same(destination: Path, state: str | None, gone_is_same: bool = True) -> None:
    """Refuse to replace what is not in the state in which it was checked. What is gone needs no check, unless
    parts of it were to stay (`gone_is_same=False`).

    Raises DestinationError.
    """
    same = (None, state) if gone_is_same else (state,)
    if state is not None and state_of(destination) not in same:
        raise DestinationError(
            f"{path_text(destination)}: changed during this run, so it was not replaced",
            hint="Look at what is there now; then run again.",
        )


# --- the place --------------------------------------------------------------------------------------------


def _check_parent(destination: Path) -> None:
    """Raise UsageError where the parent directory is missing, StorageError where it is read-only."""
    parent = absolute(destination).parent
    if not parent.is_dir():
        raise UsageError(f"{path_text(parent)}: no such directory", hint="Create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path_text(parent)}: cannot be written to", hint="Check its permissions.")


def check_document(document: Path, others: Iterable[Path], into: bool = True) -> None:
    """Refuse to write a document (a saved plan, JSON) over another path of the command, or into it.

    The others need not exist; without `into` they are files. An existing document is replaced if it is a
    regular file that may be written; a device or a pipe is written to. Raises UsageError, and StorageError
    where the system would refuse.
    """
    with storage_errors(document):
        if "\0" in os.fspath(document):
            raise UsageError(f"{path_text(document)}: no file can be called so", hint="Choose another name.")
        if is_stream(document):
            return
        _check_parent(document)
        for other in others:
            if same_place(document, other) or (into and lies_in(document, other)):
                raise UsageError(
                    f"{path_text(document)}: a document cannot be written over or into {path_text(other)}",
                    hint="Name a file elsewhere.",
                )
        _check_replaced(document)


def _check_replaced(document: Path) -> None:
    """Raise UsageError where there is a directory, StorageError for a read-only file."""
    if not exists(document):
        return
    if document.is_dir():
        raise UsageError(f"{path_text(document)}: is a directory", hint="Name a file.")
    if document.exists() and not os.access(document, os.W_OK):
        raise StorageError(f"{path_text(document)}: may not be written", hint="Check its permissions.")


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
