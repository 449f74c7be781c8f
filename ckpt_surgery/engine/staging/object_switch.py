"""Publish in a store: switch from the older checkpoint to the new one, by a journal that any run can finish.

All data is there before. One object, the marker, makes a checkpoint complete: the older one's is deleted
before any of its other objects changes, the new one's is put last. A process that dies in between leaves a
destination without marker and the journal, from which the next run goes on to the same end. Where one item of
a step is written, the files of the step that list its items are replaced after the item's marker.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from ckpt_surgery.core.errors import DestinationError, SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.staging.object_leftovers import ObjectJournal
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import OBJECT_PIECE
from ckpt_surgery.storage.store import Condition, ConditionFailed, Only, Stat, Store
from ckpt_surgery.system.threads import run_requests

COMMIT_FILE = "commit_success.txt"
"""Name of the object by which Orbax recognizes a complete checkpoint in an object store."""
_ENTRIES = (
    *("zarr.json", ".zgroup", "manifest.ocdbt", "_METADATA", "_CHECKPOINT_METADATA", "checkpoint"),
    "model.safetensors.index.json",
)
"""Documents without which a checkpoint that has no commit file cannot be opened, the last read first."""
_MANIFEST = "manifest.ocdbt"


def marker_of(names: Iterable[str]) -> str | None:
    """Find the object that completes a checkpoint, by name; None if no name tells.

    It is the commit file of Orbax, the uppermost of several, else the document that readers begin with.
    """
    there = set(names)
    commits = [name for name in there if _is_called(name, COMMIT_FILE)]
    if commits:
        return min(commits, key=lambda name: (name.count("/"), name))
    return next((name for name in _ENTRIES if name in there), None)


def _is_called(name: str, base: str) -> bool:
    return name.rpartition("/")[2] == base


def in_order(documents: Mapping[str, bytes], token: str) -> dict[str, bytes]:
    """Sort documents for uploading: manifests after the nodes they name, the marker last.

    A commit file gets the token, by which its writer recognizes it if the response to its request was lost.
    """
    if not documents:
        return {}
    marker = marker_of(documents) or list(documents)[-1]
    others = [name for name in documents if name != marker]
    others.sort(key=lambda name: (_is_called(name, _MANIFEST), -name.count("/")))
    mark = f"\n{token}\n".encode("ascii") if _is_called(marker, COMMIT_FILE) else b""
    return {name: documents[name] for name in others} | {marker: documents[marker] + mark}


class Switch:
    """Executes the journal of a publication."""

    def __init__(self, store: Store, prefix: str, journal: ObjectJournal, confirm: Callable[[], None]):
        """`confirm` raises DestinationError if this process no longer holds the destination's lock."""
        self._store = store
        self._prefix = prefix
        self._journal = journal
        self._confirm = confirm

    def complete(self) -> None:
        """Complete the new checkpoint. Can be repeated from the beginning, wherever it was interrupted.

        Raises DestinationError if another process has written meanwhile, StorageError.
        """
        journal = self._journal
        if not self._is_done():
            self._retire()
            waiting = ((name, at) for name, at in journal.waiting.items() if name != journal.marker)
            run_requests(partial(self._bring, name, at) for name, at in waiting)
            documents = [name for name in journal.documents if name != journal.marker]
            manifests = [name for name in documents if _is_called(name, _MANIFEST)]
            others = [name for name in documents if name not in manifests]
            run_requests(partial(self._put, name, journal.documents[name]) for name in others)
            for name in manifests:
                self._put(name, journal.documents[name])
            self._confirm()
            self._commit()
        for name, data in journal.amended.items():
            self._write(name, data, journal.around[name])

    def clear(self) -> None:
        """Delete objects that only the older checkpoint had. Raises StorageError."""
        kept = {*self._journal.documents, *self._journal.data}
        self._store.delete([self._name(name) for name in self._journal.before if name not in kept])

    def _is_done(self) -> bool:
        """True if the marker exists, and is not the older checkpoint's."""
        marker = self._journal.marker
        stat = self._store.stat(self._name(marker))
        if stat is None or stat.version == self._journal.before.get(marker):
            return False
        if marker in self._journal.documents:
            return self._holds(marker, self._journal.documents[marker], stat)
        waiting = self._store.stat(self._name(self._journal.waiting[marker]))
        return waiting is None or waiting.size == stat.size  # what waited is deleted after it was brought

    def _retire(self) -> None:
        """Delete the older checkpoint's marker, but nothing that another process put in its place.

        A commit file is first replaced, if its version is unchanged, by one that names this run: of two
        processes only one can do that, and the older checkpoint is still complete.
        """
        before = self._journal.before
        marker = marker_of(before)
        if marker is None:  # it is unknown: all unchanged objects go
            there = self._store.walk(f"{self._prefix}/") if before else {}
            stats = {name: there.get(self._name(name)) for name in before}
            old = [name for name, stat in stats.items() if stat is not None and stat.version == before[name]]
            self._store.delete([self._name(name) for name in old])
            return
        stat = self._store.stat(self._name(marker))
        if stat is None:
            return
        claim = f"replaced by {self._journal.run}\n".encode("ascii")
        if stat.version != before[marker]:
            if not self._holds(marker, claim, stat):
                raise self._changed(marker)
        elif _is_called(marker, COMMIT_FILE):
            self._write(marker, claim, stat.version)
        self._store.delete([self._name(marker)])

    def _bring(self, name: str, place: str) -> None:
        """Copy data to its final name, within the store if it can, else through a temporary file."""
        source = self._name(place)
        url, stat = f"{self._store.url}/{source}", self._store.stat(source)
        size = 0 if stat is None else stat.size
        if self._store.copies(url, size):
            self._store.copy(url, self._name(name))
            return
        with tempfile.NamedTemporaryFile() as file, storage_errors(Path(file.name)):
            for start in range(0, size, OBJECT_PIECE):
                file.write(self._store.read(source, start, min(start + OBJECT_PIECE, size)))
            file.flush()
            self._store.upload(self._name(name), Path(file.name))

    def _put(self, name: str, data: bytes) -> None:
        before = self._journal.before.get(name)
        there = None if before is None else self._store.stat(self._name(name))
        self._write(name, data, Only.ABSENT if there is None else before or "")

    def _commit(self) -> None:
        marker = self._journal.marker
        if marker in self._journal.documents:
            self._write(marker, self._journal.documents[marker], Only.ABSENT)
        elif self._store.stat(self._name(marker)) is not None:
            raise self._changed(marker)
        else:
            self._bring(marker, self._journal.waiting[marker])

    def _write(self, name: str, data: bytes, only: Condition) -> None:
        """Write an object conditionally; if the condition fails, it must hold the same data already."""
        try:
            self._store.put(self._name(name), data, only)
        except ConditionFailed as error:
            stat = self._store.stat(self._name(name))
            if stat is None or not self._holds(name, data, stat):
                raise self._changed(name) from error

    def _holds(self, name: str, data: bytes, stat: Stat) -> bool:
        if stat.size != len(data):
            return False
        with contextlib.suppress(SourceError):  # it was replaced or deleted at this moment
            return self._store.read(self._name(name), version=stat.version) == data
        return False

    def _name(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _changed(self, name: str) -> DestinationError:
        place = shown(f"{self._store.url}/{self._name(name)}")
        return DestinationError(
            f"{place}: another process has written it while this destination was replaced",
            hint="Look at what is there now; delete it, or what lies below `.ckpt-surgery/` there.",
        )
