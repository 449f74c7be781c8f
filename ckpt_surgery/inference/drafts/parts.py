"""What rules are made of: formations, moved subtrees and dropped leaves, as templates with numbers.

Parts with the same templates and value are one group; groups that read the same leaves are one
bundle, because only one rule can claim a leaf.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.expressions.formations import Evidence, Value
from ckpt_surgery.inference.keys.grids import KeyTemplate, Numbers, Places

MOVED = Value("x")

Reason = tuple[Evidence, str]
"""Why one leaf counts as decided: the evidence, and a clause that says more or nothing."""


class Kind(enum.StrEnum):
    """What a rule does with the leaves that it claims."""

    MADE = "made"
    """Leaves of the target are made of them, or they get other names."""
    KEPT = "kept"
    DROPPED = "dropped"
    FILLED = "filled"
    """Leaves of the target, which keep the target's own value."""


@frozen()
class KeyPlace:
    """A key, or with `rest` all keys that begin with it, as a template and its numbers."""

    template: KeyTemplate
    numbers: Numbers
    rest: bool = False
    suffix: str = ""
    """What stands behind the rest of each of these keys."""

    @property
    def text(self) -> str:
        """The key, or what the keys begin with."""
        return self.template.key(self.numbers)


@frozen()
class RulePart:
    """One formation, or what befalls one leaf or subtree otherwise."""

    kind: Kind
    sources: tuple[KeyPlace, ...]
    """In the order of `xs`. For `FILLED`, keys of the target."""
    target: KeyPlace | None
    """None where nothing is made."""
    value: Value = MOVED
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that is made."""
    looked_up: tuple[KeyPlace | None, ...] = ()
    """Where the rule claims one source and looks the others up: all of `xs`, None for the one claimed."""


Group = Sequence[RulePart]
"""Parts that differ in numbers alone."""
Bundle = Sequence[Group]
"""Groups that read the same leaves."""


def place_of(key: str, places: Places) -> KeyPlace:
    """A key as its family sees it."""
    family, numbers = places[key]
    return KeyPlace(family.template, numbers)


def prefix_of(key: str, length: int, places: Places, suffix: str = "") -> KeyPlace:
    """The first `length` characters of a key as its family sees them, standing for all that is below.

    `suffix`: what all of that ends with.
    """
    family, numbers = places[key]
    texts: list[str] = []
    left = length
    for slot, text in enumerate(family.template.texts):
        texts.append(text[:left])
        left -= len(text)
        if left <= 0 or slot == len(numbers):
            break
        left -= len(numbers[slot])
    return KeyPlace(KeyTemplate(tuple(texts)), tuple(numbers[: len(texts) - 1]), rest=True, suffix=suffix)


def bundles(parts: Iterable[RulePart]) -> list[Bundle]:
    """The parts in bundles, in the order of their first parts."""
    groups: dict[object, list[RulePart]] = defaultdict(list)
    for part in parts:
        groups[_alike(part)].append(part)
    joined = _Joined()
    for number, group in enumerate(groups.values()):
        for part in group:
            for place in part.sources:
                joined.join(("group", number), place)
    found: dict[object, list[Group]] = defaultdict(list)
    for number, group in enumerate(groups.values()):
        found[joined.root(("group", number))].append(group)
    return list(found.values())


def _alike(part: RulePart) -> object:
    templates = tuple(dict.fromkeys((place.template, place.rest) for place in part.sources))
    target = None if part.target is None else (part.target.template, part.target.suffix)
    return part.kind, target, templates, part.value.text, bool(part.looked_up)


def components(bundle: Bundle) -> list[Bundle]:
    """The parts of a bundle that hang together: no two components read the same leaf."""
    joined = _Joined()
    for number, part in _numbered(bundle):
        for place in part.sources:
            joined.join(("part", number), place)
    found: dict[object, dict[int, list[RulePart]]] = defaultdict(lambda: defaultdict(list))
    number = 0
    for index, group in enumerate(bundle):
        for part in group:
            found[joined.root(("part", number))][index].append(part)
            number += 1
    return [[one[index] for index in sorted(one)] for one in found.values()]


def united(several: Iterable[Bundle]) -> Bundle:
    """Bundles as one."""
    groups: dict[object, list[RulePart]] = defaultdict(list)
    for bundle in several:
        for group in bundle:
            groups[_alike(group[0])].extend(group)
    return list(groups.values())


def _numbered(bundle: Bundle) -> Iterator[tuple[int, RulePart]]:
    return enumerate(part for group in bundle for part in group)


class _Joined:
    """Sets of things that belong together."""

    def __init__(self) -> None:
        self._above: dict[object, object] = {}

    def root(self, one: object) -> object:
        """The thing that stands for all that `one` belongs to."""
        above = self._above
        while above.setdefault(one, one) != one:
            above[one] = one = above[above[one]]
        return one

    def join(self, one: object, other: object) -> None:
        self._above[self.root(other)] = self.root(one)
