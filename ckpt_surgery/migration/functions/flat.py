"""Functions of flat dicts, `{"a/b": leaf}`, as functions of trees."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from ckpt_surgery.core.errors import Problem, UsageError
from ckpt_surgery.core.keys import SEPARATOR, Key, list_paths, nested
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.live.tree import LiveTree, live_tree


def with_flat_dicts(recipe: Any, flat: bool) -> Any:
    """Wrap a function of flat dicts as one of trees if `flat`. Raises UsageError for what is no function."""
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
        split = {text: tuple(text.split(SEPARATOR)) for text in returned}
        if all(map(_is_flat, listed)):
            by_tuples = all(() in tree.tuple_dicts for tree in listed)
            return {split[text] if by_tuples else text: value for text, value in returned.items()}
        members = defaultdict[tuple[str, ...], set[str]](set)
        for names in split.values():
            for i, name in enumerate(names):
                members[names[:i]].add(name)
        lists = {
            names
            for names in list_paths(leaf.key for tree in listed for leaf in tree.leaves.values())
            if members[names] == set(map(str, range(len(members[names]))))
        }
        keys = {
            t: Key(names, tuple(names[:i] in lists for i in range(len(names)))) for t, names in split.items()
        }
        return nested((keys[text], value) for text, value in returned.items())


def _is_flat(tree: LiveTree) -> bool:
    """True for a dict whose keys are whole paths."""
    keys = [leaf.key for leaf in tree.leaves.values()]
    return all(len(key.names) == 1 for key in keys) and any(SEPARATOR in key.text for key in keys)


def _check(returned: Any) -> None:
    """Raise UsageError unless a function returned a flat dict, with keys that fit into one tree."""
    others = [key for key in returned if not isinstance(key, str)] if isinstance(returned, Mapping) else []
    if others or not isinstance(returned, Mapping):
        what = f"a dict with the key {shown(abridged(others[0]))}" if others else shown(abridged(returned))
        raise UsageError(
            f"the function returns {what}, which is not a flat dict",
            hint='With `flat=True` it has to return `{"a/b": leaf}`.',
        )
    problems = []
    for key in returned:
        prefixes = itertools.accumulate(key.split(SEPARATOR)[:-1], lambda above, name: f"{above}/{name}")
        if (container := next((prefix for prefix in prefixes if prefix in returned), None)) is not None:
            both = f"`{shown(container)}`, and below it `{shown(key)}`"
            message = f"the function returns {both}: a leaf cannot have others inside"
            problems.append(Problem(message, hint="Rename one of them."))
    if problems:
        raise UsageError(*problems)
