"""Dicts and lists of a checkpoint that read a value when it is first used."""

import functools
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any

from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.restored_values import restored_value

if TYPE_CHECKING:
    _Dict = dict[Any, Any]
    _List = list[Any]
else:

    class _Dict(MutableMapping, dict):
        """Dict whose methods for values go through `__getitem__`."""

    class _List(MutableSequence, list):
        """List whose methods for elements go through `__getitem__`."""


class ReadingDict(_Dict):
    """A dict in which a value is read when it is first used, and kept. `jax.tree` sees its own node."""

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if isinstance(value, LazyArray):
            value = restored_value(value)
            dict.__setitem__(self, key, value)
        return value

    __setitem__, __delitem__, __len__ = dict.__setitem__, dict.__delitem__, dict.__len__
    __contains__, __reversed__ = dict.__contains__, dict.__reversed__

    def __iter__(self) -> Iterator[Any]:  # defined here, so that `dict(self)` does not copy what is stored
        return dict.__iter__(self)

    def __repr__(self) -> str:
        return repr(settled(self))

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def copy(self) -> dict[Any, Any]:
        """An ordinary dict with the values."""
        return dict(self.items())

    def __reduce__(self) -> Any:
        return dict, (settled(self),)


class ReadingList(_List):
    """A list in which an element is read when it is first used, and kept. `jax.tree` sees its own node."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        value = list.__getitem__(self, index)
        if isinstance(value, LazyArray):
            value = restored_value(value)
            list.__setitem__(self, index, value)
        return value

    __setitem__, __delitem__, __len__, insert = list.__setitem__, list.__delitem__, list.__len__, list.insert

    def __repr__(self) -> str:
        return repr(settled(self))

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    def __add__(self, other: Any) -> Any:
        return self.copy() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.copy()

    def __mul__(self, count: Any) -> Any:
        return self.copy() * count

    __rmul__ = __mul__

    def copy(self) -> list[Any]:
        """An ordinary list with the elements."""
        return [*self]

    def __reduce__(self) -> Any:
        return list, (settled(self),)


def reading(tree: Any) -> Any:
    """Wrap dicts and lists so that the LazyArrays in them are read when they are used."""
    _register()
    if isinstance(tree, dict):
        return ReadingDict({name: reading(value) for name, value in tree.items()})
    return ReadingList(map(reading, tree)) if type(tree) is list else tree


def settled(tree: Any) -> Any:
    """Read everything in a tree, and replace its reading dicts and lists by ordinary ones."""
    import jax

    if isinstance(tree, ReadingDict):
        return {name: settled(value) for name, value in tree.items()}
    if isinstance(tree, ReadingList):
        return [settled(value) for value in tree]
    if any(map(_reads, jax.tree.leaves(tree, is_leaf=_reads))):
        return jax.tree.map(lambda node: settled(node) if _reads(node) else node, tree, is_leaf=_reads)
    return tree


def _reads(node: Any) -> bool:
    return isinstance(node, ReadingDict | ReadingList)


@functools.cache
def _register() -> None:
    """Let `jax.tree` see the containers: it makes ordinary ones of them."""
    from jax.tree_util import DictKey, SequenceKey, register_pytree_with_keys

    def items(node: Mapping[Any, Any]) -> tuple[Any, Any]:
        names = tuple(sorted(node))
        return [(DictKey(name), node[name]) for name in names], names

    def elements(node: ReadingList) -> tuple[Any, Any]:
        return [(SequenceKey(i), value) for i, value in enumerate(node)], None

    def dict_of(names: Any, values: Any) -> Any:
        return dict(zip(names, values, strict=True))

    register_pytree_with_keys(ReadingDict, items, dict_of)
    register_pytree_with_keys(ReadingList, elements, lambda _, values: [*values])  # type: ignore[arg-type,return-value]
