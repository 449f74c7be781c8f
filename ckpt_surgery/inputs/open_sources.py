"""Sources that stay open for a program: they refuse to read once they are closed or files have changed."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SurgeryError, UsageError
from ckpt_surgery.core.file_states import FileState, changes
from ckpt_surgery.core.keys import Key, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, parts_of_chunks
from ckpt_surgery.core.protocols import Choices, Source, details_of
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.opening import changed_since_opening, open_input
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import InMemory, OpenedPath, uint16_at
from ckpt_surgery.inputs.warnings import disguised_leaves
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import plain_value
from ckpt_surgery.planner.disguised import as_bfloat16, is_uint16
from ckpt_surgery.storage.samples import states_by_path


class OpenSource:
    """The source of a checkpoint that stays open for a program, with its values. Safe to use from threads.

    It is a source itself, which refuses to read once it was closed, or once the files have changed.
    """

    def __init__(self, source: Source, given: OpenedPath | InMemory):
        self.stored, self.given = source, given
        """The source with dtypes as they are stored."""
        self.path, self.format, self.step, self.item = source.path, source.format, source.step, source.item
        self.metadata, self.closed = source.metadata, False
        self._stored_leaves = source.leaves()
        """Leaves as they are stored."""
        self._leaves = self._stored_leaves
        if given.uint16 == "bfloat16":
            self._leaves = {text: as_bfloat16(leaf) for text, leaf in self._leaves.items()}
        self._values: dict[str, Any] = {}
        self._files = given.files if isinstance(given, OpenedPath) else {}

    @functools.cached_property
    def choices(self) -> Choices:
        """Steps and items beside the source, as of the first use."""
        return details_of(self.stored).choices()

    def leaves(self) -> Mapping[str, Leaf]:
        """Leaves by their keys' texts, in the checkpoint's order, with the dtypes that they are read in."""
        return self._leaves

    def files(self) -> Iterable[str]:
        """Paths of the files that the checkpoint consists of."""
        return self.stored.files()

    def fingerprint(self) -> str:
        """Fingerprint at the time of opening."""
        return self.stored.fingerprint() if isinstance(self.given, InMemory) else self.given.fingerprint

    def value(self, leaf: Leaf) -> Any:
        """Value of a leaf: the same array each time."""
        if leaf.kind is LeafKind.OBJECT:
            assert isinstance(self.stored, TreeSource)
            return self.stored.tree.values[leaf.key.text]
        if leaf.spec is None:
            return plain_value(leaf)
        if leaf.key.text in self._values:
            return self._values[leaf.key.text]
        return self._values.setdefault(leaf.key.text, StoredArray(self, leaf))

    def tree(self, leaves: Iterable[Leaf], prefix: str) -> Any:
        """Values of leaves in their containers, without the components of the prefix."""
        if isinstance(self.stored, TreeSource) and not prefix:
            return self.stored.tree.rebuilt({leaf.key.text: self.value(leaf) for leaf in leaves})
        return nested((_relative(leaf.key, prefix), self.value(leaf)) for leaf in leaves)

    def check_open(self) -> None:
        """Raise UsageError if it is closed."""
        if self.closed:
            raise UsageError(f"{shown(self.path)} was closed", hint="Read before that, or open it again.")

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region. Raises SourceError where they cannot be read, or files have changed."""
        self.check_open()
        stored = self._stored_leaves[leaf.key.text]
        try:
            block = self.stored.read(stored, region)
        except SurgeryError:
            self._compare(self._files, self.stored.files())
            raise
        self._check_files_of(stored, region)
        assert leaf.spec is not None
        return block if block.dtype == leaf.spec.dtype else block.view(leaf.spec.dtype)

    def _check_files_of(self, leaf: Leaf, region: Region) -> None:
        """Raise SourceError if a file that a region was read from has changed.

        All files count if some of the region does not lie in chunks of files: in an index, in chunks that are
        missing, or in an array without a grid of chunks.
        """
        manifest = leaf.manifest
        chunks: list[Chunk | None] = [None] if region.size else []
        if manifest is not None and region.size:
            chunks = [manifest.chunks.get(index) for index, _ in parts_of_chunks(manifest, region)]
        files = {"" if chunk is None else chunk.file for chunk in chunks}
        read = {file: self._files[file] for file in files if file in self._files}
        if len(read) == len(files):
            self._compare(read, read)
        else:
            self._compare(self._files, self.stored.files())

    def _compare(self, before: Mapping[str, FileState], files: Iterable[str]) -> None:
        """Raise SourceError that names the files that have changed, if any."""
        changed = changes(before, states_by_path(files), times=True)
        if changed:
            raise changed_since_opening(self.path, changed)


def kept_open(source: Source, uint16: str = "keep", tree: InMemory | None = None) -> OpenSource:
    """Keep a source open for a program. From now on, its files must not change. `tree`: what it lists."""
    if tree is not None:
        return OpenSource(source, replace(tree, uint16=uint16))
    path = OpenedPath(source.path)
    path.step, path.item, path.src_format, path.uint16 = source.step, source.item, source.format, uint16
    path.fingerprint, path.files = source.fingerprint(), states_by_path(source.files())
    return OpenSource(source, path)


def _relative(key: Key, prefix: str) -> Key:
    """Key without the components of a prefix."""
    skipped = 0
    while len(prefix) > len(key.names[skipped]):
        prefix = prefix[len(key.names[skipped]) + 1 :]
        skipped += 1
    first, *others = key.names[skipped:]  # a component with a slash can begin in the prefix
    return Key((first[len(prefix) :], *others), key.sequences[skipped:])


def open_as(given: str | InMemory, uint16: str | None, **which: Unpack[SourceOptions]) -> Source:
    """Open a checkpoint or list a tree, with arrays of uint16 read as the option or an open checkpoint says.

    Raises what `open_input` raises, and UsageError if both say something else.
    """
    read_as, source = uint16_at(given, uint16), open_input(given, **which)
    tree = given if isinstance(given, InMemory) else None
    return source if read_as == "keep" else kept_open(source, read_as, tree)


class StoredArray(LazyArray):
    """An array of an open checkpoint."""

    def __init__(self, opened: OpenSource, leaf: Leaf):
        assert leaf.spec is not None
        manifest = leaf.manifest
        super().__init__(
            leaf.spec,
            key=leaf.key.text,
            chunks=None if manifest is None else manifest.chunk_shape,
            sharding=leaf.sharding,
            prng_impl=leaf.prng_impl,
        )
        self._opened, self._leaf = opened, leaf
        self._is_disguised = is_uint16(leaf) and leaf.key.text in disguised_leaves(opened.stored)

    @property
    def _unit(self) -> Shape | None:
        manifest = self._leaf.manifest
        return None if manifest is None or manifest.supports_partial_reads else self.chunks

    @property
    def _kind(self) -> LeafKind:
        return self._leaf.kind

    def _read(self, region: Region) -> np.ndarray:
        return self._opened.read(self._leaf, region)

    def _described(self) -> Leaf:
        return self._leaf
