"""What dead runs left beside a destination: listed, and removed only where that harms nobody.

Removed is what a run of this tool made, by its name and by what is in it, whose run has ended. A checkpoint
that a run moved aside goes back to its place, or stays where it is if something else took that place.
"""

import contextlib
import enum
import os
import re
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.heartbeat import Life, Sign, beating, judge, read, remove_file
from ckpt_surgery.engine.staging.leftovers import Leftover
from ckpt_surgery.engine.staging.locks import acquire, last_sign, release, who
from ckpt_surgery.engine.staging.owners import Owner, this_process
from ckpt_surgery.engine.staging.publishing import ASIDE
from ckpt_surgery.storage.paths import exists
from ckpt_surgery.storage.record_files import beside

_OWN = re.compile(
    r"\.(.+)\.ckpt-surgery-(?:[0-9a-f]{16}|lock(?:-[0-9a-f]{8})?|parts(?:-[0-9a-f]{16}|\.lock)?)"
)
"""Names that runs give to what they make beside a destination, whose name is the group."""
_IN_DIRECTORY = re.compile(r"journal-.*\.jsonl|publishing-[0-9]+|result|old|run\.json(?:\.new)?")
"""Names of what runs put into a temporary directory, but for a record."""


_PROBE = re.compile(r"\.ckpt-surgery-lock-[0-9a-f]{8}$")
"""Ends the name of a short-lived file beside a lock."""


class State(enum.StrEnum):
    """Whether something may be removed."""

    DEAD = "dead"
    """Its run has ended: it can be removed."""
    LIVE = "live"
    """Its run may still be going on."""
    KEPT = "kept"
    """It is of use, or not known to be a run's: it is never removed."""


@dataclass(frozen=True)
class Remainder:
    """A file or directory that a run left beside a destination."""

    path: Path
    state: State
    nbytes: int
    """Bytes that removing it frees; files that are hard links of others count nothing."""
    note: str
    """Whose it is, or why it stays, as a clause."""
    removed: bool = False
    """Whether it is gone now."""


def destinations_at(path: Path) -> list[Path]:
    """The path and, where it is a directory, every destination in it that a run has left something for."""
    found = {path: None}
    if path.is_dir():
        with os.scandir(path) as entries:
            names = sorted(match[1] for match in map(_OWN.fullmatch, (e.name for e in entries)) if match)
        found |= dict.fromkeys(path / name for name in names)
    return list(found)


def list_remainders(destination: Path) -> list[Remainder]:
    """Everything that runs left beside a destination. Raises OSError."""
    if not destination.parent.is_dir():
        return []
    lock = lock_of(destination)
    found = leftovers.leftovers(destination, lock, "")
    return [
        *(_of_directory(one, destination) for one in found),
        *_locks(destination, lock),
        *_parts(destination),
    ]


def remove_remainders(destination: Path) -> list[Remainder]:
    """Remove what dead runs left beside a destination, holding its lock; list everything that was there.

    Raises OSError where something cannot be removed.
    """
    listed = list_remainders(destination)
    lock = lock_of(destination)
    if not any(one.state is State.DEAD for one in listed) or _is_foreign_lock(lock):
        return listed
    owner = this_process(secrets.token_hex(8))
    try:
        taken = acquire(lock, owner)
    except DestinationError:  # a run has begun meanwhile
        return [replace(one, state=_STILL[one.state]) for one in listed]
    try:
        with beating((lock,), owner.run):
            found = leftovers.leftovers(destination, lock, taken.ended)
            leftovers.put_back([one for one in found if _foreign(one, destination) is None], destination)
            _remove(found, destination)
            for one in listed:
                if one.state is State.DEAD and one.path != lock:
                    _remove_lock(one.path, owner)
    finally:
        release(lock, owner)
    return [replace(one, removed=one.state is State.DEAD and not exists(one.path)) for one in listed]


_STILL = {State.DEAD: State.LIVE, State.LIVE: State.LIVE, State.KEPT: State.KEPT}
"""What things are beside a destination whose lock a run has taken."""


def _remove_lock(path: Path, owner: Owner) -> None:
    """Remove a lock of parts by taking it over, or a file that was to become a lock."""
    if path.name.endswith(".lock"):
        with contextlib.suppress(DestinationError):  # a run has taken it meanwhile
            acquire(path, owner)
            release(path, owner)
    elif _PROBE.search(path.name):
        remove_file(path)


def _remove(found: list[Leftover], destination: Path) -> None:
    for one in found:
        if _of_directory(one, destination).state is State.DEAD:
            leftovers.remove(one.directory)


# --- temporary directories --------------------------------------------------------------------------------


def _of_directory(one: Leftover, destination: Path) -> Remainder:
    nbytes = _size(one.directory)
    if not one.life.ended:
        return Remainder(one.directory, State.LIVE, nbytes, _whose(one.sign, one.life))
    foreign = _foreign(one, destination)
    if foreign is not None:
        return Remainder(one.directory, State.KEPT, nbytes, foreign)
    aside = exists(one.directory / ASIDE)
    if aside and exists(destination) and not one.published:
        why = f"holds, as `{ASIDE}`, a checkpoint that a run moved aside; something else is in its place now"
        return Remainder(one.directory, State.KEPT, nbytes, why)
    notes = [_whose(one.sign, one.life)]
    if aside and not exists(destination):
        notes.append(f"its `{ASIDE}` is the checkpoint that was at the destination, which is put back")
    if one.resumable:
        notes.append("the run can be resumed as long as this is there")
    return Remainder(one.directory, State.DEAD, nbytes, "; ".join(notes))


def _foreign(one: Leftover, destination: Path) -> str | None:
    """Why a directory is not known to be a run's alone; None where it is."""
    with os.scandir(one.directory) as entries:
        names = sorted(entry.name for entry in entries)
    others = [
        name for name in names if not _IN_DIRECTORY.fullmatch(name) and name != beside(destination).name
    ]
    if others:
        return f"holds `{others[0]}`, which no run put there"
    if one.sign.owner is None and any(name not in (leftovers.RUN, f"{leftovers.RUN}.new") for name in names):
        return f"has no {leftovers.RUN} that names a run"
    return None


# --- locks and parts --------------------------------------------------------------------------------------


def _locks(destination: Path, lock: Path) -> Iterator[Remainder]:
    parts_lock = destination.with_name(f".{destination.name}.ckpt-surgery-parts.lock")
    for path in (lock, parts_lock, *sorted(_beside(destination, "lock-[0-9a-f]{8}"))):
        sign = read(path)
        if sign is None:
            continue
        if _is_foreign(sign):
            yield Remainder(path, State.KEPT, sign.found.st_size, "is not a lock of a run")
            continue
        life = judge(sign, lock)
        state = State.DEAD if life.ended else State.LIVE
        yield Remainder(path, state, sign.found.st_size, _whose(sign, life))


def _is_foreign_lock(lock: Path) -> bool:
    sign = read(lock)
    return sign is not None and _is_foreign(sign)


def _is_foreign(sign: Sign) -> bool:
    """Whether a file is neither empty nor names a run."""
    regular = stat.S_ISREG(sign.found.st_mode)
    return not regular or (sign.owner is None and sign.found.st_size > 0)


def _parts(destination: Path) -> Iterator[Remainder]:
    """The parts of shards, which wait for other shards and for `commit`, whoever runs now."""
    for path in sorted(_beside(destination, "parts(?:-[0-9a-f]{16})?")):
        why = "parts that shards have written; `commit` publishes them"
        if not path.name.endswith("-parts"):
            why = "a directory of parts that a shard was making or removing"
        yield Remainder(path, State.KEPT, _size(path), why)


def _beside(destination: Path, ending: str) -> Iterator[Path]:
    pattern = re.compile(re.escape(f".{destination.name}.ckpt-surgery-") + ending)
    with os.scandir(destination.parent) as entries:
        yield from [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]


# --- texts and sizes --------------------------------------------------------------------------------------


def _whose(sign: Sign, life: Life) -> str:
    return f"of {who(sign.owner)}, {last_sign(life)}" if sign.found.st_mtime else f"of {who(sign.owner)}"


def _size(path: Path) -> int:
    """Bytes of a directory's files that have no other name. Follows no link."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a living run removes files
                found = os.lstat(os.path.join(directory, name))
                total += found.st_size if found.st_nlink == 1 else 0
    return total
