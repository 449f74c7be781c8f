"""Join rules that differ in one slot of their keys: a tree, a word, or the number of a layer."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

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


Slots = Callable[[KeyPattern, RuleDraft], Iterator[Slot]]


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


def _words(pattern: KeyPattern, rule: RuleDraft, count: int = 1) -> Iterator[Slot]:
    """The components of a pattern: runs of `count` tokens that begin and end with a component."""
    for at, text in enumerate(pattern.texts):
        parts = tokens(text)
        for here in range(len(parts) - count + 1):
            word = parts[here : here + count]
            if word[0] not in SEPARATORS and word[-1] not in SEPARATORS:
                yield Slot(at, "".join(parts[:here]), "".join(word), "".join(parts[here + count :]))


_pairs = partial(_words, count=3)
"""Two components that follow each other, such as `layer_001/EncDecAttention`."""


def _layers(pattern: KeyPattern, rule: RuleDraft) -> Iterator[Slot]:
    """The slot of the layer numbers that the condition of a rule tests."""
    if rule.when is not None and rule.outputs:
        yield Slot(len(pattern.texts))


def _round(rules: Sequence[RuleDraft], slots: Slots, universe: Universe, tables: Tables) -> list[RuleDraft]:
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
        free = {number: slot for number, slot in alike[frame] if number not in taken}
        for numbers in _with_like_keys(free, rules):
            words = any(free[number].word for number in numbers)
            joint = _joined([rules[number] for number in numbers], words, universe, tables)
            if joint is not None:
                taken |= set(numbers)
                joined |= {**dict.fromkeys(numbers), min(numbers): joint}
    return [rule for rule in joined.values() if rule is not None]


def _frame(pattern: KeyPattern, rule: RuleDraft, slot: Slot) -> Hashable:
    """Everything outside the slot that has to be equal in rules to be joined."""
    texts = pattern.texts
    return (
        *(slot.text, slot.before, slot.after, texts[: slot.text], texts[slot.text + 1 :], pattern.groups),
        *(rule.kind, rule.by, rule.loops, rule.when if slot.word else None),
        tuple((output.value, *map(_edges, output.to)) for output in rule.outputs),
    )


def _edges(piece: TemplatePiece) -> Hashable:
    """Only compare whether a text begins and ends with a separator."""
    return (piece[0] in SEPARATORS, piece[-1] in SEPARATORS) if isinstance(piece, str) else piece


def _with_like_keys(free: dict[int, Slot], rules: Sequence[RuleDraft]) -> Iterator[list[int]]:
    """Batches of rules whose new keys differ in one text each at most, few enough for one pattern."""
    waiting = [list(free)]
    while waiting:
        several = waiting.pop()
        columns = zip(*(_new_keys(rules[number]) for number in several), strict=True)
        wide = [(at, texts) for at, column in enumerate(columns) if len(texts := differing_texts(column)) > 1]
        if wide:
            at, (text, *_) = wide[0]
            split: dict[Hashable, list[int]] = defaultdict(list)
            for number in several:
                split[_new_keys(rules[number])[at].texts[text]].append(number)
            waiting += split.values()
        elif several:
            yield from _short_enough({number: free[number].word for number in several})


def _new_keys(rule: RuleDraft) -> list[KeyPattern]:
    """The patterns of the keys that a rule makes."""
    return [group[0].target.pattern for group in rule.bundle if group[0].target is not None]


def _short_enough(words: dict[int, str]) -> Iterator[list[int]]:
    """Batches whose words are short enough for one pattern together."""
    numbers: list[int] = []
    length = 0
    for number, word in words.items():
        size = len(alternation([word])) + 1
        if length + size > LONGEST:
            yield numbers
            numbers, length = [], 0
        numbers.append(number)
        length += size
    yield numbers


def _joined(
    rules: Sequence[RuleDraft], in_words: bool, universe: Universe, tables: Tables
) -> RuleDraft | None:
    """One rule in place of these, which differ in words or in layers.

    None if no rule fits, or if they have too little in common.
    """
    if len(rules) < 2:
        return None
    if in_words:
        unalike = len(rules) < _UNALIKE and _unalike([rule.pattern for rule in rules if rule.pattern])
    else:
        unalike = any(map(_unalike, zip(*map(_new_keys, rules), strict=True)))
    if unalike:
        return None
    bundles = zip(*(rule.bundle for rule in rules), strict=True)
    return rule_for([[part for group in several for part in group] for several in bundles], universe, tables)


def _unalike(patterns: Sequence[KeyPattern]) -> bool:
    """True if keys have nothing in common."""
    span = span_of(pattern.texts[0] for pattern in patterns)
    groups = any(pattern.groups for pattern in patterns)
    return not groups and (span is None or not (span.before + span.after).strip("/."))


# --- many that make nothing -------------------------------------------------------------------------------


def by_endings(kind: Kind, keys: Sequence[str], universe: Universe) -> RuleDraft | None:
    """One rule for just these keys by prefix and endings, such as `a/.*/(?:m|b/v)`; None if none fits."""
    meant = set(keys)
    span = span_of(keys)
    prefix = "" if span is None else span.before[: span.before.rfind("/") + 1]
    below = (key for key in universe.below(prefix) if key not in meant)
    others = {ending for key in below for ending in _endings(key[len(prefix) :])}
    shortest = {next((end for end in _endings(key[len(prefix) :]) if end not in others), "") for key in keys}
    pattern = KeyPattern((prefix, "/", ""), (BELOW, NamedGroup("word", alternation(sorted(shortest)))))
    if len(shortest) > _ENDINGS or universe.matched(pattern).keys() != meant:
        return None
    return RuleDraft(kind, pattern, (), tuple(keys), 0 if kind is Kind.DROPPED else len(keys))


def _endings(key: str) -> Iterator[str]:
    """The last component of a key, the last two, …"""
    parts = key.split("/")
    return ("/".join(parts[at:]) for at in reversed(range(1, len(parts))))
