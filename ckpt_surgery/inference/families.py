"""Keys that differ in indices alone, as families: `layers/{}/mlp/kernel` with the members 0 to 47.

Not every number in a key is an index. A number counts as one where it is a component of its own and takes
several values behind the same prefix (`layers/3/…`, `model.layers.3.…`), or where it is attached to a word
and takes the values 0 to N-1 with N of at least 3 (`layers_3`, `block_007`), or of 2 where the word counts
layers or experts (`layers_0`, `layers_1`). A number that never varies behind its prefix is part of a name
(`opt_state/0`), and so are those of `conv1` and `wi_0`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.concepts import counted

Numbers = tuple[str, ...]
"""The indices of a key in their order, as they are written: leading zeros are kept."""

_FEWEST = 3
"""How many values an index that is attached to a word takes at least."""
_COUNTED = frozenset({"layer", "expert"})
"""What is counted where there are two."""
_LONGEST = 18
"""Digits of the longest index: longer numbers are hashes or dates."""
_NUMBER = re.compile(rf"(?<![0-9])[0-9]{{1,{_LONGEST}}}(?![0-9])")
_SEPARATORS = "/."
MOST_KINDS = 8
"""Kinds of layers of one numbering: where there are more, they are no kinds."""


@frozen()
class Template:
    """A key with places for indices."""

    texts: tuple[str, ...]
    """What stands before, between and after the indices: one text more than there are indices."""

    @property
    def slots(self) -> int:
        """The number of indices."""
        return len(self.texts) - 1

    def key(self, numbers: Sequence[str]) -> str:
        """The key with these indices, as they are to be written."""
        return "".join(_between(self.texts, numbers))

    def __str__(self) -> str:
        return self.key(["{}"] * self.slots)


@dataclass(frozen=True)
class Family:
    """All keys of one checkpoint that a template stands for."""

    template: Template
    members: Mapping[Numbers, str]
    """The keys by their indices, in natural order."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The members' keys, in the order of their indices."""
        return tuple(self.members.values())


def families(keys: Iterable[str]) -> tuple[Family, ...]:
    """The families that these keys are, in the order of their first members; each key is in exactly one."""
    split = {key: _Split(key) for key in keys}
    waiting = [one for one in split.values() if one.pending()]
    while waiting:
        groups: dict[tuple[str, ...], list[_Split]] = {}
        for one in waiting:
            groups.setdefault(one.prefix(), []).append(one)
        for group in groups.values():
            own, attached = _told_apart(group)
            for part, counts in ((own, _varies(own)), (attached, _counts(attached))):
                for one in part:
                    one.decide(counts)
        waiting = [one for one in waiting if one.pending()]
    found: dict[Template, dict[Numbers, str]] = {}
    for key, one in split.items():
        found.setdefault(Template(tuple(one.texts)), {})[tuple(one.numbers)] = key
    return tuple(Family(template, _ordered(members)) for template, members in found.items())


def family_of(found: Iterable[Family]) -> dict[str, tuple[Family, Numbers]]:
    """The family of every key, and the key's indices in it."""
    return {key: (family, numbers) for family in found for numbers, key in family.members.items()}


class _Split:
    """One key while its numbers are told to be indices or parts of names, from left to right."""

    def __init__(self, key: str) -> None:
        found = list(_NUMBER.finditer(key))
        edges = [0, *(edge for match in found for edge in match.span()), len(key)]
        self._literals = [key[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
        self._numbers = [match.group() for match in found]
        self._next = 0
        self.texts = [self._literals[0]]
        self.numbers: list[str] = []

    def pending(self) -> bool:
        return self._next < len(self._numbers)

    def prefix(self) -> tuple[str, ...]:
        """What stands before the next number, its indices left out."""
        return tuple(self.texts)

    @property
    def number(self) -> str:
        return self._numbers[self._next]

    @property
    def own(self) -> bool:
        """Whether the next number is a component of its own."""
        before, after = self.texts[-1], self._literals[self._next + 1]
        starts = before == "" if len(self.texts) == 1 else False
        return (starts or before[-1:] in set(_SEPARATORS)) and (not after or after[0] in _SEPARATORS)

    def decide(self, index: bool) -> None:
        """Take the next number as an index, or as a part of the text around it."""
        number, after = self.number, self._literals[self._next + 1]
        if index:
            self.numbers.append(number)
            self.texts.append(after)
        else:
            self.texts[-1] += number + after
        self._next += 1


def _told_apart(group: Sequence[_Split]) -> tuple[list[_Split], list[_Split]]:
    own = [one for one in group if one.own]
    return own, [one for one in group if not one.own]


def _varies(group: Iterable[_Split]) -> bool:
    """Whether the next numbers of keys with one prefix, components of their own, are indices."""
    return len({int(one.number) for one in group}) > 1


def _counts(group: Sequence[_Split]) -> bool:
    """Whether the next numbers of keys with one prefix, which are attached to a word, are indices."""
    values = {int(one.number) for one in group}
    if values != set(range(len(values))):
        return False
    return len(values) >= _FEWEST or (len(values) == 2 and counted(group[0].texts[-1]) in _COUNTED)


def _ordered(members: Mapping[Numbers, str]) -> dict[Numbers, str]:
    return dict(sorted(members.items(), key=lambda item: [natural_order(number) for number in item[0]]))


def _between(texts: Sequence[str], numbers: Sequence[str]) -> Iterator[str]:
    yield texts[0]
    for number, text in zip(numbers, texts[1:], strict=True):
        yield number
        yield text


def layer_kinds(found: Iterable[Family]) -> list[frozenset[str]]:
    """The keys of the layers of each kind, where one numbering has several; kinds with few layers come first.

    Two layers are of one kind if the same names lie below them.
    """
    below: dict[str, dict[str, set[str]]] = {}
    keys: dict[tuple[str, str], list[str]] = {}
    for family in found:
        if family.template.slots:
            prefix, rest = family.template.texts[0], "{}".join(family.template.texts[1:])
            for numbers, key in family.members.items():
                below.setdefault(prefix, {}).setdefault(numbers[0], set()).add(rest)
                keys.setdefault((prefix, numbers[0]), []).append(key)
    kinds: list[list[str]] = []
    for prefix, layers in below.items():
        alike: dict[frozenset[str], list[str]] = {}
        for number, names in layers.items():
            alike.setdefault(frozenset(names), []).append(number)
        if 1 < len(alike) <= MOST_KINDS:
            kinds += [[key for number in some for key in keys[prefix, number]] for some in alike.values()]
    return [frozenset(kind) for kind in sorted(kinds, key=len)]
