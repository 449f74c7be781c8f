"""Temporary directories beside a destination: their content, and reuse or removal of other runs' ones.

A temporary directory `.NAME.ckpt-surgery-RUNID` holds
- `run.json`: whose it is, and what the run does;
- `journal-*.jsonl`: which tasks are done;
- `result/`: what the sink writes, and after an exchange of names the old checkpoint;
- `old`: the old checkpoint during an exchange, on file systems that cannot exchange in one step;
- `publishing-INODE`: an empty file that names the product, from shortly before its publication on.

The run that holds the destination's lock owns all of them. It first renames those of other runs, so that one
that still lives finds nothing at its own name, and neither writes there nor publishes.
"""

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ckpt_surgery.core.file_states import changes_between
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.locks import read_note
from ckpt_surgery.engine.staging.owners import Note, Owner, note_bytes
from ckpt_surgery.engine.staging.syncing import sync_file
from ckpt_surgery.storage.paths import exists, path_text

RUN = "run.json"
RESULT = "result"
ASIDE = "old"
"""Name of the old checkpoint in the temporary directory, on file systems that cannot exchange names."""
OLD_RECORD = "old-record"
"""Name there of the record beside the old checkpoint, while that is replaced."""
_PUBLISHING, _RUN_ID = "publishing-", "[0-9a-f]{16}"


@dataclass(frozen=True)
class Leftover:
    """Unpublished work of an earlier run."""

    where: str
    """Its place, for messages."""
    identity: Mapping[str, str]
    """Identity of its run; empty if that cannot be read."""
    resumable: bool
    """True if it has finished tasks that are not published."""


L = TypeVar("L", bound=Leftover)


def directory_of(destination: Path, run: str) -> Path:
    """The temporary directory of a run."""
    return destination.with_name(f".{destination.name}.ckpt-surgery-{run}")


# --- one's own ------------------------------------------------------------------------------------


def begin(directory: Path, owner: Owner, identity: Mapping[str, str]) -> None:
    """Make a temporary directory. Raises OSError."""
    os.mkdir(directory)
    _describe(directory, owner, identity)
    os.mkdir(directory / RESULT)


def _describe(directory: Path, owner: Owner, identity: Mapping[str, str]) -> None:
    """Write the directory's owner, atomically and durably: a run after a power cut has to know it."""
    written = directory / f"{RUN}.new"
    written.unlink(missing_ok=True)
    with open(written, "xb") as file:
        file.write(note_bytes(Note(owner, dict(identity))))
    sync_file(written)
    os.rename(written, directory / RUN)


def announce(directory: Path, product: os.stat_result) -> None:
    """Record which file or directory is about to be published. Raises OSError.

    A run that dies right after the rename leaves a directory that looks unfinished, and may hold the old
    checkpoint: by this note others see that nothing is left to do.
    """
    (directory / f"{_PUBLISHING}{product.st_ino}").touch()


def journals(directory: Path) -> list[Path]:
    """Paths of the journals that are not empty. Raises OSError."""
    return [path for path in sorted(directory.glob("journal-*.jsonl")) if path.stat().st_size]


def remove(directory: Path) -> None:
    """Remove a temporary directory and its content. Raises OSError.

    The journals come first, so that what is left of it is never resumed; what tells whose it is comes last.
    """
    for path in sorted(directory.iterdir(), key=lambda path: (path.name == RUN, path.suffix != ".jsonl")):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(directory)


def remove_tree(directory: Path) -> None:
    """Remove a directory that another process, or a removal that a signal ended, may be removing, too."""
    shutil.rmtree(directory, ignore_errors=True)
    if exists(directory):
        shutil.rmtree(directory)


# --- others' --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftDirectory(Leftover):
    """A temporary directory of another run."""

    directory: Path
    owner: Owner | None
    """The run that made it, from its run.json."""
    described: int
    """Time of run.json in nanoseconds; without one, that of the directory."""
    published: bool
    """True if its product was published at the destination."""


def leftovers(destination: Path) -> list[LeftDirectory]:
    """List all temporary directories of a destination, newest first. Raises OSError."""
    examined = (_examined(path, destination) for path in named(destination, _RUN_ID))
    return sorted(filter(None, examined), key=lambda leftover: leftover.described, reverse=True)


def named(destination: Path, ending: str) -> list[Path]:
    """List paths that runs made beside a destination and whose names end with a pattern. Raises OSError."""
    pattern = re.compile(re.escape(f".{destination.name}.ckpt-surgery-") + ending)
    with os.scandir(destination.parent) as entries:
        return [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]


def _examined(directory: Path, destination: Path) -> LeftDirectory | None:
    """Examine a temporary directory; None if it is not a directory or was just removed."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(directory).st_mode):
            run = directory / RUN
            described = os.lstat(run if exists(run) else directory).st_ctime_ns
            note, published = read_note(run), is_published(directory, destination)
            resumable, where = bool(journals(directory)) and not published, path_text(directory)
            return LeftDirectory(where, note.identity, resumable, directory, note.owner, described, published)
    return None


def is_published(directory: Path, destination: Path) -> bool:
    """True if what `announce` recorded in a directory is at the destination now. Raises OSError."""
    if not exists(destination):
        return False
    return exists(directory / f"{_PUBLISHING}{os.lstat(destination).st_ino}")


def moved_aside(destination: Path) -> Path | None:
    """Path of the old checkpoint that a run moved aside and did not put back. Raises OSError."""
    if not destination.parent.is_dir():
        return None
    asides = (directory / ASIDE for directory in named(destination, _RUN_ID))
    return next(filter(exists, asides), None)


def put_back(directories: list[LeftDirectory], destination: Path) -> list[str]:
    """Put back an old checkpoint that a run moved aside, if nothing is at the destination.

    Returns a sentence for the user. Raises OSError.
    """
    for leftover in directories:
        aside = leftover.directory / ASIDE
        if exists(aside) and not exists(destination):
            os.rename(aside, destination)
            return [f"put {path_text(destination)} back, which a run had moved aside before it ended"]
    return []


def clear(directories: list[LeftDirectory], destination: Path) -> list[str]:
    """Remove leftovers of other runs. Returns a sentence for each, whether removed or not."""
    for path in named(destination, "lock-[0-9a-f]{8}"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    notices = []
    for place in [leftover.directory for leftover in directories]:
        done, why = f"removed {path_text(place)}", ""
        try:
            place = claim(place, destination)
            remove(place)
        except OSError as error:
            done, why = f"could not remove {path_text(place)}", f" ({error.strerror or error})"
        notices.append(f"{done}, which an unfinished run left behind{why}")
    return notices


def claim(directory: Path, destination: Path) -> Path:
    """Rename another run's temporary directory for removal; returns the new path. Raises OSError."""
    renamed = directory_of(destination, secrets.token_hex(8))
    os.rename(directory, renamed)
    return renamed


# --- resuming -------------------------------------------------------------------------------------


def difference(before: Mapping[str, object], now: Mapping[str, str]) -> tuple[str, str]:
    """First difference of two identities, as the part's name and a reason; both empty if they are equal."""
    name = next((name for name in (*now, *before) if before.get(name) != now.get(name)), "")
    earlier, current = shown(str(before.get(name))), shown(str(now.get(name)))
    changes = changes_between(before.get(name), now.get(name)) if name == "sources" else ""
    reasons = {
        "": "",
        "version": f"version {earlier} wrote it, this is {current}",
        "plan": "it was written with another recipe, other options or another budget of memory",
        "sources": "the sources have changed since it was written" + (f": {changes}" if changes else ""),
    }
    return name, reasons.get(name, f"its {shown(name)} is {earlier}, this run's is {current}")


def take_over(leftover: LeftDirectory, directory: Path, owner: Owner, identity: Mapping[str, str]) -> None:
    """Rename a dead run's directory to this run's, and record the new owner. Raises OSError.

    Until it is described anew, another run sees the dead run in it, and can resume it.
    """
    os.rename(leftover.directory, directory)
    _describe(directory, owner, identity)
    for path in directory.glob(f"{_PUBLISHING}*"):
        path.unlink(missing_ok=True)
    os.makedirs(directory / RESULT, exist_ok=True)
