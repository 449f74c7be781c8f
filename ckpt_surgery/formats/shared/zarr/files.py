"""Zarr arrays in files of a directory or in its OCDBT database: metadata, and manifests of their chunks."""

import itertools
import operator
import os
import posixpath
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.shared.ocdbt.reader import Database
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES, RESERVED
from ckpt_surgery.formats.shared.zarr.metadata import ZarrArray, parse_array
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import FileStat, check_link, real_path, walk
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.views import prefetch


@dataclass(frozen=True)
class Files:
    """A directory with zarr arrays in it, walked once. Its files are the values of the arrays."""

    root: str
    """Directory that the names are relative to."""
    stats: Mapping[str, FileStat]
    """Size and time of each file, by name with `/`."""

    @staticmethod
    def of(root: str, directory: str = "") -> "Files":
        """List all files below a directory of the root. Links must not leave the root."""
        path, real = os.path.join(root, directory), real_path(root)
        if directory:
            check_link(path, real)
        stats = {posixpath.join(directory, name): stat for name, stat in walk(path, real).items()}
        prefetch(root, (name for name in stats if posixpath.basename(name) in RESERVED))
        return Files(root, stats)

    @cached_property
    def by_path(self) -> Mapping[str, FileStat]:
        """Size and time of each file, by path."""
        return {os.path.join(self.root, name): stat for name, stat in self.stats.items()}

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of all values, sorted."""
        return sorted(self.stats)

    @property
    def count(self) -> int:
        """Number of stored values: no array has more chunks."""
        return len(self.stats)

    def prefix_of(self, text: str) -> str:
        """The beginning of the names of an array's values, of which a writer's tree says `text`."""
        directory = posixpath.normpath(text)
        return "" if directory == "." else f"{directory}/"

    def below(self, prefix: str) -> list[str]:
        """The names of all values below a directory, within it; `prefix` is empty or ends with `/`."""
        low = bisect_left(self.names, prefix)
        high = bisect_left(self.names, f"{prefix[:-1]}0", low) if prefix else None  # "0" follows "/"
        return [name[len(prefix) :] for name in self.names[low:high]]

    def text(self, name: str) -> bytes | None:
        """A small value; None if it is missing."""
        stat = self.stats.get(name)
        if stat is None:
            return None
        with opened(os.path.join(self.root, name), stat) as file:
            return file.read(0, stat.size)

    def chunk(self, name: str) -> Chunk | None:
        """Place of one chunk; None if it is missing. Raises SourceError where its data file is cut short."""
        stat = self.stats.get(name)
        return None if stat is None else Chunk(os.path.join(self.root, name), 0, stat.size)


@dataclass(frozen=True)
class IndexedFiles(Files):
    """A directory with an OCDBT database: the values of the arrays are those of its keys."""

    database: Database

    @cached_property
    def names(self) -> Sequence[str]:
        return sorted(key.decode("utf-8", "replace") for key in self.database.entries)

    @property
    def count(self) -> int:
        return len(self.database.entries)

    def prefix_of(self, text: str) -> str:
        return text

    def text(self, name: str) -> bytes | None:
        return self.database.value(name.encode("utf-8", "surrogatepass"))

    def chunk(self, name: str) -> Chunk | None:
        chunk = self.database.locate(name.encode("utf-8", "surrogatepass"))
        if chunk is None or chunk.inline is not None:
            return chunk
        stat = self.by_path.get(chunk.file)
        if stat is None or chunk.offset + chunk.length > stat.size:
            end = chunk.offset + chunk.length
            there = "is missing" if stat is None else f"has {stat.size} bytes, but a chunk ends at {end}"
            raise damaged(f"its data file {shown(chunk.file)} {there}")
        return chunk


def file_array(files: Files, directory: str) -> ZarrArray:
    """The array in a directory, which must have metadata of one version."""
    paths = {version: posixpath.join(directory, name) for version, name in FILE_NAMES.items()}
    versions = [version for version, path in paths.items() if path in files.stats]
    if len(versions) != 1:
        has = "both .zarray and" if versions else "no .zarray or"
        raise damaged(
            f"{shown(os.path.join(files.root, directory))} has {has} zarr.json with an array's metadata",
            "Take another copy of the checkpoint; of two such files, remove the one that is not its chunks'.",
        )
    return parse_array(files.text(paths[versions[0]]) or b"", versions[0])


def check_reachable(path: str) -> None:
    """Raise UsageError for a destination that TensorStore, and so no stock reader, could open."""
    if "\\" in path or not is_unicode(path):
        what = f"{shown(path)}: TensorStore opens only names in UTF-8 without a backslash"
        raise UsageError(what, hint="Choose another name, or rename the directory that has such a name.")


def array_manifest(files: Files, prefix: str, array: ZarrArray, filled: bool = False) -> Manifest:
    """The manifest of the stored chunks of an array, whose names begin with `prefix`.

    `filled`: those that are missing have the fill value. Where it is false, or the metadata gives none, every
    chunk of the grid must be there. Raises SourceError for a chunk that is too short to be one.
    """
    sparse = filled and array.definition.get("fill_value") is not None
    if sparse:
        # The grid is not iterated: it may claim to be huge.
        indices = ((chunk_index(array, name), name) for name in files.below(prefix))
        named = iter(sorted((index, name) for index, name in indices if index is not None))
    elif array.chunk_count > files.count:
        raise damaged(f"it should have {array.chunk_count} chunks, more than the {files.count} values in all")
    else:
        grid = itertools.product(*map(range, array.counts)) if array.chunk_count else ()
        named = ((index, array.chunk_name(index)) for index in grid)
    chunks: dict[Shape, Chunk] = {}
    for index, name in named:
        chunk = files.chunk(prefix + name)
        if chunk is None:
            raise damaged(f"its chunk {name} is missing")
        least = array.chunk_nbytes if array.codec.name == "raw" else array.least_bytes
        # Checked before anything of the size is allocated that the metadata claims.
        if chunk.length < least or (array.codec.name == "raw" and chunk.length > least):
            raise damaged(
                f"its chunk {name} has {chunk.length} stored bytes, but should decode to {array.chunk_nbytes}"
            )
        chunks[index] = chunk
    return array.manifest(chunks, filled=sparse)


def chunk_index(array: ZarrArray, name: str) -> Shape | None:
    """Index of the chunk that a file in an array's directory holds; None for other files."""
    digits = re.findall("[0-9]{1,19}", name) if array.counts else ()
    index = tuple(map(int, digits))
    inside = len(index) == len(array.counts) and all(map(operator.lt, index, array.counts))
    return index if inside and array.chunk_name(index) == name else None
