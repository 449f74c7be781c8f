"""List paths and URLs: files and directories by name, sizes, times, links. Nothing here reads contents.

A path is a text that may also be the URL of an object store: see `views`. Stores have no links.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple, TypeVar

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError, access_error
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import LINKS, damaged, missing, unreadable
from ckpt_surgery.storage.store import Stat
from ckpt_surgery.storage.views import VIEW

T = TypeVar("T")

MAX_DEPTH = 64
"""Directories nested deeper than this are refused."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """Size and time of a regular file, or size and version of an object."""

    size: int
    """Size in bytes."""
    modified: int
    """Time of the last change, in nanoseconds since the epoch; 0 for objects, whose version tells."""
    version: str = ""
    """Version of an object, which reads of it name; empty for files."""


class DirectoryNames(NamedTuple):
    """The names in one directory, sorted."""

    files: Sequence[str]
    """Everything but directories; also links that lead nowhere."""
    directories: Sequence[str]
    """Directories, and links to directories."""


# --- one path ---------------------------------------------------------------------------------------------


def is_directory(path: str) -> bool:
    """Whether a path leads to a directory, also through links. Raises StorageError: see `exists`."""
    if urls.is_url(path):
        return VIEW.is_directory(path)
    status = _status(path)
    return status is not None and S_ISDIR(status.st_mode)


def is_file(path: str) -> bool:
    """Whether a path leads to a regular file, also through links. Raises StorageError: see `exists`."""
    if urls.is_url(path):
        return VIEW.stat(path) is not None
    status = _status(path)
    return status is not None and S_ISREG(status.st_mode)


def exists(path: str) -> bool:
    """Whether a path leads to anything; a link that leads nowhere does not count.

    Raises StorageError where the system does not tell, as below a directory that may not be entered.
    """
    if urls.is_url(path):
        return VIEW.is_directory(path) or VIEW.stat(path) is not None
    return _status(path) is not None


def has_entry(path: str) -> bool:
    """Whether a name is taken; a link that leads nowhere counts. Raises StorageError: see `exists`."""
    if urls.is_url(path):
        return exists(path)
    return _status(path, follow=False) is not None


def _status(path: str, follow: bool = True) -> os.stat_result | None:
    """Status of a path; None if nothing is there."""
    with suppress(ValueError):  # a NUL, which no name has
        try:
            return os.stat(path, follow_symlinks=follow)
        except OSError as error:
            if (refused := access_error(path, error)) is not None:
                raise refused from error
    return None


def real_path(path: str) -> str:
    """The absolute path without links; a URL is its own."""
    return path if urls.is_url(path) else os.path.realpath(path)


def listed_object(url: str) -> Stat:
    """Status of an object, which must exist."""
    stat = VIEW.stat(url)
    if stat is None:
        raise missing(url)
    return stat


def object_stat(stat: Stat) -> FileStat:
    """Status of an object, in the form of a file's."""
    return FileStat(stat.size, 0, stat.version)


def check_link(path: str, root: str) -> None:
    """Refuse a symbolic link that leaves the source. `root`: real path of the source's directory.

    In a Hugging Face cache (`<repository>/snapshots/<revision>/…`) every file is a link to
    `<repository>/blobs/…`, which is allowed.
    """
    if urls.is_url(path):
        return
    target, parts = os.path.realpath(path), root.split(os.sep)
    caches = (os.sep.join([*parts[:i], "blobs"]) for i, part in enumerate(parts) if part == "snapshots")
    if not any(target == bound or target.startswith(bound + os.sep) for bound in (root, *caches)):
        raise SourceError(
            f"{shown(path)} is a symbolic link to {shown(target)}, outside the checkpoint",
            hint="Copy the file it points to into the checkpoint; links are followed only within it.",
        )


def data_file(path: str) -> DataFile:
    """A file that holds stored bytes, with symbolic links resolved."""
    if urls.is_url(path):
        return DataFile(path, listed_object(path).size, urls.split(path)[0])
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except OSError as error:
        raise unreadable(path, error) from error
    return DataFile(real, status.st_size, domain_of(status))


def domain_of(status: os.stat_result) -> str:
    """The file system of a file, as `DataFile.domain` names it."""
    return f"device:{status.st_dev}"


# --- directories ------------------------------------------------------------------------------------------


def names_in(directory: str) -> list[str]:
    """Names in a directory, sorted."""
    files, directories = directory_names(directory)
    return sorted({*files, *directories})


def directory_names(directory: str) -> DirectoryNames:
    """The names in a directory by what they lead to."""
    if urls.is_url(directory):
        return DirectoryNames(*VIEW.level(directory))
    entries = _entries(directory)
    directories = {entry.name for entry in entries if _leads_to_directory(entry)}
    files = (entry.name for entry in entries if entry.name not in directories)
    return DirectoryNames(sorted(files), sorted(directories))


def names_below(directory: str) -> Iterable[str]:
    """Relative paths (with `/`) of everything below a directory that is no directory itself, as it is found.

    The files of a directory come before those inside its directories. Links are listed and not followed.
    """
    if urls.is_url(directory):
        return VIEW.below(directory)
    return (name for name, _ in _files_below(directory, None))


def walk(directory: str, root: str) -> dict[str, FileStat]:
    """Files below `directory` by their relative paths (with `/`). Links must stay within `root`."""
    if urls.is_url(directory):
        return {name: object_stat(stat) for name, stat in VIEW.below(directory.rstrip("/")).items()}
    return {name: _stat(entry) for name, entry in _files_below(directory, root)}


def _files_below(directory: str, root: str | None) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Everything below a directory that is no directory, by relative path. `root`: see `walk`; None: links
    are not followed."""
    pending = [("", 0)]
    while pending:
        prefix, depth = pending.pop()
        if depth > MAX_DEPTH and root is not None:
            raise SourceError(
                f"{shown(directory)} is nested more than {MAX_DEPTH} directories deep", hint=LINKS
            )
        for entry in _entries(os.path.join(directory, prefix)):
            if root is not None and entry.is_symlink():
                check_link(entry.path, root)
            inner = entry.is_dir(follow_symlinks=False) if root is None else _leads_to_directory(entry)
            if inner:
                pending.append((f"{prefix}{entry.name}/", depth + 1))
            else:
                yield prefix + entry.name, entry


def _entries(directory: str) -> list["os.DirEntry[str]"]:
    """Entries of a directory, in no order."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        raise unreadable(directory, error) from error


def _leads_to_directory(entry: "os.DirEntry[str]") -> bool:
    """Whether an entry is a directory or a link to one; False for a link that leads nowhere."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _stat(entry: "os.DirEntry[str]") -> FileStat:
    try:
        stat = entry.stat()
    except OSError as error:
        raise unreadable(entry.path, error) from error
    if not S_ISREG(stat.st_mode):
        raise damaged(f"{shown(entry.path)} is neither a file nor a directory")
    return FileStat(stat.st_size, stat.st_mtime_ns)


# --- fingerprints -----------------------------------------------------------------------------------------


def relative(files: Mapping[str, T]) -> dict[str, T]:
    """Files by their paths relative to the innermost directory that holds them all."""
    paths = {urls.absolute(path): stat for path, stat in files.items()}
    levels = zip(*(os.path.dirname(path).split("/") for path in paths), strict=False)
    shared = takewhile(lambda level: len(set(level)) == 1, levels)
    root = "/".join(level[0] for level in shared)
    return {path[len(root) :].lstrip("/"): stat for path, stat in paths.items()}


def digest(files: Mapping[str, FileStat]) -> str:
    """SHA-256 of names within the checkpoint, sizes, and times or versions, hexadecimal: equal while nothing
    changes.

    Where the checkpoint lies does not matter: it may be mounted elsewhere when a saved plan is carried out.
    """
    lines = (
        f"{name}\0{stat.size}\0{stat.version or stat.modified}\n" for name, stat in sorted(files.items())
    )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
