"""The directory of parts in an object store.

Only its documents lie there. Data is put below the destination's own prefix from the beginning, under names
that each attempt has for itself.
"""

from collections.abc import Callable, Iterable

from ckpt_surgery.engine.parts import HEAD, Head, head_bytes
from ckpt_surgery.storage.store import ConditionFailed, Only, store_of


class ObjectParts:
    """Parts in an object store: documents are objects that are created only if none has their name."""

    def __init__(self, url: str):
        parent, _, name = url.rpartition("/")
        self.place = f"{parent}/.{name}.ckpt-surgery-parts"
        self.work = url
        self._store, self._prefix = store_of(self.place)

    def begin(self, head: Head, plan: bytes, create: Callable[[str], None]) -> None:
        """Put the plan under a unique name, and then the head."""
        create(self.work)
        self.put(head.plan, plan)
        if not self.put(HEAD, head_bytes(head)):
            self._store.delete([f"{self._prefix}/{head.plan}"])

    def read(self, name: str) -> bytes | None:
        """The content of an object."""
        stat = self._store.stat(f"{self._prefix}/{name}")
        return None if stat is None else self._store.read(f"{self._prefix}/{name}")

    def put(self, name: str, document: bytes) -> bool:
        """Create an object; False if there is one already."""
        try:
            self._store.put(f"{self._prefix}/{name}", document, Only.ABSENT)
        except ConditionFailed:
            return False
        return True

    def sync(self, written: Iterable[str]) -> None:
        """Do nothing: objects are durable once put."""

    def clear(self) -> None:
        """Remove the head, and then everything else."""
        self._store.delete([f"{self._prefix}/{HEAD}"])
        self._store.delete(sorted(self._store.walk(f"{self._prefix}/")))
