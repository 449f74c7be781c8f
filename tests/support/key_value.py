"""A store that is only a key-value store, over a directory, so that several processes can use it.

Names are escaped into flat file names; nothing but whole objects can be written. It is what a bucket is,
without a network: one file for each object, replaced under a lock of the store.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.store import (
    Buffer,
    ByteRange,
    Condition,
    ConditionFailed,
    Only,
    Stat,
    registered,
    store_of,
)


class KeyValueStore:
    """Objects as files of one flat directory. Counts its requests."""

    def __init__(self, url: str, directory: Path):
        self.url = url
        self._directory = directory
        self.requests: list[str] = []
        """What was asked, in order: `read d/0`, `put a`, …"""
        self.read_sizes: list[int] = []
        """Bytes of each object or range that was read."""
        self.put_sizes: list[int] = []
        """Bytes of each object that was put."""

    @contextmanager
    def _request(self, *what: str) -> Iterator[None]:
        """Every request is carried out within this context."""
        self.requests += what
        yield

    def walk(self, prefix: str = "") -> Mapping[str, Stat]:
        with self._request(f"walk {prefix}"):
            return self._all(prefix)

    def names_in(self, prefix: str = "") -> tuple[Mapping[str, Stat], Sequence[str]]:
        with self._request(f"names_in {prefix}"):
            found = self._all(prefix)
        here = {name: stat for name, stat in found.items() if "/" not in name[len(prefix) :]}
        below = {prefix + name[len(prefix) :].split("/")[0] + "/" for name in found if name not in here}
        return here, sorted(below)

    def stat(self, name: str) -> Stat | None:
        with self._request(f"stat {name}"):
            return self._stat(name)

    def now(self) -> int:
        return time.time_ns()

    def read(self, name: str, start: int = 0, stop: int | None = None, version: str | None = None) -> bytes:
        with self._request(f"read {name}"):
            return self._read(name, start, stop, version)

    def read_many(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        with self._request(*(f"read {range_.name}" for range_ in ranges)):
            return [self._read(r.name, r.start, r.stop, r.version) for r in ranges]

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        self.put_sizes.append(len(data))
        with self._request(f"put {name}"), self._locked():
            there = self._stat(name)
            if only is not Only.ANY and (None if there is None else there.version) != (
                None if only is Only.ABSENT else only
            ):
                raise ConditionFailed(f"{self.url}/{name} is not as it should be")
            self._write(name, data)
            found = self._stat(name)
        assert found is not None
        return found

    def upload(self, name: str, file: Path, only: Condition = Only.ANY) -> Stat:
        return self.put(name, file.read_bytes(), only)

    def copies(self, source: str, size: int) -> bool:
        return source.startswith(f"{self.url}/")

    def copy(self, source: str, name: str) -> None:
        with self._request(f"copy {name}"), self._locked():
            self._write(name, self._file(source[len(self.url) + 1 :]).read_bytes())

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self._request(f"delete {name}"):
                self._file(name).unlink(missing_ok=True)

    def _all(self, prefix: str) -> dict[str, Stat]:
        names = (unquote(file.name[:-2]) for file in self._directory.glob("*.o"))
        found = ((name, self._stat(name)) for name in sorted(names) if name.startswith(prefix))
        return {name: stat for name, stat in found if stat is not None}

    def _read(self, name: str, start: int, stop: int | None, version: str | None) -> bytes:
        found = self._stat(name)
        if found is None:
            raise SourceError(f"{self.url}/{name} is missing")
        if version is not None and version != found.version:
            raise SourceError(f"{self.url}/{name} has changed")
        if stop is not None and stop > found.size:
            raise SourceError(f"{self.url}/{name} ends at byte {found.size}")
        with open(self._file(name), "rb") as file:
            file.seek(start)
            data = file.read(found.size - start if stop is None else stop - start)
        self.read_sizes.append(len(data))
        return data

    def _write(self, name: str, data: Buffer) -> None:
        new = self._file(name).with_suffix(".new")
        new.write_bytes(bytes(data))
        new.rename(self._file(name))

    def _stat(self, name: str) -> Stat | None:
        try:
            found = os.stat(self._file(name))
        except FileNotFoundError:
            return None
        version = hashlib.sha1(f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}".encode()).hexdigest()
        return Stat(found.st_size, version, found.st_mtime_ns)

    def _file(self, name: str) -> Path:
        return self._directory / f"{quote(name, safe='', errors='surrogateescape')}.o"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._directory / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def key_value(directory: Path, scheme: str = "kv") -> Iterator[str]:
    """Within this context, `kv://bucket/…` is a key-value store in that directory. Gives `kv://bucket`."""
    directory.mkdir(parents=True, exist_ok=True)
    with registered(scheme, lambda root: KeyValueStore(root, directory)):
        yield f"{scheme}://bucket"


def requests_of(url: str) -> list[str]:
    """What was asked of the store of a URL so far; more is added to it."""
    store = store_of(url)[0]
    assert isinstance(store, KeyValueStore)
    return store.requests


def uploaded(source: Path, url: str) -> str:
    """Put every file below a directory, or one file, into the store of a URL; returns the URL."""
    store, name = store_of(url)
    if source.is_file():
        store.put(name, source.read_bytes())
        return url
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        store.put(f"{name}/{file.relative_to(source).as_posix()}", file.read_bytes())
    return url


def downloaded(url: str, path: Path) -> Path:
    """Copy the object at a URL, and all objects below it, to a path on the disk; returns the path."""
    store, name = store_of(url)
    for found in store.walk():
        if found == name or found.startswith(f"{name}/"):
            file = path / found[len(name) + 1 :]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(store.read(found))
    return path
