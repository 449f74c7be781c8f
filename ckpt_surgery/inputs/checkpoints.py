"""Checkpoints as mappings: keys to arrays that are read when they are asked for."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import KeyNotFound, SurgeryError, UsageError
from ckpt_surgery.core.file_states import FileState, changes
from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import (
    CachingSource,
    Choices,
    ChosenSource,
    ConvertingSource,
    Source,
    StoredType,
)
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.formats.shared.zarr_fetched import stored_chunks, touched
from ckpt_surgery.inputs.matching import check_matched, matching
from ckpt_surgery.inputs.opening import changed_since_opening, open_input
from ckpt_surgery.inputs.request import InMemory, OpenCheckpoint, OpenedPath
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import nested, plain_value
from ckpt_surgery.planner.disguised import BFLOAT16, is_uint16
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.tree import parameters
from ckpt_surgery.report.values import statistics
from ckpt_surgery.storage.samples import states_by_path
from ckpt_surgery.system.resources import default_memory


class Checkpoint(OpenCheckpoint, Mapping[str, Any]):
    """An open checkpoint, or a subtree of one, as a mapping from keys to values.

    Keys are those of leaves, in the checkpoint's order, with `/` between their components; `len` and
    iteration know no others. A value is a `LazyArray`, a text, or an empty node: None, `{}`, `[]` or `()`.
    The key of a subtree gives a Checkpoint whose keys are relative to it. It can be given wherever the path
    of a checkpoint can; a subtree cannot.

    Safe to use from several threads. Pickled, it keeps the path, the choices and the fingerprint, and opens
    the checkpoint again.
    """

    def __init__(self, opened: "OpenSource", prefix: str = ""):
        """`ckpt_surgery.open` makes one. `prefix`: key of the subtree, with a `/` at its end."""
        self._opened, self._prefix = opened, prefix
        start = len(prefix)
        self._leaves = {t[start:]: leaf for t, leaf in opened.leaves().items() if t.startswith(prefix)}

    # --- what it is ---------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path as the caller gave it; `(tree)` for a tree in memory."""
        return self._opened.path

    @property
    def format(self) -> str:
        """Name of the format; `tree` for a tree in memory."""
        return self._opened.format

    @property
    def step(self) -> int | None:
        """The step that is read; None if the checkpoint is not one of several steps."""
        return self._opened.step

    @property
    def item(self) -> str | None:
        """The item that is read; None if the checkpoint is not composite."""
        return self._opened.item

    @property
    def steps(self) -> tuple[int, ...]:
        """The finished steps beside it, ascending."""
        return self._opened.choices.steps

    @property
    def unfinished(self) -> tuple[int, ...]:
        """The steps beside it whose saves were not finished, ascending."""
        return self._opened.choices.unfinished

    @property
    def item_names(self) -> tuple[str, ...]:
        """The items of its step, those without arrays included."""
        return self._opened.choices.items

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The user's custom metadata."""
        return self._opened.metadata

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays in memory."""
        return sum(leaf.nbytes for leaf in self._leaves.values())

    @property
    def parameters(self) -> int:
        """Number of elements of the arrays that a model is made of: without optimizer states and counters."""
        return parameters(self._leaves.values())

    @property
    def tree(self) -> Any:
        """All values in dicts and lists, as they were saved. Nothing is read."""
        return self._opened.tree(self._leaves.values(), self._prefix)

    def __repr__(self) -> str:
        name = f"{self.path}: {self._prefix.rstrip(SEPARATOR)}" if self._prefix else self.path
        step = "" if self.step is None else f", step {self.step}"
        count = f"{len(self):,} {'leaf' if len(self) == 1 else 'leaves'}, {bytes_text(self.nbytes)}"
        return f"<Checkpoint {shown(repr(name))} {self.format}{step}: {count}{', closed' * self.closed}>"

    # --- the mapping --------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Any:
        """Value of a leaf, or the subtree with this key. Raises KeyNotFound."""
        leaf = self._leaves.get(key)
        if leaf is not None:
            return self._opened.value(leaf)
        if key in self._subtrees:
            return Checkpoint(self._opened, f"{self._prefix}{key}{SEPARATOR}")
        where = f"in `{shown(self._prefix.rstrip(SEPARATOR))}`" if self._prefix else ""
        raise KeyNotFound.among(str(key), [*self._subtrees, *self._leaves], where)

    def __contains__(self, key: object) -> bool:
        """Whether a leaf or a subtree has this key."""
        return key in self._leaves or key in self._subtrees

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def get(self, key: str, default: Any = None) -> Any:
        """The same as indexing, with `default` for a key that there is not."""
        if key in self:  # which looks for no similar key
            return self[key]
        return default

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @functools.cached_property
    def _subtrees(self) -> frozenset[str]:
        """Keys of all subtrees: the beginnings of keys of leaves."""
        found = set[str]()
        for text in self._leaves:
            end = text.rfind(SEPARATOR)
            while end > 0 and text[:end] not in found:
                found.add(text[:end])
                end = text.rfind(SEPARATOR, 0, end)
        return frozenset(found)

    # --- values -------------------------------------------------------------------------------------------

    def statistics(self, match: str | None = None) -> Mapping[str, Statistics | Unread]:
        """Statistics of the values of every array, or why it has none, by key. Reads them.

        `match` is a regular expression for whole keys, as in recipes. Raises UsageError where it matches
        none, and SourceError for files that changed.
        """
        chosen = matching(self._leaves, match)
        check_matched(match, len(chosen), self._leaves)
        found = statistics(self._opened, default_memory(), chosen.values())
        return {key: found[leaf.key.text] for key, leaf in chosen.items() if leaf.key.text in found}

    # --- closing, copies ----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed, so that nothing can be read any more."""
        return self._opened.closed

    def close(self) -> None:
        """Refuse to read from now on, also arrays of it that exist already. Shapes and dtypes stay known."""
        self._opened.closed = True

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def as_source(self) -> OpenedPath | InMemory:
        """What a function that takes a path opens. Raises UsageError for a subtree, and if it was closed."""
        if self._prefix:
            name = shown(self._prefix.rstrip(SEPARATOR))
            raise UsageError(
                f"`{name}` is a part of {shown(self.path)}, and no source by itself",
                hint="Give the whole checkpoint, with a recipe that keeps this part, or the arrays: `.tree`.",
            )
        self._opened.check_open()
        return self._opened.given

    def __reduce__(self) -> Any:
        given = self._opened.given
        if isinstance(given, InMemory):
            raise UsageError(
                f"{self!r} cannot be pickled: it is a tree in memory", hint="Pickle the tree itself."
            )
        choice = given.step, given.item, given.src_format, given.uint16
        return _unpickled, (urls.absolute(given), choice, given.fingerprint, self._prefix)


def open_checkpoint(
    given: str | InMemory, step: int | None, item: str | None, format: str | None, uint16: str
) -> Checkpoint:
    """Open a checkpoint, or list a tree. Raises SourceError or UsageError."""
    source = open_input(given, step=step, item=item, src_format=format)
    if isinstance(given, InMemory):
        return Checkpoint(OpenSource(source, given))
    if isinstance(given, OpenedPath) and given.uint16 == "bfloat16":
        uint16 = given.uint16
    return Checkpoint(kept_open(source, uint16))


def kept_open(source: Source, uint16: str = "keep") -> "OpenSource":
    """A source that stays open for a program. From now on, its files must not change."""
    path = OpenedPath(source.path)
    path.step, path.item, path.src_format, path.uint16 = source.step, source.item, source.format, uint16
    path.fingerprint, path.files = source.fingerprint(), states_by_path(source.files())
    return OpenSource(source, path)


def _unpickled(
    path: str, choice: tuple[int | None, str | None, str, str], fingerprint: str, prefix: str
) -> Checkpoint:
    """Open a pickled checkpoint again. Raises SourceError if it has changed."""
    given = OpenedPath(path)
    given.step, given.item, given.src_format, given.uint16 = choice
    given.fingerprint, given.files = fingerprint, {}
    opened = open_checkpoint(given, None, None, None, given.uint16)
    return Checkpoint(opened._opened, prefix) if prefix else opened


# --- what its parts share ---------------------------------------------------------------------------------


class OpenSource:
    """The source of a checkpoint that stays open for a program, with its values. Safe to use from threads.

    It is a source itself, which refuses to read once it was closed, or once the files have changed.
    """

    def __init__(self, source: Source, given: OpenedPath | InMemory):
        if isinstance(source, CachingSource):
            source.cache_bytes = 0  # two reads read twice
        self._source, self.given = source, given
        self.path, self.format, self.step, self.item = source.path, source.format, source.step, source.item
        self.metadata, self.closed = source.metadata, False
        self._stored = source.leaves()
        """Leaves as they are stored."""
        as_bfloat16 = isinstance(given, OpenedPath) and given.uint16 == "bfloat16"
        self._leaves = {t: _as_read(leaf, as_bfloat16) for t, leaf in self._stored.items()}
        self._values: dict[str, Any] = {}
        self._files = given.files if isinstance(given, OpenedPath) else {}

    @functools.cached_property
    def choices(self) -> Choices:
        """The steps and items that there were when this was first asked for."""
        return self._source.choices() if isinstance(self._source, ChosenSource) else Choices()

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's order, with the dtype that it is read in."""
        return self._leaves

    def files(self) -> Iterable[str]:
        """Paths of the files that the checkpoint consists of."""
        return self._source.files()

    def fingerprint(self) -> str:
        """Fingerprint when it was opened."""
        return self._source.fingerprint() if isinstance(self.given, InMemory) else self.given.fingerprint

    def stored_type(self, leaf: Leaf) -> StoredType | None:
        """Type of the format's own that an array is stored in; None if it has none."""
        return self._source.stored_type(leaf) if isinstance(self._source, ConvertingSource) else None

    def value(self, leaf: Leaf) -> Any:
        """Value of a leaf: the same array each time."""
        if leaf.kind is LeafKind.OBJECT:
            assert isinstance(self._source, TreeSource)
            return self._source.tree.values[leaf.key.text]
        if leaf.spec is None:
            return plain_value(leaf)
        return self._values.setdefault(leaf.key.text, StoredArray(self, leaf))

    def tree(self, leaves: Iterable[Leaf], prefix: str) -> Any:
        """Values of leaves in their containers, without the components of the prefix."""
        if isinstance(self._source, TreeSource) and not prefix:
            return self._source.tree.rebuilt({leaf.key.text: self.value(leaf) for leaf in leaves})
        return nested((_relative(leaf.key, prefix), self.value(leaf)) for leaf in leaves)

    def check_open(self) -> None:
        """Raise UsageError once it was closed."""
        if self.closed:
            raise UsageError(f"{shown(self.path)} was closed", hint="Read before that, or open it again.")

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of one region. Raises SourceError where they cannot be read, or files have changed."""
        self.check_open()
        stored = self._stored[leaf.key.text]
        try:
            block = self._source.read(stored, region)
        except SurgeryError:
            self._check_all()
            raise
        self._check_files_of(stored, region)
        assert leaf.spec is not None
        return block if block.dtype == leaf.spec.dtype else block.view(leaf.spec.dtype)

    def _check_files_of(self, leaf: Leaf, region: Region) -> None:
        """Raise SourceError if a file has changed that a region was read from.

        All files count if some of the region lies in an index, or in chunks that there were not. Sources look
        themselves at the files of arrays without chunks.
        """
        if leaf.manifest is None or not region.size:
            return
        files = [chunk.file for _, chunk in stored_chunks(leaf.manifest, region)]
        if len(files) < touched(leaf.manifest, region).size or any(file not in self._files for file in files):
            self._check_all()
        else:
            self._compare({file: self._files[file] for file in files}, files)

    def _check_all(self) -> None:
        self._compare(self._files, self._source.files())

    def _compare(self, before: Mapping[str, FileState], files: Iterable[str]) -> None:
        """Raise SourceError, with their names, for files that are others than they were."""
        found = changes(before, states_by_path(files), times=True)
        if found:
            raise changed_since_opening(self.path, found)


def _as_read(leaf: Leaf, as_bfloat16: bool) -> Leaf:
    """Leaf with the dtype that it is read in."""
    if not as_bfloat16 or not is_uint16(leaf):
        return leaf
    assert leaf.spec is not None
    return replace(leaf, spec=ArraySpec(leaf.spec.shape, BFLOAT16))


def _relative(key: Key, prefix: str) -> Key:
    """A key without the components that a prefix has."""
    skipped = 0
    while len(prefix) > len(key.names[skipped]):
        prefix = prefix[len(key.names[skipped]) + 1 :]
        skipped += 1
    first, *others = key.names[skipped:]  # a component with a slash can begin in the prefix
    return Key((first[len(prefix) :], *others), key.sequences[skipped:])


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
        in_parts = manifest is not None and manifest.supports_partial_reads
        self._read_as_whole = None if in_parts else self.chunks

    @property
    def _unit(self) -> Shape | None:
        return self._read_as_whole

    @property
    def _kind(self) -> LeafKind:
        return self._leaf.kind

    def _read(self, region: Region) -> np.ndarray:
        return self._opened.read(self._leaf, region)

    def _as_source(self) -> tuple[Source, Leaf]:
        return self._opened, self._leaf
