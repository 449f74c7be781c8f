"""Errors of the file system and flaws of checkpoints, as SurgeryErrors that name the path and the remedy.

An OSError becomes a StorageError where one is written (`storage_errors`). Where a checkpoint is read
(`unreadable`), it becomes a SourceError if something is missing, and a StorageError if it is there but the
system does not let it be read.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ckpt_surgery.core.errors import SourceError, StorageError, access_error
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.paths import path_text

# --- reading ----------------------------------------------------------------------------------------------

DAMAGED = "The checkpoint is damaged or incomplete; take another copy."
LINKS = "Check what it is, and where its symbolic links lead."


def unreadable(path: str, error: OSError) -> SourceError | StorageError:
    """The error to raise where the system refuses to open, read or list what a checkpoint consists of."""
    refused = access_error(path, error)
    if refused is not None:
        return refused
    hint = DAMAGED if isinstance(error, FileNotFoundError | NotADirectoryError) else LINKS
    return SourceError(f"{shown(path)} cannot be read: {error.strerror or error}", hint=hint)


def damaged(what: str, hint: str = DAMAGED) -> SourceError:
    """The error to raise for a flaw that only another copy of the checkpoint helps against, or the hint."""
    return SourceError(what, hint=hint)


def missing(path: str) -> SourceError:
    """The error to raise for a path or URL with nothing at it."""
    return damaged(f"{shown(path)} is missing")


def flawed(name: str, what: str, hint: str = DAMAGED) -> SourceError:
    """The error to raise for one of a file's arrays, whose name in the file may be anything."""
    return damaged(f"`{shown(name[:200])}` {shown(what[:300])}", hint)


def changed(path: str) -> SourceError:
    """The error to raise for a file or object that is not the one that was listed."""
    return SourceError(
        f"{shown(path)} has changed since it was listed", hint="Run again once nothing writes to it."
    )


def with_key(key: Key, error: SourceError) -> SourceError:
    """The same problems, each with the leaf's key in front."""
    return SourceError(*(replace(p, message=f"`{shown(key.printed)}`: {p.message}") for p in error.problems))


@contextlib.contextmanager
def about_key(key: Key) -> Iterator[None]:
    """Put a leaf's key in front of the problems of every SourceError that is raised inside."""
    try:
        yield
    except SourceError as error:
        raise with_key(key, error) from error


@contextlib.contextmanager
def with_path(path: str) -> Iterator[None]:
    """Put a path in front of the problems of every SourceError that is raised inside."""
    try:
        yield
    except SourceError as error:
        located = (replace(p, message=f"{shown(path)}: {p.message}") for p in error.problems)
        raise SourceError(*located) from error


# --- writing ----------------------------------------------------------------------------------------------

_HINTS = {
    errno.ENOSPC: "Free some space, or choose a destination on another file system.",
    errno.EDQUOT: "Free some of your quota, or choose a destination on another file system.",
    errno.EFBIG: "Raise the limit on file sizes (ulimit -f), or choose another file system.",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "Check the permissions of the destination's directory."),
    errno.EROFS: "The file system is mounted read-only: choose another destination.",
    errno.EIO: "The device reports an error: look into the system's log before trusting it again.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n).",
    errno.ENFILE: "Too many files are open on this machine: end other programs.",
    errno.ENAMETOOLONG: "Choose a shorter name: the temporary directory's is 31 bytes longer.",
    **dict.fromkeys(
        (errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTTY),
        'Check that both are on one file system; `link_mode="copy"` works between any two.',
    ),
}


def storage_error(what: str, error: OSError) -> StorageError:
    """The error to raise where the system refuses to write; `what` is a path, or says what failed."""
    reason = error.strerror or str(error) or type(error).__name__
    hint = _HINTS.get(error.errno or 0, "Check the free space and the permissions of the destination.")
    return StorageError(f"{what}: {reason}", hint=hint)


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn any OSError into StorageError with the path that it names, or else with this one."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        raise storage_error(path_text(named if named.is_absolute() else path), error) from error
