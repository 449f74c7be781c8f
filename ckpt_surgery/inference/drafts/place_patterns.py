"""The pattern that several places of keys have in common, and what it claims beyond them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.inference.drafts.indices import condition
from ckpt_surgery.inference.drafts.key_patterns import (
    LONGEST,
    NUMBER,
    KeyPattern,
    Matched,
    NamedGroup,
    Piece,
    Universe,
    alternation,
    numbered,
    numbers_by_name,
)
from ckpt_surgery.inference.drafts.parts import KeyPlace
from ckpt_surgery.inference.keys.words import span_of

WORD = "word"
"""Name of the group that tells templates apart."""


@dataclass(frozen=True)
class Seen:
    """Several keys or prefixes as one pattern sees them."""

    pattern: KeyPattern
    matches: Mapping[KeyPlace, Matched]
    """What stands at the places of the pattern, for each key or prefix; what `rest` matches is left out."""


def seen_together(places: Sequence[KeyPlace]) -> Seen | None:
    """The pattern of these places: of one template, or of several that differ in one text between numbers."""
    templates = list(dict.fromkeys(place.template for place in places))
    rest = {place.rest for place in places}
    if len(rest) > 1 or len({template.slots for template in templates}) > 1:
        return None
    texts: list[tuple[Piece, ...]] = [(text,) for text in templates[0].texts]
    words = dict.fromkeys(templates, "")
    differing = [
        at
        for at, several in enumerate(zip(*(one.texts for one in templates), strict=True))
        if len({*several}) > 1
    ]
    if len(differing) > 1:
        return None
    for at in differing:
        span = span_of([template.texts[at] for template in templates])
        word = NamedGroup(WORD, alternation(dict.fromkeys(span.words)))
        if len(word.inner) > LONGEST:
            return None
        words = dict(zip(templates, span.words, strict=True))
        texts[at] = (span.before, word, span.after)
    matches = {
        place: {**numbers_by_name(place.numbers), **({WORD: words[place.template]} if differing else {})}
        for place in places
    }
    return Seen(numbered(texts, rest.pop()), matches)


def claimed(seen: Seen, universe: Universe) -> tuple[tuple[str, ...], str | None] | None:
    """The keys that the pattern claims for its places, and the condition that leaves out the others.

    None where there is no such condition.
    """
    wanted = {tuple(match.values()): match for match in seen.matches.values()}
    names = next(iter(wanted.values())).keys()
    keys: list[str] = []
    others: dict[tuple[str, ...], Matched] = {}
    reached = set()
    for key, match in universe.matched(seen.pattern).items():
        at = tuple(match[name] for name in names)
        if at in wanted:
            keys.append(key)
            reached.add(at)
        else:
            others[at] = match
    if len(reached) < len(wanted):
        return None
    when = separating(seen.pattern, list(wanted.values()), list(others.values())) if others else None
    return None if others and when is None else (tuple(keys), when)


def separating(pattern: KeyPattern, wanted: Sequence[Matched], others: Sequence[Matched]) -> str | None:
    """What holds for the numbers of all `wanted` keys and of no other; None where nothing does."""
    for group in pattern.groups:
        if group.inner == NUMBER:
            numbers, beyond = ([int(match[group.name]) for match in each] for each in (wanted, others))
            found = condition(numbers, beyond, f"int({group.name})")
            if found is not None:
                return found
    return None
