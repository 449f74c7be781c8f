"""Rules on prefixes instead of single leaves: subtrees that move, are dropped or filled."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

from ckpt_surgery.inference.drafts.key_patterns import place_of, prefix_of
from ckpt_surgery.inference.drafts.parts import RulePart
from ckpt_surgery.inference.expressions.formations import Formation, X
from ckpt_surgery.inference.keys.grids import SEPARATORS

_SEPARATOR = re.compile("[/.]")
Mark = Callable[[str, int], Hashable]
"""Mark of a key below a prefix of this length; None if no rule on that prefix can cover the key."""


def subtrees(keys: Iterable[str], mark: Mark) -> Iterator[tuple[int, Sequence[str]]]:
    """The largest subtrees whose keys all have one mark: the length of the prefix, and the keys below it.

    A prefix ends with a separator, or is empty. Keys that are in no such subtree do not appear.
    """
    waiting = [("", sorted(set(keys)))]
    while waiting:
        prefix, below = waiting.pop()
        length = len(prefix)
        if len(below) < 2:
            continue
        first = mark(below[0], length)
        if first is not None and all(mark(key, length) == first for key in below):
            yield length, below
            continue
        deeper: dict[str, list[str]] = defaultdict(list)
        for key in below:
            separator = _SEPARATOR.search(key, length)
            if separator:
                deeper[key[: separator.end()]].append(key)
        waiting += reversed(deeper.items())


def made_parts(formations: Sequence[Formation], among: Iterable[str]) -> list[RulePart]:
    """Parts of the rules that make leaves of those `among` the source's, in the order of the target:
    formations and moved subtrees."""
    uses = Counter(source for formation in formations for source in formation.sources)
    moved = {
        formation.sources[0]: formation
        for formation in formations
        if formation.value == X and len(formation.sources) == 1 and uses[formation.sources[0]] == 1
    }
    subtree: dict[str, RulePart] = {}
    for length, keys in subtrees(among, lambda key, length: _around(moved, key, length)):
        around = _around(moved, keys[0], length)
        assert around is not None, "subtrees consist of leaves that move alike"
        reasons = tuple((moved[key].evidence, moved[key].why) for key in keys)
        places = (prefix_of(keys[0][:length]),), prefix_of(*around)
        subtree |= dict.fromkeys(keys, RulePart(*places, X, reasons))
    parts: dict[int, RulePart] = {}
    for formation in formations:
        part = subtree.get(formation.sources[0]) or part_of(formation)
        parts.setdefault(id(part), part)
    return list(parts.values())


def _around(moved: Mapping[str, Formation], key: str, length: int) -> tuple[str, str] | None:
    """Prefix and suffix that the target key adds to `key[length:]`; None if it is not such a key.

    The suffix is empty, or one component.
    """
    if key not in moved:
        return None
    target, rest = moved[key].target, key[length:]
    for end in (len(target), max(target.rfind(separator) for separator in SEPARATORS)):
        if end > 0 and target[:end].endswith(rest):
            prefix = target[: end - len(rest)]
            return (prefix, target[end:]) if not prefix or prefix.endswith(SEPARATORS) else None
    return None


def part_of(formation: Formation) -> RulePart:
    """The part of a rule that one formation is."""
    sources = tuple(map(place_of, formation.sources))
    reasons = ((formation.evidence, formation.why),)
    return RulePart(sources, place_of(formation.target), formation.value, reasons)
