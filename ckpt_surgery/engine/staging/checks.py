"""Checks of a destination: its location, its content and changes of that, and free space.

A place is a `Path` on disk, or the URL of an object store as a text.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import DestinationError, UsageError
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.engine.staging.leftovers import moved_aside
from ckpt_surgery.engine.staging.locks import FileLock
from ckpt_surgery.planner.plan import Replacement
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.listing import digest, is_directory, walk
from ckpt_surgery.storage.listing import exists as is_there
from ckpt_surgery.storage.paths import absolute, check_parent, exists, lies_in, path_text, same_place
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.store import store_of
from ckpt_surgery.storage.views import forget

Place = Path | str
NEVER_WRITTEN = "Choose another destination; sources are never written to."


def check_path(sources: Sequence[str], destination: Path, overwrite: bool, read: Sequence[Path] = ()) -> None:
    """Refuse a path that would damage a source, exists already, or cannot be created.

    `read`: files that are read besides the sources, such as the recipe. Paths are compared with links,
    `..` and trailing slashes resolved. Raises UsageError if the destination is a source or lies in one, or
    if its parent directory is missing; DestinationError if it holds what is read, if it exists (with
    `overwrite`: if it holds the working directory, or is a link), or if another run writes it;
    StorageError if its parent is read-only.
    """
    with storage_errors(destination):
        check_apart(sources, destination)
        if replaced_by(destination) is not None:
            if not overwrite:
                raise already_there(path_text(destination))
            if destination.is_symlink():
                other = path_text(Path(os.path.realpath(destination)))
                raise DestinationError(
                    f"{path_text(destination)}: is a symbolic link, which is never replaced",
                    hint=f"Name {other} instead, or remove the link.",
                )
            if same_place(Path.cwd(), destination) or lies_in(Path.cwd(), destination):
                raise _held(path_text(destination), "the working directory")
        for file in read:
            if same_place(file, destination) or lies_in(file, destination):
                raise _held(path_text(destination), f"{path_text(file)}, which this run reads")
        check_parent(destination)
        FileLock(lock_of(absolute(destination))).check()


def check_apart(sources: Iterable[str], place: Place) -> None:
    """Refuse a destination that is a source, lies in one, or holds one.

    Raises UsageError, and DestinationError if a source would be replaced.
    """
    at = os.fspath(place)
    for source in sources:
        if _is_same(source, at):
            raise UsageError(f"{shown(at)}: the destination is the source itself", hint=NEVER_WRITTEN)
        if _is_below(at, source):
            problem = f"{shown(at)}: the destination lies inside the source {shown(source)}"
            raise UsageError(problem, hint=NEVER_WRITTEN)
        if _is_below(source, at):
            raise _held(at, f"the source {shown(source)}")


def check_files(files: Iterable[str], place: Place) -> None:
    """Refuse a destination that is one of `files`, the files of all sources. Raises UsageError.

    They can be in any directory, and need not exist.
    """
    at = os.fspath(place)
    if not os.path.isdir(at) and any(_is_same(file, at) for file in files):
        raise UsageError(f"{shown(at)}: the destination is a file of a source", hint=NEVER_WRITTEN)


def _is_same(path: str, other: str) -> bool:
    if urls.is_url(path) or urls.is_url(other):
        return path == other
    return same_place(Path(path), Path(other))


def _is_below(inner: str, outer: str) -> bool:
    if urls.is_url(inner) or urls.is_url(outer):
        return inner.startswith(f"{outer}/")
    return lies_in(Path(inner), Path(outer))


def _held(place: str, what: str) -> DestinationError:
    """Error for a destination whose replacement would remove what the run needs."""
    problem = f"{shown(place)}: is not replaced, for it holds {what}"
    return DestinationError(problem, hint="Choose another destination.")


def already_there(place: str) -> DestinationError:
    """Error for an occupied destination that must not be replaced; `place` as messages show it."""
    hint = "Choose another destination, or replace it: `overwrite=True`."
    return DestinationError(f"{place}: exists already", hint=hint)


def check_directory(url: str) -> None:
    """Refuse a URL at which an object exists, for checkpoints of several. Raises DestinationError."""
    store, name = store_of(url)
    if store.stat(name) is not None:
        raise DestinationError(
            f"{shown(url)}: is an object, and a checkpoint of several objects does not replace it",
            hint="Choose another destination, or delete it.",
        )


def replaced_by(destination: Path) -> Path | None:
    """Path of what a new checkpoint would replace; None if nothing is there.

    That is the destination, or where it was moved by a run that was killed while it replaced it.
    """
    if exists(destination):
        return destination
    with storage_errors(destination):
        return moved_aside(absolute(destination))


def state_of(place: Place, run: str = "") -> str | None:
    """Fingerprint of what would be replaced, to detect changes of it; None if nothing is there.

    On disk it is made of the names, types, numbers (inodes), sizes and times of all files, wherever they lie;
    in a store of names, sizes and versions, for which the store is asked anew. `run`: token of shards whose
    objects do not count. Raises StorageError if a directory cannot be listed.
    """
    if isinstance(place, str):
        forget()
        if not is_there(place):
            return None
        stats = walk(place, place) if is_directory(place) else {"": stat_file(place)}
        return digest({name: stats[name] for name in stats if not (run and is_of_shards(name, run))})
    path = replaced_by(place)
    if path is None:
        return None
    with storage_errors(path):
        hasher = hashlib.sha256()
        pending = [("", os.lstat(path))]
        while pending:  # in a fixed order; links are not followed
            name, status = pending.pop()
            is_inner = stat.S_ISDIR(status.st_mode)
            of_file = () if is_inner else (status.st_size, status.st_mtime_ns)
            hasher.update(repr((name, status.st_mode, status.st_ino, *of_file)).encode())
            if is_inner:
                with os.scandir(path / name) as inner:
                    entries = sorted(inner, key=lambda entry: entry.name)
                pending += [(os.path.join(name, e.name), e.stat(follow_symlinks=False)) for e in entries]
        return hasher.hexdigest()


def is_of_shards(name: str, run: str) -> bool:
    """True if a shard put this object, whose name then contains the token of the shards."""
    return f"_{run}_" in name


def check_same(place: Place, replaces: Replacement | None, run: str = "") -> None:
    """Refuse to replace what changed since it was checked. What was removed needs no check, unless parts of
    it were to stay. `run`: see `state_of`.

    Raises DestinationError.
    """
    if replaces is None:
        return
    now = state_of(place, run)
    if now != replaces.state and (now is not None or replaces.one_item):
        what = f"{shown(os.fspath(place))}: changed during this run, so it was not replaced"
        raise DestinationError(what, hint="Look at what is there now; then run again.")


def check_space(destination: Path, bytes_needed: int) -> None:
    """Raise StorageError if the destination's file system has less than `bytes_needed` bytes free."""
    parent = absolute(destination).parent
    with storage_errors(parent):
        free = shutil.disk_usage(parent).free
        if free < bytes_needed:
            sizes = f"{bytes_text(bytes_needed)} are to be written, {bytes_text(free)} are free"
            raise OSError(errno.ENOSPC, sizes)


def lock_of(destination: Path) -> Path:
    """The lock file of a destination."""
    return destination.with_name(f".{destination.name}.ckpt-surgery-lock")
