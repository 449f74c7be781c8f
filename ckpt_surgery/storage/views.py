"""Listings of object stores, as one command sees them: each is requested once.

A store has no directories. What is called so here is a prefix that objects have: `s3://bucket/run` is a
directory where there is an object `run/…`. Listings are kept until `forget` is called, where a command begins
and where it looks whether something has changed, so that everything that a command decides and reads is of
one state; reads name the version that was listed.

What runs keep for themselves until they have published, in `.ckpt-surgery/` below their destinations, is no
part of a checkpoint: it is shown only to those who ask for that directory.

The first bytes of objects are asked for again and again while a checkpoint is opened: detection looks at the
beginning of a file, and so do headers and small documents. One request brings all that is asked for there;
`prefetch` brings the beginnings of many objects at the same time.
"""

import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ckpt_surgery.core.urls import is_url
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.store import ByteRange, Stat, store_of

T = TypeVar("T")

HEAD_BYTES = 64 << 10
"""Number of bytes at the beginning of an object that are read together."""
KEPT_BYTES = 64 << 20
"""Total size of what is kept; what was used least recently is dropped."""


class View:
    """Listings and sizes of objects by URL. Safe to use from several threads."""

    def __init__(self) -> None:
        self._whole: dict[str, Mapping[str, Stat]] = {}
        """All objects below a URL, by their URLs, sorted."""
        self._sorted: dict[str, Sequence[str]] = {}
        self._of_runs: set[str] = set()
        """The URLs of listings in which are objects that runs keep for themselves."""
        self._levels: dict[str, tuple[Mapping[str, Stat], Sequence[str]]] = {}
        """The objects right below a URL, and the URLs of the directories there."""
        self._stats: dict[str, Stat | None] = {}
        self._lock = threading.RLock()

    def stat(self, url: str) -> Stat | None:
        """Status of an object; None if there is none."""
        with self._lock:
            for root in _ancestors(url):
                if root in self._whole:
                    return self._whole[root].get(url)
                if root == _parent(url) and root in self._levels:
                    return self._levels[root][0].get(url)
            return _kept(self._stats, url, _stat)

    def is_directory(self, url: str) -> bool:
        """Whether there are objects below a URL."""
        with self._lock:
            parent = _parent(url)
            if parent in self._levels and self._root_of(url) is None:
                return url in self._levels[parent][1]
            if self._is_above(url):
                return True
            return bool(self._below(url))

    def below(self, url: str) -> Mapping[str, Stat]:
        """Objects below a URL, by their paths relative to it."""
        with self._lock:
            whole = self._whole[self._root_of(url) or self._listed(url)]
            return {name[len(url) + 1 :]: whole[name] for name in self._below(url)}

    def level(self, url: str) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the objects, and of the directories, right below a URL, sorted."""
        with self._lock:
            if self._root_of(url) is None and self._is_above(url):
                level = _kept(self._levels, url, _level)
                files = sorted(name[len(url) + 1 :] for name in level[0])
                return files, [name[len(url) + 1 :] for name in level[1] if not _is_hidden(f"{name}/", url)]
            files, directories = [], set[str]()
            for name in self._below(url):
                first, slash, _ = name[len(url) + 1 :].partition("/")
                (directories.add if slash else files.append)(first)
            return files, sorted(directories)

    def forget(self) -> None:
        """Ask anew from now on."""
        with self._lock:
            for kept in (self._whole, self._sorted, self._of_runs, self._levels, self._stats):
                kept.clear()

    def _below(self, url: str) -> Sequence[str]:
        """The URLs of all objects below a URL, sorted."""
        root = self._root_of(url) or self._listed(url)
        names, first, after = self._sorted[root], f"{url}/", f"{url}0"  # "0" follows "/"
        below = names[bisect_left(names, first) : bisect_left(names, after)]
        if root not in self._of_runs:
            return below
        return [name for name in below if not _is_hidden(name, url)]

    def _root_of(self, url: str) -> str | None:
        """The URL of a whole listing that a URL lies in."""
        return next((root for root in (url, *_ancestors(url)) if root in self._whole), None)

    def _is_above(self, url: str) -> bool:
        """Whether something below a URL was listed and found, so that only the rest of it is not known."""
        return any(names and root.startswith(f"{url}/") for root, names in self._sorted.items())

    def _listed(self, url: str) -> str:
        whole = _kept(self._whole, url, _whole)
        self._sorted[url] = sorted(whole)
        if any(f"/{OWN}" in name for name in whole):
            self._of_runs.add(url)
        return url


class Heads:
    """First bytes of objects by URL and version. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def read(self, url: str, stat: Stat, offset: int, length: int) -> bytes | None:
        """These bytes of an object where they lie in its head, which is read now if it was not before."""
        if offset + length > min(HEAD_BYTES, stat.size):
            return None
        head = self._get(url, stat)
        if head is None:
            store, name = store_of(url)
            head = store.read(name, 0, min(HEAD_BYTES, stat.size), stat.version)
            self._keep(url, stat, head)
        return head[offset : offset + length]

    def prefetch(self, objects: Iterable[tuple[str, Stat]]) -> None:
        """Read the heads of objects of one store that are not kept, all at the same time."""
        wanted = [(url, stat) for url, stat in objects if stat.size and self._get(url, stat) is None]
        if not wanted:
            return
        store, _ = store_of(wanted[0][0])
        ranges = [
            ByteRange(store_of(url)[1], 0, min(HEAD_BYTES, stat.size), stat.version) for url, stat in wanted
        ]
        for (url, stat), head in zip(wanted, store.read_many(ranges), strict=True):
            self._keep(url, stat, head)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0

    def _get(self, url: str, stat: Stat) -> bytes | None:
        with self._lock:
            head = self._kept.get((url, stat.version))
            if head is not None:
                self._kept.move_to_end((url, stat.version))
            return head

    def _keep(self, url: str, stat: Stat, head: bytes) -> None:
        with self._lock:
            old = self._kept.pop((url, stat.version), b"")
            self._kept[url, stat.version] = head
            self._nbytes += len(head) - len(old)
            while self._nbytes > KEPT_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self._nbytes -= len(dropped)


VIEW = View()
"""The view of this process."""
HEADS = Heads()
"""The heads that this process keeps."""


def forget() -> None:
    """Ask stores anew from now on: called where a command begins, and where changes are looked for."""
    VIEW.forget()
    HEADS.clear()


def prefetch(directory: str, names: Iterable[str]) -> None:
    """Read the beginnings of objects, which are about to be opened, at the same time; nothing on disk.

    What is not there is left out: opening it tells.
    """
    if is_url(directory):
        stats = ((url, VIEW.stat(url)) for url in (os.path.join(directory, n) for n in names))
        HEADS.prefetch((url, stat) for url, stat in stats if stat is not None)


def _kept(kept: dict[str, T], url: str, ask: Callable[[str], T]) -> T:
    if url not in kept:
        kept[url] = ask(url)
    return kept[url]


def _stat(url: str) -> Stat | None:
    store, name = store_of(url)
    return store.stat(name)


def _whole(url: str) -> Mapping[str, Stat]:
    store, name = store_of(url)
    return {f"{store.url}/{key}": stat for key, stat in store.walk(_prefix(name)).items()}


def _level(url: str) -> tuple[Mapping[str, Stat], Sequence[str]]:
    store, name = store_of(url)
    files, prefixes = store.names_in(_prefix(name))
    here = {f"{store.url}/{key}": stat for key, stat in files.items()}
    return here, sorted(f"{store.url}/{prefix.rstrip('/')}" for prefix in prefixes)


def _is_hidden(name: str, url: str) -> bool:
    """Whether an object is one that runs keep for themselves, and not what is asked for below a URL."""
    return f"/{OWN}" in name and f"/{OWN}" not in f"{url}/"


def _prefix(name: str) -> str:
    return f"{name}/" if name else ""


def _parent(url: str) -> str:
    return url.rpartition("/")[0]


def _ancestors(url: str) -> Iterable[str]:
    """The URLs of the directories that hold a URL, innermost first, down to its bucket."""
    parent = _parent(url)
    while not parent.endswith("/"):
        yield parent
        parent = _parent(parent)
