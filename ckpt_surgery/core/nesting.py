"""Dicts and lists within each other, made of values by their keys."""

from collections.abc import Iterable, Set
from typing import Any

from ckpt_surgery.core.keys import SEPARATOR, Key


def nested(values: Iterable[tuple[Key, Any]], tuple_dicts: Set[tuple[str, ...]] = frozenset()) -> Any:
    """Build dicts and lists with these values: a component that is an index makes its container a list.

    `tuple_dicts`: keys of the flat dicts whose keys are tuples.

    The keys are a tree: none is both a leaf and a container. The empty key is the value itself. Lists
    have no gaps: see `container_flaws`.
    """
    root: dict[Any, Any] = {}
    lists: set[int] = set()
    for key, value in values:
        if not key.names:
            return value
        node = root
        for name, is_index in zip(key.names[:-1], key.sequences[:-1], strict=True):
            if is_index:
                lists.add(id(node))
            node = node.setdefault(name, {})
        if key.sequences[-1]:
            lists.add(id(node))
        last = key.names[-1]
        node[tuple(last.split(SEPARATOR)) if key.names[:-1] in tuple_dicts else last] = value
    return _with_lists(root, lists)


def _with_lists(node: Any, lists: set[int]) -> Any:
    if type(node) is not dict:
        return node
    inner = {name: _with_lists(value, lists) for name, value in node.items()}
    return [inner[name] for name in sorted(inner, key=int)] if id(node) in lists else inner
