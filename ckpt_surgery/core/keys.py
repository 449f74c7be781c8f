"""Key paths: the components of a leaf's path, and the containers that they index and imply."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import field
from typing import Any

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.text import shown

SEPARATOR, ESCAPED = "/", r"\/"
"""Separator of the components of a key in its text, and its printed form inside a component."""


@frozen()
class Key:
    """The path of a leaf. Two keys are equal if their components and kinds of containers are."""

    names: tuple[str, ...]
    """Components as text; list indices as decimal digits. A component can contain `/`."""
    sequences: tuple[bool, ...]
    """Whether each component indexes a sequence (True), or a dict or attribute (False)."""
    text: str = field(init=False, compare=False, repr=False)
    """The components joined with `/`, without escapes. Regexes are matched against it, and it identifies a
    leaf of a checkpoint; `printed` is what people see."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", SEPARATOR.join(self.names))

    @staticmethod
    def parse(text: str) -> "Key":
        """The key whose components are the parts of `text` between `/`, all of them dict keys."""
        return Key.of(text.split(SEPARATOR))

    @staticmethod
    def of(names: Iterable[str]) -> "Key":
        """The key with these components, all of them dict keys."""
        parts = tuple(names)
        return Key(parts, (False,) * len(parts))

    @property
    def printed(self) -> str:
        r"""The components joined with `/`, with a `/` inside one as `\/`."""
        if self.text.count(SEPARATOR) < len(self.names):  # the usual case: no component has one
            return self.text
        return SEPARATOR.join(name.replace(SEPARATOR, ESCAPED) for name in self.names)

    def __str__(self) -> str:
        return self.text


def text_of(written: str) -> str:
    r"""The text of a key as a person wrote it, who may have written a `/` inside a component as `\/`."""
    return written.replace(ESCAPED, SEPARATOR)


def parts_of(printed: str) -> list[str]:
    """The components of a printed key, as they are printed."""
    return _UNESCAPED.split(printed)


_UNESCAPED = re.compile(rf"(?<!\\){SEPARATOR}")
_DIGITS = re.compile(r"(\d+)")


def natural_order(text: str) -> tuple[tuple[int, int, str, str], ...]:
    """A sort key that puts `layer_2` before `layer_10`."""
    tokens = _DIGITS.split(text)
    # Numbers stay text, by length and digits: Python makes no integers of more than 4,300 digits.
    digits = [token.lstrip("0") for token in tokens]
    pairs = enumerate(zip(tokens, digits, strict=True))
    return tuple((0, len(some), some, token) if i % 2 else (1, 0, token, "") for i, (token, some) in pairs)


def index_flaws(key: Key) -> Iterator[str]:
    """A sentence for each component that should index a list and is not a number."""
    for part, in_sequence in zip(key.names, key.sequences, strict=True):
        if in_sequence and not _is_index(part):
            why = f"the list index `{shown(part)}`, which is not a decimal number; rename it."
            yield f"`{shown(key.printed)}` has {why}"


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")


def container_flaws(keys: Sequence[Key]) -> Iterator[str]:
    """A sentence for each container that is neither a dict nor a list without gaps."""
    lists: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for key in keys:
        for i, is_index in enumerate(key.sequences):
            if is_index:
                lists[key.names[:i]].add(key.names[i])
    depths = {len(names) for names in lists}
    by_name = {key.names[:i] for key in keys for i in depths if not all(key.sequences[i : i + 1])}
    for names, indices in lists.items():
        if names in by_name:
            yield f"`{shown('/'.join(names))}` would be both a list and a dict; rename its children."
            continue
        missing = [str(i) for i in range(len(indices)) if str(i) not in indices]
        if missing and all(map(_is_index, indices)):
            lacks = f"has {len(indices)} elements but none at index {missing[0]}"
            what = "renumber them, or keep the ones that are missing."
            yield f"The list `{shown('/'.join(names))}` {lacks}; {what}"


def list_paths(keys: Iterable[Key]) -> frozenset[tuple[str, ...]]:
    """The paths of all lists around these keys: the components before each list index."""
    mixed = (key for key in keys if True in key.sequences)
    return frozenset(key.names[:i] for key in mixed for i, is_index in enumerate(key.sequences) if is_index)


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
