"""The first bytes of objects, which are asked for again and again while a checkpoint is opened: read once.

Detection looks at the beginning of a file, and so do headers and small documents. One request brings all that
is asked for there; `prefetch` brings the beginnings of many objects at the same time.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable

from ckpt_surgery.storage.store import Range, Stat
from ckpt_surgery.storage.stores import store_of

HEAD_BYTES = 64 << 10
"""Number of bytes at the beginning of an object that are read together."""
KEPT_BYTES = 64 << 20
"""Total size of what is kept; what was used least recently is dropped."""


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
            Range(store_of(url)[1], 0, min(HEAD_BYTES, stat.size), stat.version) for url, stat in wanted
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


HEADS = Heads()
"""The heads that this process keeps."""
