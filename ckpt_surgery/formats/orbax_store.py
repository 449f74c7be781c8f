"""Where an Orbax item keeps its arrays: an OCDBT database, or one file per chunk."""

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.arrays import Chunk, Manifest, Shape
from ckpt_surgery.errors import SourceError
from ckpt_surgery.formats.files import DAMAGED, FileStat
from ckpt_surgery.formats.ocdbt import MANIFEST, Database, begin_reading
from ckpt_surgery.formats.orbax_layout import PROCESS_PREFIX, TREE_METADATA
from ckpt_surgery.formats.orbax_tree import array_prefix
from ckpt_surgery.formats.zarr_arrays import StoredArray, check_length, check_reachable
from ckpt_surgery.formats.zarr_layout import FILE_NAMES
from ckpt_surgery.formats.zarr_metadata import ZarrArray, parse_array
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

    @cached_property
    def stored(self) -> int:
        """How many values there are: no array has more chunks."""
        return len(self.files) if self.database is None else len(self.database.entries)

    def place(self, name: str) -> str:
        """What the keys of an array's metadata and chunks begin with. Raises SourceError."""
        prefix = array_prefix(name)
        if self.database is not None:
            return prefix
        check_reachable(os.path.join(self.directory, name))
        folder = posixpath.normpath(prefix)
        return "" if folder == "." else f"{folder}/"

    def definition(self, place: str) -> ZarrArray:
        """The metadata of an array. Raises SourceError where it has none, or it cannot be understood."""
        path = place + FILE_NAMES[self.zarr]
        if self.database is not None:
            text = self.database.value(_key(path))
        else:
            text = self._text(path) if path in self.files else None
        if text is None:
            raise SourceError(
                f"it is in {TREE_METADATA}, but there is no array `{shown(place.removesuffix('/'))}` "
                f"in {shown(self.directory)}",
                hint=DAMAGED,
            )
        return parse_array(text, self.zarr)

    def _text(self, path: str) -> bytes:
        try:
            with open(os.path.join(self.directory, path), "rb") as file:
                return file.read()
        except OSError as error:
            raise SourceError(f"{shown(path)} cannot be read: {error.strerror}", hint=DAMAGED) from error

    def chunk(self, path: str) -> Chunk | None:
        """Where one chunk lies; None where it is missing. Raises SourceError where the file is short."""
        if self.database is None:
            stat = self.files.get(path)
            return None if stat is None else Chunk(os.path.join(self.directory, path), 0, stat.size)
        chunk = self.database.locate(_key(path))
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

    def array(self, place: str) -> StoredArray:
        """What reading an array takes; its keys are pinned to the version of the database that was listed."""
        definition, file = self.definition(place), {"driver": "file", "path": f"{self.directory}/"}
        if self.database is None:
            return StoredArray(definition, {"driver": "file"}, f"{self.directory}/{place}")
        pinned = {"driver": "ocdbt", "base": file, "version": self.database.generation}
        return StoredArray(definition, pinned | {"cache_pool": "cache_pool#index"}, place)


def _key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def begin_store(directory: str, files: Mapping[str, FileStat]) -> Callable[[bool | None, int], Store]:
    """Start to read the index of an item's arrays, where it has one; the result finishes the store.

    It takes what the item's metadata says: whether there is an index, and the version of zarr. Both raise
    SourceError where the store is not whole or cannot be read.
    """
    check_reachable(directory)
    database = begin_reading(directory) if MANIFEST in files else None

    def finish(ocdbt: bool | None, zarr: int) -> Store:
        if database is None and ocdbt:
            raise _without_index(directory, files)
        return Store(directory, files, None if database is None else database(), zarr)

    return finish


def _without_index(directory: str, files: Iterable[str]) -> SourceError:
    parts = {name.split("/")[0] for name in files if name.startswith(PROCESS_PREFIX)}
    why = (
        f"the databases of its {len(parts)} process(es) were never merged, so the save was not finished"
        if parts
        else "its arrays cannot be found"
    )
    return SourceError(f"{shown(directory)} has no {MANIFEST}: {why}", hint=DAMAGED)


def array_manifest(store: Store, place: str, array: ZarrArray) -> Manifest:
    """The array's manifest; every chunk of its grid must be there and be long enough."""
    if array.chunk_count > store.stored:
        raise SourceError(
            f"it should have {array.chunk_count} chunks, more than the {store.stored} values in all",
            hint=DAMAGED,
        )
    chunks: dict[Shape, Chunk] = {}
    for index, file in array.first_chunk if array.chunk_count == 1 else array.chunk_names():
        chunk = store.chunk(place + file)
        if chunk is None:
            raise SourceError(f"its chunk {file} is missing", hint=DAMAGED)
        check_length(array, index, chunk)
        chunks[index] = chunk
    return Manifest(array.spec, array.chunk_shape, array.codec, chunks)
