"""Checkpoints that stay open for a program: mappings of keys to arrays that are read when they are asked for.

Nothing is read any more once they are closed or their files have changed.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import KeyNotFound, SurgeryError, UsageError
from ckpt_surgery.core.file_states import FileState, changes
from ckpt_surgery.core.keys import SEPARATOR, Key, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, parts_of_chunks
from ckpt_surgery.core.protocols import Choices, Source, details_of
from ckpt_surgery.core.summary import Represented, Summary
from ckpt_surgery.core.text import chosen_text, shown
from ckpt_surgery.inputs.matching import check_matched, matching
from ckpt_surgery.inputs.opening import changed_since_opening, open_input
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import InMemory, OpenCheckpoint, OpenedPath, uint16_at
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import plain_value
from ckpt_surgery.planner.disguised import as_bfloat16, is_uint16
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.tree import listing_summary, parameters
from ckpt_surgery.report.values import shared_texts, statistics
from ckpt_surgery.storage.samples import states_by_path
from ckpt_surgery.system.resources import default_memory


class OpenSource:
    """A source that stays open for a program, and refuses to read once it has changed. Safe for threads."""

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

        All files count if some of the region does not lie in chunks of files: in an index, in chunks that
        are missing, or in an array without a grid of chunks.
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
        self._is_disguised = is_uint16(leaf) and leaf.key.text in details_of(opened.stored).disguised_bfloat16

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


class Checkpoint(OpenCheckpoint, Represented, Mapping[str, Any]):
    """An open checkpoint, or a subtree of one, as a mapping from keys to values.

    Keys are those of leaves, in the checkpoint's order, with `/` between their components; `len` and
    iteration know no others. A value is a `LazyArray`, a text, or an empty node: None, `{}`, `[]` or `()`.
    The key of a subtree gives a Checkpoint whose keys are relative to it. It can be given wherever the path
    of a checkpoint can; a subtree cannot.

    Safe to use from several threads. Pickled, it opens the checkpoint again, which must not have changed.
    """

    def __init__(self, opened: "OpenSource", prefix: str = ""):
        """Called by `ckpt_surgery.open`. `prefix`: key of the subtree, ending in `/`; empty for the whole."""
        self._opened = opened
        self._prefix = prefix
        start = len(prefix)
        self._leaves = {t[start:]: leaf for t, leaf in opened.leaves().items() if t.startswith(prefix)}

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
        """Number of the model's parameters: elements of all arrays but optimizer states and counters."""
        return parameters(self._leaves.values())

    @property
    def tree(self) -> Any:
        """All values in dicts and lists, as they were saved. Nothing is read."""
        return self._opened.tree(self._leaves.values(), self._prefix)

    def _summary(self) -> Summary:
        name = f"{self.path}: {self._prefix.removesuffix(SEPARATOR)}" if self._prefix else self.path
        about = f"{name} ({chosen_text(self.format, self.step, self.item)}{', closed' * self.closed})"
        leaves = tuple(self._leaves.values())
        names = leaves[0].key.names if self._prefix else ()  # of which one may have slashes in it
        starts = itertools.accumulate((f"{name}{SEPARATOR}" for name in names), initial="")
        inside = list(starts).index(self._prefix)
        return listing_summary(about, leaves, shared_texts(leaves, {}), inside=inside)

    def __getitem__(self, key: str) -> Any:
        """Value of a leaf, or the subtree with this key. Raises KeyNotFound."""
        leaf = self._leaves.get(key)
        if leaf is not None:
            return self._opened.value(leaf)
        if key in self._subtrees:
            return Checkpoint(self._opened, f"{self._prefix}{key}{SEPARATOR}")
        where = f"in `{shown(self._prefix.rstrip(SEPARATOR))}`" if self._prefix else ""
        # Keys that may be meant: they differ only in the first component that does not exist.
        names = str(key).split(SEPARATOR)
        known = max(n for n in range(len(names)) if not n or SEPARATOR.join(names[:n]) in self._subtrees)
        start = "".join(f"{name}{SEPARATOR}" for name in names[:known])
        rest = "".join(f"{SEPARATOR}{name}" for name in names[known + 1 :])
        inside = (text[len(start) :] for text in self._leaves if text.startswith(start))
        children = dict.fromkeys(f"{start}{text.partition(SEPARATOR)[0]}" for text in inside)
        similar = [child + rest for child in children if child + rest in self]
        raise KeyNotFound.among(str(key), similar or children, where)

    def __contains__(self, key: object) -> bool:
        """True if a leaf or a subtree has this key."""
        return key in self._leaves or key in self._subtrees

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def get(self, key: str, default: Any = None) -> Any:
        """Value or subtree with this key, as by indexing; `default` if there is none."""
        if key in self:  # indexing would look for similar keys
            return self[key]
        return default

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    @functools.cached_property
    def _subtrees(self) -> frozenset[str]:
        """Keys of all subtrees: every proper prefix of a leaf's key."""
        prefixes = set[str]()
        for text in self._leaves:
            end = text.rfind(SEPARATOR)
            while end > 0 and text[:end] not in prefixes:
                prefixes.add(text[:end])
                end = text.rfind(SEPARATOR, 0, end)
        return frozenset(prefixes)

    def statistics(self, match: str | None = None) -> Mapping[str, Statistics | Unread]:
        """Read every array; return the statistics of its values, or why it has none, by key.

        `match` is a regular expression for whole keys, as in recipes. Raises UsageError where it matches
        none, and SourceError for files that changed.
        """
        chosen = matching(self._leaves, match)
        check_matched(match, len(chosen), self._leaves)
        by_text = statistics(self._opened, default_memory(), chosen.values())
        return {key: by_text[leaf.key.text] for key, leaf in chosen.items() if leaf.key.text in by_text}

    @property
    def closed(self) -> bool:
        """True once it is closed: then nothing can be read any more."""
        return self._opened.closed

    def close(self) -> None:
        """Refuse all further reads, also of its arrays that exist already. Shapes and dtypes stay known."""
        self._opened.closed = True

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _as_source(self) -> OpenedPath | InMemory:
        """Path or tree, for functions that open sources. Raises UsageError for a subtree, or if closed."""
        if self._prefix:
            name = shown(self._prefix.rstrip(SEPARATOR))
            hint = "Give the whole checkpoint, with a recipe that keeps this part, or the arrays: `.tree`."
            raise UsageError(f"`{name}` is a part of {shown(self.path)}, and no source by itself", hint=hint)
        self._opened.check_open()
        return self._opened.given

    def __reduce__(self) -> Any:
        given = self._opened.given
        if isinstance(given, InMemory):
            problem = "a checkpoint that is a tree in memory cannot be pickled"
            raise UsageError(problem, hint="Pickle the tree itself.")
        path = OpenedPath(urls.absolute(given))
        vars(path).update(vars(given), files={})
        return _unpickled, (path, self._prefix)


def open_checkpoint(
    given: str | InMemory, step: int | None, item: str | None, format: str | None, uint16: str
) -> Checkpoint:
    """Open a checkpoint, or list a tree. Raises SourceError or UsageError."""
    source = open_input(given, step=step, item=item, src_format=format)
    if isinstance(given, OpenedPath | InMemory) and given.uint16 == "bfloat16":
        uint16 = given.uint16
    return Checkpoint(kept_open(source, uint16, given if isinstance(given, InMemory) else None))


def _unpickled(given: OpenedPath, prefix: str) -> Checkpoint:
    """Open a pickled checkpoint again. Raises SourceError if it has changed."""
    opened = open_checkpoint(given, None, None, None, given.uint16)
    return Checkpoint(opened._opened, prefix) if prefix else opened
