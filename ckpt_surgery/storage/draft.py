"""A checkpoint that is being written to an object store, as a store of its own.

Data goes to its place below the destination at once, where nothing refers to it yet. The documents that make
the checkpoint readable are held in memory until it is published. What a draft shows is exactly what its run
wrote, so that it can be opened and verified like any checkpoint before anybody else can see it.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

from ckpt_surgery.storage.failures import changed, missing
from ckpt_surgery.storage.store import Buffer, ByteRange, Condition, Only, Stat, Store

OWN = ".ckpt-surgery/"
"""Prefix below a destination under which runs keep what is theirs until they have published."""


def scheme_of_draft(run: str) -> str:
    """The scheme of the URL of a run's draft."""
    return f"draft+{run}"


class UnpublishedStore:
    """Objects that one run has written and nobody else sees yet. Safe to use from several threads.

    Names are relative to the destination. Data whose name is taken by an object of an older checkpoint waits
    under the run's own prefix until the older one is replaced.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        run: str,
        taken: Set[str],
        written: Mapping[str, Stat],
        check: Callable[[], None],
    ):
        """`prefix`: the destination's name in the store. `taken`: names of the older checkpoint's objects.
        `written`: objects that this run, or workers for it, put earlier, by the names that they lie under
        below the destination. `check` is called before each put, and raises where the run must end."""
        self.url = f"{scheme_of_draft(run)}://draft"
        self.store = store
        """The store that the data lies in."""
        self._prefix = prefix
        self._waiting = f"{OWN}{run}/data/"
        """Prefix below the destination of data whose names are taken."""
        self.data = {name.removeprefix(self._waiting): stat for name, stat in written.items()}
        """The objects that are no documents."""
        self.places = {name.removeprefix(self._waiting): name for name in written}
        """Present place of each object of data, below the destination."""
        self.documents: dict[str, bytes] = {}
        """Objects put while `finishing`, in that order."""
        self.finishing = False
        """Whether what is put from now on is a document."""
        self.held = set(taken)
        """Names of data that waits under the run's own prefix until publication."""
        self.holds_all = False
        """Whether all data waits: for formats whose readers take what lies there for data of the older."""
        self._check = check
        self._lock = threading.Lock()

    def walk(self, prefix: str = "") -> Mapping[str, Stat]:
        with self._lock:
            stats = self.data | {name: _stat(data) for name, data in self.documents.items()}
        return {name: stats[name] for name in sorted(stats) if name.startswith(prefix)}

    def names_in(self, prefix: str = "") -> tuple[Mapping[str, Stat], Sequence[str]]:
        stats = self.walk(prefix)
        here = {name: stat for name, stat in stats.items() if "/" not in name[len(prefix) :]}
        below = {prefix + name[len(prefix) :].split("/")[0] + "/" for name in stats if name not in here}
        return here, sorted(below)

    def stat(self, name: str) -> Stat | None:
        """Status of one object; None if this run did not write it."""
        with self._lock:
            if name in self.documents:
                return _stat(self.documents[name])
            return self.data.get(name)

    def now(self) -> int:
        return self.store.now()

    def read(self, name: str, start: int = 0, stop: int | None = None, version: str | None = None) -> bytes:
        document = self.documents.get(name)
        if document is None:
            place, noted = self._noted(name)
            return self.store.read(place, start, stop, version or noted.version)
        if version not in (None, _stat(document).version) or (stop or 0) > len(document):
            raise changed(f"{self.url}/{name}")
        return document[start:stop]

    def read_many(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range; those of data are read together, in the versions that this run wrote."""
        held, placed = dict(self.documents), []
        for part in ranges:
            if part.name not in held:
                place, noted = self._noted(part.name)
                placed.append(ByteRange(place, part.start, part.stop, part.version or noted.version))
        data = iter(self.store.read_many(placed))
        return [
            self.read(r.name, r.start, r.stop, r.version) if r.name in held else next(data) for r in ranges
        ]

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        """Write an object of data to its place, or hold a document, of which no other run knows."""
        if not self.finishing:
            place = self._new_place(name)
            return self._note(name, place, self.store.put(f"{self._prefix}/{place}", data, only))
        assert only is Only.ANY
        with self._lock:
            self.documents[name] = bytes(data)
            return _stat(self.documents[name])

    def upload(self, name: str, file: Path, only: Condition = Only.ANY) -> Stat:
        if self.finishing:
            return self.put(name, file.read_bytes(), only)
        place = self._new_place(name)
        return self._note(name, place, self.store.upload(f"{self._prefix}/{place}", file, only))

    def copies(self, source: str, size: int) -> bool:
        return self.store.copies(source, size)

    def copy(self, source: str, name: str) -> None:
        """Copy an object of the store, given by its URL, as data."""
        place = self._new_place(name)
        self.store.copy(source, f"{self._prefix}/{place}")
        stat = self.store.stat(f"{self._prefix}/{place}")
        if stat is None:
            raise missing(f"{self.store.url}/{self._prefix}/{place}")
        self._note(name, place, stat)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects of this draft; others stay as they are."""
        with self._lock:
            chosen = set(names)
            for name in chosen & self.documents.keys():
                del self.documents[name]
            data = sorted(chosen & self.data.keys())
            places = [f"{self._prefix}/{self.places[name]}" for name in data]
        self.store.delete(places)
        with self._lock:
            for name in data:
                del self.data[name], self.places[name]

    def _note(self, name: str, place: str, stat: Stat) -> Stat:
        with self._lock:
            self.data[name], self.places[name] = stat, place
        return stat

    def _new_place(self, name: str) -> str:
        self._check()
        return f"{self._waiting}{name}" if self.holds_all or name in self.held else name

    def _noted(self, name: str) -> tuple[str, Stat]:
        """Name in the store of an object of data, and its status as this run wrote it."""
        with self._lock:
            if name not in self.places:
                raise missing(f"{self.url}/{name}")
            return f"{self._prefix}/{self.places[name]}", self.data[name]


def _stat(document: bytes) -> Stat:
    return Stat(len(document), hashlib.sha1(document, usedforsecurity=False).hexdigest())
