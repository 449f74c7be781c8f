"""Checkpoints as mappings: keys to arrays that are read when they are asked for."""

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import KeyNotFound, UsageError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.summary import Represented, Summary
from ckpt_surgery.core.text import chosen_text, shown
from ckpt_surgery.inputs.matching import check_matched, matching
from ckpt_surgery.inputs.open_sources import OpenSource, kept_open
from ckpt_surgery.inputs.opening import open_input
from ckpt_surgery.inputs.request import InMemory, OpenCheckpoint, OpenedPath
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.tree import listing_summary, parameters
from ckpt_surgery.report.values import shared_texts, statistics
from ckpt_surgery.system.resources import default_memory


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
        depth = 0 if not self._prefix else _components(self._prefix, leaves[0])
        return listing_summary(about, leaves, shared_texts(leaves, {}), inside=depth)

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


def _components(prefix: str, leaf: Leaf) -> int:
    """Number of components in the key of a leaf's subtree; a component may contain slashes."""
    starts = itertools.accumulate((f"{name}{SEPARATOR}" for name in leaf.key.names), initial="")
    return list(starts).index(prefix)


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
