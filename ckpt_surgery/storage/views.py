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
from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.core.urls import is_url
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.store import ByteRange, Stat, store_of

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
            if _parent(url) in self._levels:
                return self._levels[_parent(url)][0].get(url)
            if url not in self._stats:
                store, name = store_of(url)
                self._stats[url] = store.stat(name)
            return self._stats[url]

    def is_directory(self, url: str) -> bool:
        """Whether there are objects below a URL."""
        with self._lock:
            if _parent(url) in self._levels and self._root_of(url) is None:
                return url in self._levels[_parent(url)][1]
            return self._is_above(url) or bool(self._below(url))

    def below(self, url: str) -> Mapping[str, Stat]:
        """Objects below a URL, by their paths relative to it."""
        with self._lock:
            whole = self._whole[self._root_of(url) or self._listed(url)]
            return {name[len(url) + 1 :]: whole[name] for name in self._below(url)}

    def level(self, url: str) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the objects, and of the directories, right below a URL, sorted."""
        with self._lock:
            if self._root_of(url) is None and self._is_above(url):
                if url not in self._levels:
                    store, name = store_of(url)
                    files_here, prefixes = store.names_in(f"{name}/" if name else "")
                    here = {f"{store.url}/{key}": stat for key, stat in files_here.items()}
                    below = sorted(f"{store.url}/{prefix.rstrip('/')}" for prefix in prefixes)
                    self._levels[url] = here, below
                objects, inner = self._levels[url]
                files = sorted(name[len(url) + 1 :] for name in objects)
                return files, [name[len(url) + 1 :] for name in _visible(inner, url)]
            files, directories = [], set[str]()
            for name in self._below(url):
                first, slash, _ = name[len(url) + 1 :].partition("/")
                (directories.add if slash else files.append)(first)
            return files, sorted(directories)

    def forget(self) -> None:
        """Ask anew from now on."""
        with self._lock:
            for kept in (self._whole, self._sorted, self._levels, self._stats):
                kept.clear()

    def _below(self, url: str) -> Sequence[str]:
        """The URLs of all objects below a URL, sorted."""
        root = self._root_of(url) or self._listed(url)
        names = self._sorted[root]
        below = names[bisect_left(names, f"{url}/") : bisect_left(names, f"{url}0")]  # "0" follows "/"
        return _visible(below, url)

    def _root_of(self, url: str) -> str | None:
        """The URL of a whole listing that a URL lies in."""
        return next((root for root in (url, *_ancestors(url)) if root in self._whole), None)

    def _is_above(self, url: str) -> bool:
        """Whether something below a URL was listed and found, so that only the rest of it is not known."""
        return any(names and root.startswith(f"{url}/") for root, names in self._sorted.items())

    def _listed(self, url: str) -> str:
        if url not in self._whole:
            store, name = store_of(url)
            objects = store.walk(f"{name}/" if name else "")
            self._whole[url] = {f"{store.url}/{key}": stat for key, stat in objects.items()}
            self._sorted[url] = sorted(self._whole[url])
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
        self.prefetch([(url, stat)])
        head = self._get(url, stat)
        return None if head is None else head[offset : offset + length]

    def prefetch(self, objects: Iterable[tuple[str, Stat]]) -> None:
        """Read the heads of objects of one store that are not kept, all at the same time."""
        wanted = [(url, stat) for url, stat in objects if stat.size and self._get(url, stat) is None]
        if not wanted:
            return
        names = [(store_of(url)[1], stat) for url, stat in wanted]
        ranges = [ByteRange(name, 0, min(HEAD_BYTES, stat.size), stat.version) for name, stat in names]
        heads = store_of(wanted[0][0])[0].read_many(ranges)
        for (url, stat), head in zip(wanted, heads, strict=True):
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


def _visible(names: Sequence[str], url: str) -> Sequence[str]:
    """URLs without those of what runs keep for themselves, unless a URL is asked about that is one."""
    return names if f"/{OWN}" in f"{url}/" else [name for name in names if f"/{OWN}" not in f"{name}/"]


def _parent(url: str) -> str:
    return url.rpartition("/")[0]


def _ancestors(url: str) -> Iterable[str]:
    """The URLs of the directories that hold a URL, innermost first, down to its bucket."""
    parent = _parent(url)
    while not parent.endswith("/"):
        yield parent
        parent = _parent(parent)
