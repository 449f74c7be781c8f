"""The files of a checkpoint directory: one walk for names, sizes and times, and safe JSON reading."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from stat import S_ISREG
from typing import Any, Literal, TypeVar

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.core.text import few, shown

T = TypeVar("T")

DAMAGED = "The checkpoint is damaged or incomplete; take another copy."
ACCESS = "Check its permissions and its symbolic links."
MAX_DEPTH = 64
"""Directories nested deeper than this are refused."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """Of a regular file."""

    size: int
    """Bytes."""
    modified: int
    """Nanoseconds since the epoch."""


def _link_bounds(root: str) -> tuple[str, ...]:
    """The directories that links inside `root` may point into.

    In a Hugging Face cache (`<repository>/snapshots/<revision>/…`) every file is a link to
    `<repository>/blobs/…`.
    """
    parts = root.split(os.sep)
    places = [i for i, part in enumerate(parts) if part == "snapshots"]
    caches = [os.sep.join([*parts[:i], "blobs"]) for i in places]
    return (root, *caches)


def check_link(path: str, root: str) -> None:
    """Refuse a symbolic link that leaves the source. `root`: real path of the source's directory."""
    target = os.path.realpath(path)
    if any(target == bound or target.startswith(bound + os.sep) for bound in _link_bounds(root)):
        return
    raise SourceError(
        f"{shown(path)} is a symbolic link to {shown(target)}, outside the checkpoint",
        hint="Copy the file it points to into the checkpoint; links are followed only within it.",
    )


def walk(directory: str, root: str) -> dict[str, FileStat]:
    """Every file below `directory` by its relative path (with `/`). Links are held to `root`.

    Raises SourceError for links that leave the source, for what is neither file nor directory, and
    for what may not be read.
    """
    found: dict[str, FileStat] = {}
    pending = [("", 0)]
    while pending:
        prefix, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise SourceError(
                f"{shown(directory)} is nested more than {MAX_DEPTH} directories deep", hint=ACCESS
            )
        for entry in entries(os.path.join(directory, prefix)):
            if entry.is_symlink():
                check_link(entry.path, root)
            if is_directory(entry):
                pending.append((f"{prefix}{entry.name}/", depth + 1))
            else:
                found[prefix + entry.name] = _stat(entry)
    return found


def named(key: Key, error: SourceError) -> SourceError:
    """The same problems, with the leaf in front."""
    return SourceError(*(replace(p, message=f"`{shown(key.text)}`: {p.message}") for p in error.problems))


@contextmanager
def about(path: str) -> Iterator[None]:
    """Puts a path before the problems that are found inside."""
    try:
        yield
    except SourceError as error:
        told = (replace(p, message=f"{shown(path)}: {p.message}") for p in error.problems)
        raise SourceError(*told) from error


def data_file(path: str) -> DataFile:
    """What is known of a file of stored bytes; links are seen through. SourceError where it is gone."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)
    except OSError as error:
        raise SourceError(f"{shown(path)} cannot be looked at: {error.strerror}", hint=DAMAGED) from error
    return DataFile(real, status.st_size, status.st_dev)


def entries(directory: str) -> list["os.DirEntry[str]"]:
    """What is in a directory, in no order. Raises SourceError where it cannot be listed."""
    try:
        with os.scandir(directory) as listed:
            return list(listed)
    except OSError as error:
        raise SourceError(f"{shown(directory)} cannot be listed: {error.strerror}", hint=ACCESS) from error


def is_directory(entry: "os.DirEntry[str]") -> bool:
    """Also through a link; a link that leads nowhere is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _stat(entry: "os.DirEntry[str]") -> FileStat:
    try:
        stat = entry.stat()
    except OSError as error:
        raise SourceError(f"{shown(entry.path)} cannot be read: {error.strerror}", hint=ACCESS) from error
    if not S_ISREG(stat.st_mode):
        raise SourceError(f"{shown(entry.path)} is neither a file nor a directory", hint=DAMAGED)
    return FileStat(stat.st_size, stat.st_mtime_ns)


def relative(files: Mapping[str, FileStat]) -> dict[str, FileStat]:
    """Files by their paths within the directory that holds them all, wherever that is."""
    paths = {os.path.abspath(path): stat for path, stat in files.items()}
    root = os.path.commonpath(map(os.path.dirname, paths)) if paths else ""
    return {path[len(root) :].lstrip(os.sep): stat for path, stat in paths.items()}


def digest(files: Mapping[str, FileStat]) -> str:
    """Of names within the checkpoint, sizes and times: hexadecimal, equal for an untouched checkpoint.

    Where the checkpoint lies does not matter: it may be mounted elsewhere when a saved plan is carried out.
    """
    lines = (f"{name}\0{stat.size}\0{stat.modified}\n" for name, stat in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file. Raises SourceError where the file is missing or is no such thing."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except OSError as error:
        raise SourceError(f"{shown(path)} cannot be read: {error.strerror}", hint=DAMAGED) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{shown(path)} is not valid JSON: {shown(str(error))}",
            hint=DAMAGED,
        ) from error
    if not isinstance(value, dict):
        raise SourceError(
            f"{shown(path)} holds a JSON {type(value).__name__} where an object belongs", hint=DAMAGED
        )
    return value


def read_form(path: str, form: type[T]) -> T:
    """The JSON document in a file in a form of msgspec's: its types are checked, other members left out.

    Half the time and memory of `read_json`, for documents with a record for each leaf. Raises SourceError
    where the file is missing, is not JSON, or has another form.
    """
    import msgspec

    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=form)
    except (OSError, ValueError, RecursionError):
        # Python takes more for JSON (NaN, halves of surrogate pairs), and else it says what is wrong.
        document = read_json(path)
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise malformed(path, error) from error


def malformed(path: str, error: Exception) -> SourceError:
    """What to raise for a JSON document that has not the form that it should have."""
    return SourceError(f"{shown(path)} is malformed: {shown(str(error))}", hint=DAMAGED)


# --- choosing ---------------------------------------------------------------------------------------------


def check_no_choice(what: str, step: int | None, item: str | None, prefix: Literal["", "dst_"] = "") -> None:
    """Raises UsageError where a step or an item is asked of a format that has neither.

    `what` goes on: `x.npz is an .npz file, which has`. `prefix`: of the arguments' names.
    """
    if step is not None or item is not None:
        given = [] if step is None else [f"`{prefix}step={step}`"]
        given += [] if item is None else [f"`{prefix}item={shown(item)}`"]
        raise UsageError(f"{what} no steps or items", hint=f"Leave out {' and '.join(given)}.")


def check_no_step(path: str, step: int | None) -> None:
    """Raises UsageError where a step is asked of a path that is not a directory of steps."""
    if step is not None:
        raise UsageError(
            f"{shown(path)} has no steps to choose from", hint=f"Leave out `step={step}`, or name its parent."
        )


def check_no_item(path: str, item: str | None) -> None:
    """Raises UsageError where an item is asked of a path that has no several ones."""
    if item is not None:
        raise UsageError(
            f"{shown(path)} has no items to choose from", hint=f"Leave out `item={shown(item)}`."
        )


def file_of(path: str, chosen: Callable[[str], str]) -> tuple[str, str]:
    """The directory and the name of the file that is meant: `path`, or what is `chosen` in it by name.

    Raises SourceError for a link that leaves the directory, and what `chosen` does.
    """
    if not os.path.isdir(path):
        directory, name = os.path.split(path)
        return directory, name
    name = chosen(path)
    check_link(os.path.join(path, name), os.path.realpath(path))
    return path, name


def not_one(directory: str, kind: str, found: Sequence[str]) -> SourceError:
    """What to raise where not one file stands for a whole directory. `kind`: `.npz files`."""
    told = f": {few(found)}" if found else ""
    return SourceError(
        f"{shown(directory)} holds {len(found)} {kind}{told}", hint="Name the file that is meant."
    )


def without_index(directory: str, shards: Sequence[str], index: str) -> SourceError:
    """What to raise where a directory holds shards of a model, and not the index that joins them."""
    return SourceError(
        f"{shown(directory)} holds shards ({few(shards)}) without their index {index}", hint=DAMAGED
    )
