"""Where an Orbax item keeps its arrays: an OCDBT database, or one file per chunk."""

import itertools
import math
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.arrays import Chunk, Manifest, Shape
from ckpt_surgery.errors import SourceError
from ckpt_surgery.formats.files import DAMAGED, FileStat
from ckpt_surgery.formats.ocdbt import MANIFEST, Database, read_database
from ckpt_surgery.formats.orbax_layout import PROCESS_PREFIX
from ckpt_surgery.formats.orbax_tree import array_prefix
from ckpt_surgery.formats.zarr_arrays import StoredArray, check_length, check_reachable
from ckpt_surgery.formats.zarr_layout import FILE_NAMES
from ckpt_surgery.formats.zarr_metadata import ZarrArray
from ckpt_surgery.keys import shown


@dataclass(frozen=True)
class Store:
    """Where arrays are: a database, or files."""

    directory: str
    files: Mapping[str, FileStat]
    """By name in the directory."""
    database: Database | None
    zarr: int

    @cached_property
    def _by_path(self) -> Mapping[str, FileStat]:
        return {os.path.join(self.directory, name): stat for name, stat in self.files.items()}

    @property
    def stored(self) -> int:
        """How many values there are: no array has more chunks."""
        return len(self.files) if self.database is None else len(self.database.entries)

    def definition(self, name: str) -> bytes | None:
        """The metadata text of an array; None where it has none. Raises SourceError."""
        file = FILE_NAMES[self.zarr]
        if self.database is None:
            check_reachable(os.path.join(self.directory, name))
            path = self._path(name, file)
            return None if path is None else self._text(path)
        return self.database.value(_key(name, file))

    def _path(self, name: str, file: str) -> str | None:
        """A file of an array relative to the checkpoint; None where there is none (or it is outside)."""
        path = posixpath.normpath(array_prefix(name) + file)
        return path if path in self.files else None

    def _text(self, path: str) -> bytes:
        try:
            with open(os.path.join(self.directory, path), "rb") as file:
                return file.read()
        except OSError as error:
            raise SourceError(f"{shown(path)} cannot be read: {error.strerror}", hint=DAMAGED) from error

    def chunk(self, name: str, file: str) -> Chunk | None:
        """Where one chunk lies; None where it is missing. Raises SourceError where the file is short."""
        if self.database is None:
            path = self._path(name, file)
            if path is None:
                return None
            return Chunk(os.path.join(self.directory, path), 0, self.files[path].size)
        chunk = self.database.locate(_key(name, file))
        if chunk is None or chunk.inline is not None:
            return chunk
        stat = self._by_path.get(chunk.file)
        if stat is None:
            raise SourceError(f"its data file {shown(chunk.file)} is missing", hint=DAMAGED)
        if chunk.offset + chunk.length > stat.size:
            raise SourceError(
                f"its data file {shown(chunk.file)} has {stat.size} bytes, "
                f"but a chunk ends at {chunk.offset + chunk.length}",
                hint=DAMAGED,
            )
        return chunk

    def array(self, name: str, definition: ZarrArray) -> StoredArray:
        """What reading an array takes; its keys are pinned to the version of the database that was listed."""
        file = {"driver": "file", "path": f"{self.directory}/"}
        if self.database is None:
            path = f"{self.directory}/{posixpath.normpath(array_prefix(name))}/"
            return StoredArray(definition, {"driver": "file"}, path)
        pinned = {"driver": "ocdbt", "base": file, "version": self.database.generation}
        return StoredArray(definition, pinned | {"cache_pool": "cache_pool#index"}, array_prefix(name))


def _key(name: str, file: str) -> bytes:
    return (array_prefix(name) + file).encode("utf-8", "surrogatepass")


def open_store(directory: str, files: Mapping[str, FileStat], ocdbt: bool | None, zarr: int) -> Store:
    """The store of an item that has arrays. Raises SourceError where it is not whole or cannot be read."""
    check_reachable(directory)
    if MANIFEST in files:
        return Store(directory, files, read_database(directory), zarr)
    if ocdbt:
        parts = {name.split("/")[0] for name in files if name.startswith(PROCESS_PREFIX)}
        why = (
            f"the databases of its {len(parts)} process(es) were never merged, so the save was not finished"
            if parts
            else "its arrays cannot be found"
        )
        raise SourceError(f"{shown(directory)} has no {MANIFEST}: {why}", hint=DAMAGED)
    return Store(directory, files, None, zarr)


def array_manifest(store: Store, name: str, array: ZarrArray) -> Manifest:
    """The array's manifest; every chunk of its grid must be there and be long enough."""
    count = math.prod(array.counts)
    if count > store.stored:
        raise SourceError(
            f"it should have {count} chunks, more than the {store.stored} values in all", hint=DAMAGED
        )
    chunks: dict[Shape, Chunk] = {}
    for index in itertools.product(*map(range, array.counts)) if count else ():
        file = array.chunk_name(index) if count > 1 else array.first_chunk
        chunk = store.chunk(name, file)
        if chunk is None:
            raise SourceError(f"its chunk {file} is missing", hint=DAMAGED)
        check_length(array, index, chunk)
        chunks[index] = chunk
    return Manifest(array.spec, array.chunk_shape, array.codec, chunks)
