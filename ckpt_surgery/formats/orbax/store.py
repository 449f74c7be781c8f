"""Locate the arrays of an Orbax item: in an OCDBT database, or in one file per chunk."""

import os
import posixpath
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.orbax.tree import Tree, array_prefix
from ckpt_surgery.formats.shared.ocdbt.reader import Database, begin_reading
from ckpt_surgery.formats.shared.orbax_layout import MANIFEST, PROCESS_PREFIX
from ckpt_surgery.formats.shared.zarr.files import check_length, sparse_manifest
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr.metadata import ZarrArray, parse_array
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import read_file
from ckpt_surgery.storage.views import prefetch


@dataclass(frozen=True)
class ItemArrays:
    """Places of the metadata and chunks of an item's arrays: OCDBT or files."""

    directory: str
    files: Mapping[str, FileStat]
    """Size and time of each file, by name in the directory."""
    database: Database | None
    tree: Tree

    @cached_property
    def by_path(self) -> Mapping[str, FileStat]:
        """Size and time of each file, by path."""
        return {os.path.join(self.directory, name): stat for name, stat in self.files.items()}

    @cached_property
    def stored(self) -> int:
        """Number of stored values: no array has more chunks."""
        return len(self.files) if self.database is None else len(self.database.entries)

    @cached_property
    def _keys(self) -> list[bytes]:
        """Keys of all values, sorted."""
        return sorted(map(_key, self.files) if self.database is None else self.database.entries)

    def names(self, place: str) -> list[str]:
        """Names of all that is stored of an array, metadata and chunks, within the array."""
        first, after = _key(place), _key(f"{place.removesuffix('/')}{chr(ord('/') + 1)}")
        low = bisect_left(self._keys, first)
        high = bisect_left(self._keys, after, low) if place else len(self._keys)
        return [key.removeprefix(first).decode("utf-8", "replace") for key in self._keys[low:high]]

    def place(self, name: str) -> str:
        """The prefix of the keys of an array's metadata and chunks."""
        prefix = array_prefix(name)
        if self.database is not None:
            return prefix
        folder = posixpath.normpath(prefix)
        return "" if folder == "." else f"{folder}/"

    def definition(self, place: str) -> ZarrArray:
        """The metadata of an array."""
        path = place + FILE_NAMES[self.tree.zarr]
        if self.database is not None:
            text = self.database.value(_key(path))
        else:
            text = read_file(os.path.join(self.directory, path)) if path in self.files else None
        if text is None:
            raise damaged(
                f"it is in {self.tree.file}, but there is no array `{shown(place.removesuffix('/'))}` "
                f"in {shown(self.directory)}"
            )
        return parse_array(text, self.tree.zarr)

    def chunk(self, path: str) -> Chunk | None:
        """Place of one chunk; None if it is missing."""
        if self.database is None:
            stat = self.files.get(path)
            return None if stat is None else Chunk(os.path.join(self.directory, path), 0, stat.size)
        chunk = self.database.locate(_key(path))
        if chunk is None or chunk.inline is not None:
            return chunk
        stat = self.by_path.get(chunk.file)
        if stat is None:
            raise damaged(f"its data file {shown(chunk.file)} is missing")
        if chunk.offset + chunk.length > stat.size:
            raise damaged(
                f"its data file {shown(chunk.file)} has {stat.size} bytes, "
                f"but a chunk ends at {chunk.offset + chunk.length}"
            )
        return chunk


def _key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def begin_store(directory: str, files: Mapping[str, FileStat]) -> Callable[[Tree], ItemArrays]:
    """Start to read the index of an item's arrays, where it has one; calling the result completes the store.

    The result takes the tree, which says whether an index must exist.
    """
    database = begin_reading(directory) if MANIFEST in files else None

    def finish(tree: Tree) -> ItemArrays:
        if database is None and tree.ocdbt and any(entry.is_array for entry in tree.entries):
            raise _without_index(directory, files)
        if database is None:
            prefetch(directory, (name for name in files if posixpath.basename(name) == FILE_NAMES[tree.zarr]))
        return ItemArrays(directory, files, None if database is None else database(), tree)

    return finish


def _without_index(directory: str, files: Iterable[str]) -> SourceError:
    parts = {name.split("/")[0] for name in files if name.startswith(PROCESS_PREFIX)}
    why = (
        f"the databases of its {len(parts)} process(es) were never merged, so the save was not finished"
        if parts
        else "its arrays cannot be found"
    )
    return damaged(f"{shown(directory)} has no {MANIFEST}: {why}")


def array_manifest(store: ItemArrays, place: str, array: ZarrArray) -> Manifest:
    """The array's manifest. Raises SourceError for a chunk that is too short to be one.

    Every chunk of the grid must be there, unless chunks of nothing but the fill value were left out.
    """
    if store.tree.filled:
        return sparse_manifest(array, store.names(place), lambda name: store.chunk(place + name), filled=True)
    if array.chunk_count > store.stored:
        raise damaged(
            f"it should have {array.chunk_count} chunks, more than the {store.stored} values in all"
        )
    chunks: dict[Shape, Chunk] = {}
    for index, file in array.first_chunk if array.chunk_count == 1 else array.chunk_names():
        chunk = store.chunk(place + file)
        if chunk is None:
            raise damaged(f"its chunk {file} is missing")
        check_length(array, index, chunk)
        chunks[index] = chunk
    return array.manifest(chunks, filled=False)
