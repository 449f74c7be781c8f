"""Functions of flat dicts, `{"a/b": leaf}`, as functions of trees."""

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from ckpt_surgery.core.errors import Problem, UsageError
from ckpt_surgery.core.keys import SEPARATOR, Key, list_paths, nested
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.tree import LiveTree, live_tree

Names = tuple[str, ...]


def with_flat_dicts(recipe: Any, flat: bool) -> Any:
    """Return the recipe, or if `flat` is true, wrap a function of flat dicts as one of trees.

    Raises UsageError for a recipe that is not a function, of which `flat` says nothing.
    """
    if flat and (not callable(recipe) or isinstance(recipe, str)):
        raise UsageError(
            "`flat=True` says what a function gets and returns, and the recipe is not a function",
            hint="Leave out `flat=True`.",
        )
    return OnFlatDicts(recipe) if flat else recipe


class OnFlatDicts:
    """Wraps a function of flat dicts `{"a/b": leaf}`, to be called with trees."""

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)
        self.func = function

    def __call__(self, *trees: Any) -> Any:
        """Call the function with the leaves of each tree, and build a tree of the returned leaves.

        The result has nested dicts, with lists where the trees have lists at the same keys; it is a flat dict
        where the trees are. Raises UsageError if the function does not return a flat dict.
        """
        listed = [live_tree(tree) for tree in trees]
        returned = self.func(*(dict(tree.values) for tree in listed))
        _check(returned)
        if all(map(_is_flat, listed)):
            by_tuples = all(() in tree.tuple_dicts for tree in listed)
            return {tuple(t.split(SEPARATOR)) if by_tuples else t: value for t, value in returned.items()}
        lists = list_paths(leaf.key for tree in listed for leaf in tree.leaves.values())
        members: dict[Names, set[str]] = {}
        split = {text: tuple(text.split(SEPARATOR)) for text in returned}
        for names in split.values():
            for i in range(len(names)):
                members.setdefault(names[:i], set()).add(names[i])
        indices = {names: set(map(str, range(len(children)))) for names, children in members.items()}
        whole = {names for names in lists if names in members and members[names] == indices[names]}
        return nested((_key(split[text], whole), value) for text, value in returned.items())


def _is_flat(tree: LiveTree) -> bool:
    """True for a dict whose keys are whole paths."""
    keys = [leaf.key for leaf in tree.leaves.values()]
    return all(len(key.names) == 1 for key in keys) and any(SEPARATOR in key.text for key in keys)


def _key(names: Names, lists: Set[Names]) -> Key:
    return Key(names, tuple(names[:i] in lists for i in range(len(names))))


def _check(returned: Any) -> None:
    """Raise UsageError unless a function returned a flat dict, with keys that fit into one tree."""
    if not isinstance(returned, Mapping):
        raise UsageError(
            f"the function returns {shown(abridged(returned))}, not a flat dict",
            hint='With `flat=True` it has to return `{"a/b": leaf}`.',
        )
    others = [key for key in returned if not isinstance(key, str)]
    if others:
        raise UsageError(
            f"the function returns a dict with the key {shown(abridged(others[0]))}, which is not a text",
            hint='With `flat=True` it has to return `{"a/b": leaf}`.',
        )
    inside = [key for key in returned if _prefixes(key) & returned.keys()]
    if inside:
        raise UsageError(*(_both(key, min(_prefixes(key) & returned.keys(), key=len)) for key in inside))


def _prefixes(key: str) -> Set[str]:
    names: Sequence[str] = key.split(SEPARATOR)
    return {SEPARATOR.join(names[:i]) for i in range(1, len(names))}


def _both(key: str, container: str) -> Problem:
    return Problem(
        f"the function returns `{shown(container)}`, and below it `{shown(key)}`: a leaf cannot have others "
        "inside",
        hint="Rename one of them.",
    )
