"""Destinations of the files of a new checkpoint: a directory, or a prefix of an object store.

Formats that write files of their own choosing (Orbax, zarr) write through this interface alone, so that one
sink serves both. Files are put whole, and nothing is appended to. Names are relative and have `/` between
their parts. Both kinds of places are safe to use from several threads and processes; writing raises
StorageError.
"""

import contextlib
import io
import itertools
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import LinkMode, PathLike
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.storage.adopting import FileLinks, copy_chunk, name_for
from ckpt_surgery.storage.draft import UnpublishedStore
from ckpt_surgery.storage.failures import changed, storage_errors
from ckpt_surgery.storage.linking import SafeToHardlink
from ckpt_surgery.storage.listing import names_below
from ckpt_surgery.storage.reading import OBJECT_PIECE, read_ranges, stat_file
from ckpt_surgery.storage.store import ByteRange, store_of

T = TypeVar("T")

UNFINISHED = "unfinished.__lock"
"""Directory of files that are not complete. No key of a zarr group ends so: TensorStore keeps the ending."""
COPIES_AT_ONCE = 32
"""Largest number of objects that a store copies at the same time."""


class LocalPlaces:
    """Files of a directory."""

    def __init__(self, directory: Path, mode: LinkMode, replaced: SafeToHardlink):
        self._root = os.fspath(directory)
        self._links = FileLinks(directory, mode, replaced)
        self._token = secrets.token_hex(8)
        self._numbers = itertools.count()

    def create(self) -> None:
        """Make the directory itself, with those above it. Without it, `put` fails."""
        with storage_errors(Path(self._root)):
            os.makedirs(self._root, exist_ok=True)

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        """Write a file of these parts, one after another."""
        with self._writing(name) as (_, file):
            file.writelines(parts)

    def copy(self, chunk: Chunk, name: str) -> int:
        """Write a file of the stored bytes of one chunk, piece by piece; returns their CRC-32C."""
        with self._writing(name) as (path, _):
            return copy_chunk(chunk, Path(path), ((0, chunk.length),))

    def link(self, file: str, own: str) -> tuple[str, AdoptedFile | None]:
        """Link a whole file of another checkpoint into `d/`; complete after `flush`.

        Returns its name here, which is the same for all workers, and what was done the first time. `own`: a
        directory of the calling worker, with `/` at its end, for copies in a store. Raises SourceError if the
        file is gone.
        """
        return self._links.link(file)

    def read(self, chunks: Sequence[Chunk]) -> list[bytes]:
        """Read ranges of files, given by their names."""
        return list(read_ranges([replace(chunk, file=f"{self._root}/{chunk.file}") for chunk in chunks]))

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if there is none."""
        path = Path(self._root, name)
        with storage_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.lstat(path).st_size
        return None

    def sizes(self, below: str = "") -> Mapping[str, int]:
        """Sizes in bytes of all complete files below a directory, empty or with `/` at its end, by name."""
        directory = os.path.join(self._root, below)
        with storage_errors(Path(directory)):
            names = (below + name for name in names_below(directory)) if os.path.isdir(directory) else ()
            sizes = {name: self.size(name) for name in names if not name.startswith(f"{UNFINISHED}/")}
            return {name: size for name, size in sizes.items() if size is not None}

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and the directories that become empty."""
        for name in names:
            path = Path(self._root, name)
            with storage_errors(path):
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                for parent in path.relative_to(self._root).parents[:-1]:
                    os.rmdir(Path(self._root, parent))

    def flush(self) -> None:
        """Return at once: everything is in its file, and killing the process loses none of it."""

    def paths(self, names: Iterable[str]) -> list[str]:
        """Paths of files or directories, to be synchronized with the disk."""
        return [f"{self._root}/{name}" for name in names]

    def begin_documents(self) -> None:
        """Say that all data is put, and what follows makes the checkpoint readable."""

    def close(self) -> None:
        """Remove what writers that were killed left unfinished."""
        with storage_errors(Path(self._root)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(os.path.join(self._root, UNFINISHED))

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[tuple[str, io.BufferedWriter]]:
        """A file under a temporary name and its path; it is renamed once it is written, or else removed."""
        path = f"{self._root}/{name}"
        unfinished = f"{self._root}/{UNFINISHED}/{self._token}-{next(self._numbers)}"
        with storage_errors(Path(path)):
            try:
                with self._in_directory(unfinished, lambda: open(unfinished, "xb")) as file:
                    yield unfinished, file
                self._in_directory(path, lambda: os.replace(unfinished, path))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(unfinished)
                raise

    def _in_directory(self, path: str, create: Callable[[], T]) -> T:
        """Create a file, with its directory if need be; not the root, which may have been taken away."""
        try:
            return create()
        except (FileNotFoundError, NotADirectoryError):
            os.stat(self._root)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            return create()


class StorePlaces:
    """Objects below a prefix of a store, with the methods of `LocalPlaces`."""

    def __init__(self, url: str):
        self._store, name = store_of(url)
        self._prefix = f"{name}/" if name else ""
        self._copied: set[str] = set()
        """URLs of the objects that were copied whole."""
        self._copies: list[Future[None]] = []
        """Copies that nobody has waited for yet."""
        self._room = threading.Semaphore(2 * COPIES_AT_ONCE)
        """Limits the copies that are asked for: those are carried out even if the run ends."""
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(COPIES_AT_ONCE, thread_name_prefix="copy")

    def create(self) -> None:
        """Do nothing: a store has no directories."""

    def put(self, name: str, parts: Sequence[bytes]) -> None:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._store.put(f"{self._prefix}{name}", data)

    def copy(self, chunk: Chunk, name: str) -> int:
        """Upload the bytes through a temporary file."""
        with tempfile.NamedTemporaryFile(prefix="ckpt-surgery-") as file, storage_errors(Path(file.name)):
            crc = copy_chunk(chunk, Path(file.name), ((0, chunk.length),))
            self._store.upload(f"{self._prefix}{name}", Path(file.name))
        return crc

    def link(self, file: str, own: str) -> tuple[str, AdoptedFile | None]:
        """Have the store copy an object into the worker's own directory, once."""
        name = own + name_for(file)
        with self._lock:
            if file in self._copied:
                return name, None
            self._copied.add(file)
        self._room.acquire()
        copy = self._pool.submit(self._copy, file, name)
        copy.add_done_callback(lambda _: self._room.release())
        with self._lock:
            self._copies.append(copy)
        return name, None

    def _copy(self, source: str, name: str) -> None:
        """Have the store copy one of its objects, in the version that was listed."""
        listed = stat_file(source)
        self._store.copy(source, f"{self._prefix}{name}")
        origin, key = store_of(source)
        now = origin.stat(key)
        if now is None or now.version != listed.version:
            raise changed(source)

    def read(self, chunks: Sequence[Chunk]) -> list[bytes]:
        """Read ranges of objects together."""
        ranges = [ByteRange(f"{self._prefix}{c.file}", c.offset, c.offset + c.length) for c in chunks]
        return self._store.read_many(ranges)

    def size(self, name: str) -> int | None:
        stat = self._store.stat(f"{self._prefix}{name}")
        return None if stat is None else stat.size

    def sizes(self, below: str = "") -> Mapping[str, int]:
        stats = self._store.walk(f"{self._prefix}{below}")
        return {name.removeprefix(self._prefix): stat.size for name, stat in stats.items()}

    def delete(self, names: Iterable[str]) -> None:
        self._store.delete([f"{self._prefix}{name}" for name in names])

    def flush(self) -> None:
        """Wait for all copies, so that a run that fails knows what it has to remove."""
        with self._lock:
            copies, self._copies = self._copies, []
        wait(copies)
        for copy in copies:
            copy.result()

    def paths(self, names: Iterable[str]) -> list[str]:
        """None: objects are durable once they are put."""
        return []

    def begin_documents(self) -> None:
        """Let a draft hold everything that follows in memory."""
        if isinstance(self._store, UnpublishedStore):
            self._store.finishing = True

    def close(self) -> None:
        """Do nothing: an object is whole or not there."""


Places = LocalPlaces | StorePlaces


def open_places(
    directory: PathLike, mode: LinkMode = LinkMode.AUTO, replaced: SafeToHardlink | None = None
) -> Places:
    """The places of a new checkpoint, given by its path or URL.

    `mode`: how whole files get there. `replaced`: files that `auto` may hard-link.
    """
    if urls.is_url(text := os.fspath(directory)):
        return StorePlaces(text)
    return LocalPlaces(Path(text), mode, replaced or SafeToHardlink())


def stored_crc(places: Places, chunk: Chunk) -> int:
    """CRC-32C of a range of a file, which is read piece by piece."""
    crc = 0
    for at in range(0, chunk.length, OBJECT_PIECE):
        piece = Chunk(chunk.file, chunk.offset + at, min(OBJECT_PIECE, chunk.length - at))
        crc = bytes_crc(places.read([piece])[0], crc)
    return crc
