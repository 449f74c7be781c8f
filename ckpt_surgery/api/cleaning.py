"""`clean`: list or remove what dead runs left beside a destination.

Removed is what a run of this tool made, by its name and by what is in it, whose run has ended. A checkpoint
that a run moved aside goes back to its place, or stays where it is if something else took that place.
"""

import contextlib
import enum
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.documents import NAMED, Document, Versioned
from ckpt_surgery.core.errors import DestinationError, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.engine.parts import HEAD
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.heartbeat import Sign, last_sign, locked, who
from ckpt_surgery.engine.staging.leftovers import ASIDE, OLD_RECORD, LeftDirectory, named
from ckpt_surgery.engine.staging.locks import FileLock, read_sign
from ckpt_surgery.inputs.request import checked_path
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, exists
from ckpt_surgery.storage.record_files import beside
from ckpt_surgery.system.signals import interruptible

_OWN = re.compile(r"\.(.+)\.ckpt-surgery-(?:[0-9a-f]{16}|lock(?:-[0-9a-f]{8})?|parts(?:-[0-9a-f]{16})?)")
"""Names of files and directories that runs create beside a destination; the group is its name."""
_IN_DIRECTORY = re.compile(r"journal-.*\.jsonl|publishing-[0-9]+|result|old(?:-record)?|run\.json(?:\.new)?")
"""Names of entries that runs create in a temporary directory, except the record."""


class State(enum.StrEnum):
    """Decides whether a remainder may be removed."""

    DEAD = "dead"
    """The run has ended, and it can be removed."""
    LIVE = "live"
    """The run may still be alive."""
    KEPT = "kept"
    """Useful, or not known to belong to a run: never removed."""


@dataclass(frozen=True)
class RemainderEntry(Document):
    """Something that a run left."""

    path: str
    """Its path."""
    state: Annotated[State, NAMED]
    """`dead` if its run has ended, `live` if it may run; `kept`: of use, or not known to be a run's."""
    bytes: int
    """Size that removing it frees."""
    note: str
    """Whose it is, or why it stays."""
    removed: bool
    """True if it was removed."""


@dataclass(frozen=True, kw_only=True)
class CleanDocument(Versioned):
    """`clean`."""

    path: str
    """As it was given."""
    remainders: tuple[RemainderEntry, ...]
    """Files and directories that runs left beside it or in it."""

    @property
    def dead(self) -> tuple[RemainderEntry, ...]:
        """Remainders of dead runs: they may be removed, or were."""
        return tuple(remainder for remainder in self.remainders if remainder.state is State.DEAD)


def clean(path: PathLike, *, remove: bool = False) -> CleanDocument:
    """List what runs left beside a destination, or in a directory of several; remove what dead runs left.

    Without `remove` nothing changes. Files of living runs stay, and so do those that no run of this tool
    made. A checkpoint that a run moved aside before it died is put back. Raises UsageError for a URL, and
    StorageError where something cannot be listed or removed.
    """
    given = checked_path(path)
    if is_url(given):
        hint = "The next run that writes to this URL removes what dead runs left there."
        raise UsageError(f"{shown(given)}: only paths are cleaned", hint=hint)
    act = remove_remainders if remove else list_remainders
    remainders: list[RemainderEntry] = []
    with interruptible():
        start = absolute(Path(given))
        with storage_errors(start):
            destinations = destinations_at(start)
        for destination in destinations:
            with storage_errors(destination):
                remainders += act(destination)
    return CleanDocument(path=given, remainders=tuple(remainders))


def destinations_at(path: Path) -> list[Path]:
    """The path itself and, if it is a directory, all destinations in it that have leftovers of runs."""
    with os.scandir(path) if path.is_dir() else contextlib.nullcontext(()) as entries:
        names = sorted(match[1] for match in map(_OWN.fullmatch, (e.name for e in entries)) if match)
    return [*dict.fromkeys([path, *(path / name for name in names)])]


def list_remainders(destination: Path) -> list[RemainderEntry]:
    """List all leftovers of runs beside a destination. Raises OSError."""
    if not destination.parent.is_dir():
        return []
    lock = FileLock(lock_of(destination))
    sign = lock.read()
    alive = sign is not None and not lock.judge(sign).ended
    return [
        *(_of_directory(leftover, destination, alive) for leftover in leftovers.leftovers(destination)),
        *_locks(destination, lock),
        *_parts(destination),
    ]


def remove_remainders(destination: Path) -> list[RemainderEntry]:
    """Remove leftovers of dead runs under the destination's lock, and return all. Raises OSError."""
    listed = list_remainders(destination)
    lock = FileLock(lock_of(destination))
    if not any(item.state is State.DEAD for item in listed) or _is_foreign(lock_of(destination), lock.read()):
        return listed
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(lock))
        except DestinationError:  # a run has begun meanwhile
            return [replace(item, state=State.LIVE) if item.state is State.DEAD else item for item in listed]
        directories = leftovers.leftovers(destination)
        own = [leftover for leftover in directories if _foreign(leftover, destination) is None]
        leftovers.put_back(own, destination)
        for leftover in directories:
            if _of_directory(leftover, destination, alive=False).state is State.DEAD:
                leftovers.remove(leftovers.claim(leftover.directory, destination))
        for path in [Path(item.path) for item in listed if item.state is State.DEAD]:
            if not path.is_dir() and path != lock_of(destination):
                path.unlink(missing_ok=True)
    removed = {item.path for item in listed if item.state is State.DEAD and not exists(Path(item.path))}
    return [replace(item, removed=item.path in removed) for item in listed]


def _remainder(path: Path, state: State, nbytes: int, note: str) -> RemainderEntry:
    return RemainderEntry(os.fspath(path), state, nbytes, note, removed=False)


def _of_directory(leftover: LeftDirectory, destination: Path, alive: bool) -> RemainderEntry:
    """Classify a temporary directory. `alive`: a living run holds the destination's lock."""
    directory, nbytes, whose = leftover.directory, _size(leftover.directory), f"of {who(leftover.owner)}"
    if alive:
        return _remainder(directory, State.LIVE, nbytes, whose)
    foreign, aside = _foreign(leftover, destination), exists(directory / ASIDE)
    if foreign is None and aside and exists(destination) and not leftover.published:
        foreign = f"holds, as `{ASIDE}`, a checkpoint that a run moved aside; its place is taken now"
    lost = not leftover.published and not exists(beside(destination))
    if foreign is None and lost and exists(directory / OLD_RECORD):
        foreign = f"holds, as `{OLD_RECORD}`, the record that lay beside the checkpoint"
    if foreign is not None:
        return _remainder(directory, State.KEPT, nbytes, foreign)
    if aside and not exists(destination):
        whose += f"; its `{ASIDE}` is the checkpoint that was at the destination, which is put back"
    if leftover.resumable:
        whose += "; the run can be resumed as long as this is there"
    return _remainder(directory, State.DEAD, nbytes, whose)


def _foreign(leftover: LeftDirectory, destination: Path) -> str | None:
    """Reason why a directory may hold more than a run's files; None if it holds only those."""
    names, run = sorted(os.listdir(leftover.directory)), (leftovers.RUN, f"{leftovers.RUN}.new")
    record = beside(destination).name
    own = (record, f"{record}.tmp")  # whole, or being written
    others = [name for name in names if not _IN_DIRECTORY.fullmatch(name) and name not in own]
    if others:
        return f"holds `{others[0]}`, which no run put there"
    if leftover.owner is None and any(name not in run for name in names):
        return f"has no {leftovers.RUN} that names a run"
    return None


def _locks(destination: Path, lock: FileLock) -> Iterator[RemainderEntry]:
    for path in (lock_of(destination), *sorted(named(destination, "lock-[0-9a-f]{8}"))):
        sign = read_sign(path)
        if sign is None:
            continue
        nbytes = os.lstat(path).st_size
        if _is_foreign(path, sign):
            yield _remainder(path, State.KEPT, nbytes, "is not a lock of a run")
            continue
        life = lock.judge(sign)
        state = State.DEAD if life.ended else State.LIVE
        yield _remainder(path, state, nbytes, f"of {who(sign.owner)}, {last_sign(life)}")


def _is_foreign(path: Path, sign: Sign | None) -> bool:
    """True if a file has content that names no run."""
    return sign is not None and sign.owner is None and (not path.is_file() or path.stat().st_size > 0)


def _parts(destination: Path) -> Iterator[RemainderEntry]:
    """Yield the parts of shards: they wait for other shards and for `commit`, even without a living run."""
    for path in sorted(named(destination, "parts(?:-[0-9a-f]{16})?")):
        why = "parts that shards have written; `commit` publishes them"
        if not (path.name.endswith("-parts") and exists(path / HEAD)):
            why = "a directory of parts that a shard was making or removing"
        yield _remainder(path, State.KEPT, _size(path), why)


def _size(path: Path) -> int:
    """Bytes of a directory's files without other hard links. Does not follow links."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a living run removes files
                status = os.lstat(os.path.join(directory, name))
                total += status.st_size if status.st_nlink == 1 else 0
    return total
