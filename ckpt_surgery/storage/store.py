"""Stores of objects: flat names and bytes, without directories, links, or writing in place.

An object is written whole, is replaced whole, and has a version that changes when it does; conditions on
versions take the place of locks and renames.
"""

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.libraries import report_missing

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stat:
    """Status of an object in a store."""

    size: int
    """Size in bytes."""
    version: str
    """Changes with the object: an entity tag, or a generation. Compared for equality only."""
    modified: int = 0
    """Time of the last change by the store's own clock, in nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes of an object that are to be read."""

    name: str
    start: int
    stop: int
    """Offset after the last byte."""
    version: str | None = None
    """The version that must be there; None: any."""


class Only(enum.Enum):
    """A condition under which an object is written."""

    ANY = "any"
    """Whatever is there is replaced."""
    ABSENT = "absent"
    """Nothing may be there."""


Condition = Only | str
"""The condition under which an object is written: `Only`, or the version that has to be there."""


class ConditionFailed(SurgeryError):
    """The condition of a `put` or a `delete` does not hold: another process was faster."""

    exit_code = 4


class Store(Protocol):
    """A bucket, or another store of objects by name. Names have `/` between their parts.

    Safe to use from several threads. Requests that fail for a reason that passes (503, 429, a broken
    connection) are repeated with growing pauses. What fails for good raises StorageError where the store
    refuses or cannot be reached, SourceError where an object that is read is missing or has changed. No
    message names a credential.
    """

    url: str
    """URL of the root, without `/` at its end: `s3://bucket`."""

    def walk(self, prefix: str = "") -> Mapping[str, Stat]:
        """Objects whose names begin with `prefix`, which is empty or ends with `/`, by their whole names."""

    def names_in(self, prefix: str = "") -> tuple[Mapping[str, Stat], Sequence[str]]:
        """One level: the objects right below `prefix`, which is empty or ends with `/`, by their whole names;
        and the prefixes below it, with `/` at their ends."""

    def stat(self, name: str) -> Stat | None:
        """Status of one object; None if there is none."""

    def now(self) -> int:
        """The store's own time, in nanoseconds since the epoch, to compare with `Stat.modified`."""

    def read(self, name: str, start: int = 0, stop: int | None = None, version: str | None = None) -> bytes:
        """The bytes of an object of this version from `start` to before `stop`, or to its end."""

    def read_many(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range, in their order. Ranges near each other in one object are one request."""

    def put(self, name: str, data: Buffer, only: Condition = Only.ANY) -> Stat:
        """Write a whole object. Large ones go in several parts, and appear only when all parts are there.

        Raises ConditionFailed where `only` does not hold. A condition that fails because an answer was lost,
        and the object is there with exactly this data, is no failure.
        """

    def upload(self, name: str, file: Path, only: Condition = Only.ANY) -> Stat:
        """Write a whole object from a local file, in parts, without holding it in memory.

        Raises as `put`, and OSError of the file.
        """

    def copies(self, source: str, size: int) -> bool:
        """Whether the store itself can copy an object of this URL and size in bytes: `copy`. Asks nothing."""

    def copy(self, source: str, name: str) -> None:
        """Copy an object, given by its whole URL, without its bytes passing this machine."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""


_REGISTERED: dict[str, Callable[[str], Store]] = {}
"""Functions that open the store at a root, by scheme, besides those of the object stores."""


def store_of(url: str) -> tuple[Store, str]:
    """The store that a URL lies in, and the URL's name in it. Raises UsageError, StorageError."""
    root, name = urls.split(url)
    return _REGISTERED.get(urls.scheme_of(root) or "", _opened)(root), name


@functools.lru_cache(maxsize=64)
def _opened(root: str) -> Store:
    with report_missing("obstore", f"{root}: buckets need the package obstore"):
        from ckpt_surgery.storage.remote import open_store  # imports what only object stores need
    return open_store(root)


@contextmanager
def registered(scheme: str, opener: Callable[[str], Store]) -> Iterator[None]:
    """Within this context, URLs of this scheme open the store that `opener` gives for their root."""
    before = _REGISTERED.get(scheme)
    _REGISTERED[scheme] = functools.cache(opener)
    urls.REGISTERED.add(scheme)
    try:
        yield
    finally:
        if before is not None:
            _REGISTERED[scheme] = before
        else:
            del _REGISTERED[scheme]
            urls.REGISTERED.discard(scheme)
