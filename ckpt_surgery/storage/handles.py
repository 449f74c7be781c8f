"""A bounded number of open handles, such as those of arrays."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any


class Handles:
    """Handles by name, opened on demand; the least recently used ones are dropped. Thread-safe."""

    def __init__(self, open_one: Callable[[str], Any], most: int):
        self._open_one = open_one
        self._most = most
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> Any:
        """The handle of that name. Raises what opening it raises."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
            handle = self._kept[name] = self._open_one(name)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return handle

    def clear(self) -> None:
        """Drop every handle."""
        with self._lock:
            self._kept.clear()
