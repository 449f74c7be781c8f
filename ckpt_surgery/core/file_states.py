"""Size, time and sample of each file of a checkpoint, and what differs between two moments."""

import json
from collections.abc import Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.text import shown

MOST_FILES = 5
"""Number of changed files that a message names."""


@frozen()
class FileState:
    """Size, time and sample of a file at one moment."""

    size: int
    """Size in bytes."""
    modified: int = 0
    """Time of the last change, in nanoseconds since the epoch; 0 for objects."""
    version: str = ""
    """Version of an object of a store; empty for files."""
    sample: int | None = None
    """CRC-32C of its sample, see `storage.samples`; None where the version of an object tells, and of files
    that may not be read."""


def changes(
    before: Mapping[str, FileState], now: Mapping[str, FileState], times: bool
) -> Sequence[tuple[str, str]]:
    """List the files that differ, each with what has changed. With `times`, a new time counts, too.

    Where both sides are a single file, its name does not count.
    """
    if len(before) == len(now) == 1:
        now = dict(zip(before, now.values(), strict=True))
    changed = ((name, change(before.get(name), now.get(name), times)) for name in sorted({*before, *now}))
    return [(name, what) for name, what in changed if what]


def change(before: FileState | None, now: FileState | None, times: bool) -> str:
    """Say in a few words what has changed of a file; empty if nothing has. None: there is no file."""
    if before is None or now is None:
        return "new" if before is None else "missing"
    if before.size != now.size:
        return f"size {before.size} → {now.size}"
    if before.version != now.version:
        return "version"
    if None not in (before.sample, now.sample) and before.sample != now.sample:
        return "content"
    return "only its time" if times and before.modified != now.modified else ""


def changes_text(changed: Sequence[tuple[str, str]]) -> str:
    """The first changes, for a message."""
    named = [f"`{shown(name)}` ({what})" for name, what in changed[:MOST_FILES]]
    more = [f"and {len(changed) - MOST_FILES} more"] if len(changed) > MOST_FILES else []
    return ", ".join([*named, *more])


def changes_between(before: object, now: object) -> str:
    """Say which files differ between two states that `resuming` wrote as JSON; empty for other texts."""
    try:
        states = [json.loads(str(text))["files"] for text in (before, now)]
        earlier, later = ({name: FileState(*state) for name, state in files.items()} for files in states)
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""
    return changes_text(changes(earlier, later, times=True))
