"""Leaves that are dropped or filled by how their keys end: `state/.*/(?:m|kernel/v)`."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from ckpt_surgery.inference.key_patterns import LONGEST, REST, Group, Pattern, Universe, alternation
from ckpt_surgery.inference.parts import Kind
from ckpt_surgery.inference.rule_drafts import RuleDraft
from ckpt_surgery.inference.words import span_of

_MOST = 12
"""How many endings a rule names at most."""
_SEPARATOR = "/"


def by_endings(kind: Kind, keys: Sequence[str], universe: Universe) -> RuleDraft | None:
    """One rule about these keys alone, by what they begin and end with; None where there is none."""
    if len(keys) < 2:
        return None
    before = span_of(keys).before
    prefix = before[: before.rfind(_SEPARATOR) + 1]
    below = [(key, key[len(prefix) :].split(_SEPARATOR)) for key in universe.below(prefix)]
    endings = list(_endings(below, set(keys), 1))
    if None in endings or not 0 < len(endings) <= _MOST:
        return None
    words = alternation(sorted(ending for ending in endings if ending is not None))
    pieces = (prefix, Group("rest", REST), _SEPARATOR, Group("word", words))
    pattern = Pattern(tuple(piece for piece in pieces if piece))
    if len(words) > LONGEST or universe.matched(pattern).keys() != set(keys):
        return None
    return RuleDraft(kind, pattern, (), tuple(keys), 0 if kind is Kind.DROPPED else len(keys))


def _endings(
    several: Sequence[tuple[str, list[str]]], meant: Collection[str], length: int
) -> Iterator[str | None]:
    """The shortest endings that only keys that are meant have; None for a key that has no such ending."""
    groups: dict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    for key, parts in several:
        groups[tuple(parts[-length:])].append((key, parts))
    for ending, group in groups.items():
        inside = [key in meant for key, _ in group]
        if not any(inside):
            continue
        if any(len(parts) <= length for _, parts in group):
            yield None
        elif all(inside):
            yield _SEPARATOR.join(ending)
        else:
            yield from _endings(group, meant, length + 1)
