"""`clean`: list or remove files that runs left beside a destination."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.documents import Document, Versioned
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.engine.staging.cleaning import (
    Remainder,
    State,
    destinations_at,
    list_remainders,
    remove_remainders,
)
from ckpt_surgery.inputs.request import checked_path
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.paths import absolute, path_text
from ckpt_surgery.system.signals import interruptible


@dataclass(frozen=True)
class Cleaned:
    """Files and directories that runs left beside a path, and whether each was removed."""

    path: str
    """Path as the caller gave it."""
    remainders: tuple[Remainder, ...]
    """Everything that runs left, including living runs."""

    @property
    def dead(self) -> tuple[Remainder, ...]:
        """Remainders of dead runs: they may be removed, or were."""
        return tuple(remainder for remainder in self.remainders if remainder.state is State.DEAD)


def clean(path: PathLike, *, remove: bool = False) -> Cleaned:
    """List what runs left beside a destination, or in a directory of several; remove what dead runs left.

    Without `remove` nothing changes. Files of living runs stay, and so do those that no run of this tool
    made. A checkpoint that a run moved aside before it died is put back. Raises UsageError for a URL, and
    StorageError where something cannot be listed or removed.
    """
    given = checked_path(path)
    if is_url(given):
        raise UsageError(
            f"{shown(given)}: only paths are cleaned",
            hint="The next run that writes to this URL removes what dead runs left there.",
        )
    act = remove_remainders if remove else list_remainders
    remainders: list[Remainder] = []
    with interruptible():
        start = absolute(Path(given))
        with storage_errors(start):
            destinations = destinations_at(start)
        for destination in destinations:
            with storage_errors(destination):
                remainders += act(destination)
    return Cleaned(given, tuple(remainders))


@dataclass(frozen=True)
class RemainderEntry(Document):
    """Something that a run left."""

    path: str
    """Where it is."""
    state: Literal["dead", "live", "kept"]
    """Whether its run has ended; `kept`: it is of use, or not known to be a run's."""
    bytes: int
    """Size that removing it frees."""
    note: str
    """Whose it is, or why it stays."""
    removed: bool
    """Whether it was removed."""


@dataclass(frozen=True, kw_only=True)
class CleanDocument(Versioned):
    """`clean`."""

    path: str
    """As it was given."""
    remainders: tuple[RemainderEntry, ...]
    """Files and directories that runs left beside it or in it."""


def clean_document(cleaned: Cleaned) -> CleanDocument:
    """The JSON document of `clean`."""
    entries = (
        RemainderEntry(path_text(one.path), one.state.value, one.nbytes, one.note, one.removed)
        for one in cleaned.remainders
    )
    return CleanDocument(path=cleaned.path, remainders=tuple(entries))
