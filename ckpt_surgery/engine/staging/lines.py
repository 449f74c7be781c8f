"""Storage for the lines of a run's journal: a file, or objects of a store."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.store import Store


@dataclass(frozen=True)
class FileLines:
    """Lines in one file."""

    path: Path

    def read(self) -> bytes:
        """Read all lines. Raises StorageError.

        The last one may be torn, if its process died: it is dropped, from the file too, so that the next line
        is not joined to it.
        """
        with storage_errors(self.path):
            if not self.path.exists():
                return b""
            text = self.path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            if len(whole) < len(text):
                os.truncate(self.path, len(whole))
        return whole

    def add(self, lines: bytes) -> None:
        """Append whole lines. Raises StorageError."""
        with storage_errors(self.path), open(self.path, "ab") as file:
            file.write(lines)


@dataclass(frozen=True)
class ObjectLines:
    """Lines in objects that share a prefix."""

    store: Store
    prefix: str

    def read(self) -> bytes:
        """Read the lines of all objects."""
        directory = self.prefix.rpartition("/")[0]
        names = [name for name in self.store.walk(f"{directory}/") if name.startswith(self.prefix)]
        return b"".join(self.store.read(name) for name in sorted(names))

    def add(self, lines: bytes) -> None:
        """Put one more object with whole lines. Raises StorageError."""
        self.store.put(f"{self.prefix}{secrets.token_hex(8)}.jsonl", lines)


Lines = FileLines | ObjectLines
