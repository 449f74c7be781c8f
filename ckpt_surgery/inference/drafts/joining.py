"""Join rules that differ in one slot of their keys: a tree, a word, or the number of a layer."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import (
    BELOW,
    LONGEST,
    KeyPattern,
    NamedGroup,
    Universe,
    alternation,
    differing_texts,
    span_of,
    tokens,
)
from ckpt_surgery.inference.drafts.parts import Kind, RuleDraft, Tables, TemplatePiece
from ckpt_surgery.inference.drafts.single_rules import rule_for
from ckpt_surgery.inference.keys.grids import SEPARATORS

TREE = "tree"
_UNALIKE = 8
"""Number of rules that are joined even if their keys have nothing in common."""
_ENDINGS = 12
"""Most endings in one rule."""


@frozen()
class Slot:
    """A place of a rule's pattern that is blank where rules are compared."""

    text: int
    """Index of the pattern's text that holds the word; behind the last one for a layer."""
    before: str = ""
    word: str = ""
    after: str = ""


Chosen = Sequence[tuple[RuleDraft, Slot]]


def join_rules(rules: Iterable[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Join the rules that differ in one slot: first in trees, then in words, then in layers."""
    joined = list(rules)
    for slots in (_trees, _words, _pairs, _layers):
        while len(fewer := _round(joined, slots, universe, tables)) < len(joined):
            joined = fewer
    return joined


def _trees(pattern: KeyPattern, rule: RuleDraft) -> Iterator[Slot]:
    """The components that a pattern begins with, such as `params` and `opt_state/0/mu`."""
    parts = tokens(pattern.texts[0])
    for end, part in enumerate(parts, start=1):
        if part not in SEPARATORS or (end == len(parts) and not pattern.groups):
            yield Slot(0, "", "".join(parts[:end]), "".join(parts[end:]))


def _words(pattern: KeyPattern, rule: RuleDraft) -> Iterator[Slot]:
    """The components of a pattern."""
    return _components(pattern, 1)


def _pairs(pattern: KeyPattern, rule: RuleDraft) -> Iterator[Slot]:
    """Two components that follow each other, such as `layer_001/EncDecAttention`."""
    return _components(pattern, 3)


def _components(pattern: KeyPattern, count: int) -> Iterator[Slot]:
    """Runs of `count` tokens of a text that begin and end with a component."""
    for at, text in enumerate(pattern.texts):
        parts = tokens(text)
        for here in range(len(parts) - count + 1):
            word = parts[here : here + count]
            if word[0] not in SEPARATORS and word[-1] not in SEPARATORS:
                yield Slot(at, "".join(parts[:here]), "".join(word), "".join(parts[here + count :]))


def _layers(pattern: KeyPattern, rule: RuleDraft) -> Iterator[Slot]:
    """The slot of the layer numbers that the condition of a rule tests."""
    if rule.when is not None and rule.outputs:
        yield Slot(len(pattern.texts))


def _round(
    rules: Sequence[RuleDraft],
    slots: Callable[[KeyPattern, RuleDraft], Iterator[Slot]],
    universe: Universe,
    tables: Tables,
) -> list[RuleDraft]:
    alike: dict[Hashable, list[tuple[int, Slot]]] = defaultdict(list)
    for number, rule in enumerate(rules):
        if rule.pattern is not None and rule.bundle:
            for slot in slots(rule.pattern, rule):
                alike[_frame(rule.pattern, rule, slot)].append((number, slot))
    joined: dict[int, RuleDraft | None] = dict(enumerate(rules))
    taken: set[int] = set()
    # In `params/q`, `params/k`, `mu/q` and `mu/k`, `params` and `mu` are the trees: more tokens follow them.
    follows = {
        frame: len(tokens(several[0][1].after)) * (slots is _trees) for frame, several in alike.items()
    }
    for frame in sorted(alike, key=lambda frame: (follows[frame], len(alike[frame])), reverse=True):
        free = {number: (rules[number], slot) for number, slot in alike[frame] if number not in taken}
        for numbers in _with_like_keys(free):
            joint = _joined([free[number] for number in numbers], universe, tables)
            if joint is not None:
                taken |= set(numbers)
                joined |= {**dict.fromkeys(numbers), min(numbers): joint}
    return [rule for rule in joined.values() if rule is not None]


def _frame(pattern: KeyPattern, rule: RuleDraft, slot: Slot) -> Hashable:
    """Everything outside the slot that has to be equal in rules to be joined."""
    texts = pattern.texts
    return (
        *(slot.text, slot.before, slot.after, texts[: slot.text], texts[slot.text + 1 :], pattern.groups),
        *(rule.kind, rule.by, rule.loops, rule.when if slot.word else None, len(_other_keys(rule))),
        tuple((output.formula, *map(_edges, output.to)) for output in rule.outputs),
    )


def _edges(piece: TemplatePiece) -> Hashable:
    """Only compare whether a text begins and ends with a separator."""
    return (piece[0] in SEPARATORS, piece[-1] in SEPARATORS) if isinstance(piece, str) else piece


def _with_like_keys(free: dict[int, tuple[RuleDraft, Slot]]) -> Iterator[list[int]]:
    """Batches of rules whose other keys differ in one text each at most, few enough for one pattern."""
    waiting = [list(free)]
    while waiting:
        several = waiting.pop()
        if len(several) < 2:
            continue
        columns = zip(*(_other_keys(free[number][0]) for number in several), strict=True)
        wide = [(at, texts) for at, column in enumerate(columns) if len(texts := differing_texts(column)) > 1]
        if wide:
            at, (text, *_) = wide[0]
            split: dict[Hashable, list[int]] = defaultdict(list)
            for number in several:
                split[_other_keys(free[number][0])[at].texts[text]].append(number)
            waiting += split.values()
        else:
            yield from _short_enough({number: free[number][1].word for number in several})


def _other_keys(rule: RuleDraft) -> list[KeyPattern]:
    """The patterns of the keys that a rule makes and looks up."""
    firsts = [group[0] for group in rule.bundle]
    return [place.pattern for part in firsts for place in (part.target, *part.looked_up) if place is not None]


def _short_enough(words: dict[int, str]) -> Iterator[list[int]]:
    numbers: list[int] = []
    length = 0
    for number, word in zip(words, span_of(list(words.values())).words, strict=True):
        size = len(alternation([word])) + 1
        if length + size > LONGEST:
            yield numbers
            numbers, length = [], 0
        numbers.append(number)
        length += size
    yield numbers


def _joined(chosen: Chosen, universe: Universe, tables: Tables) -> RuleDraft | None:
    """One rule in place of these; None if no rule fits, or if they have too little in common."""
    rules, slots = [rule for rule, _ in chosen], [slot for _, slot in chosen]
    if len(rules) < 2:
        return None
    if slots[0].word:
        unalike = len(rules) < _UNALIKE and _unalike([rule.pattern for rule in rules if rule.pattern])
    else:
        unalike = any(map(_unalike, zip(*map(_other_keys, rules), strict=True)))
    if unalike:
        return None
    groups = zip(*(rule.bundle for rule in rules), strict=True)
    bundle = [[part for group in several for part in group] for several in groups]
    leading = bool(slots[0].word) and not slots[0].text and not slots[0].before
    tree = leading and all(
        group[0].target is None or group[0].target.text.startswith(slot.word)
        for rule, slot in chosen
        for group in rule.bundle
    )
    return rule_for(bundle, universe, tables, TREE if tree else "")


def _unalike(patterns: Sequence[KeyPattern]) -> bool:
    """True if keys have nothing in common."""
    span = span_of([pattern.texts[0] for pattern in patterns])
    return not any(pattern.groups for pattern in patterns) and not (span.before + span.after).strip("/.")


# --- many that make nothing -------------------------------------------------------------------------------


def by_endings(kind: Kind, keys: Sequence[str], universe: Universe) -> RuleDraft | None:
    """One rule for exactly these keys, by prefix and endings, such as `state/.*/(?:m|kernel/v)`.

    None if no such rule fits.
    """
    before = span_of(keys).before if len(keys) > 1 else ""
    prefix = before[: before.rfind("/") + 1]
    meant = dict.fromkeys(keys)
    others = {
        ending
        for key in universe.below(prefix)
        if key not in meant
        for ending in _endings(key[len(prefix) :])
    }
    shortest = [
        next((end for end in _endings(key[len(prefix) :]) if end not in others), None) for key in keys
    ]
    words = alternation(sorted({ending for ending in shortest if ending is not None}))
    pattern = KeyPattern((prefix, "/", ""), (BELOW, NamedGroup("word", words)))
    few = len(meant) > 1 and len(set(shortest)) <= _ENDINGS and len(words) <= LONGEST
    if not few or universe.matched(pattern).keys() != meant.keys():
        return None
    return RuleDraft(kind, pattern, (), tuple(keys), 0 if kind is Kind.DROPPED else len(keys))


def _endings(key: str) -> Iterator[str]:
    """The last component of a key, the last two, …"""
    for slash in reversed(list(re.finditer("/", key))):
        yield key[slash.end() :]
