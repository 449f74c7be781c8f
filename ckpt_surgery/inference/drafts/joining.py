"""Rules that differ in one slot of their keys, as one rule: in a tree, a word, or the number of a layer."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import (
    LONGEST,
    NUMBER,
    REST,
    KeyPattern,
    NamedGroup,
    Universe,
    alternation,
)
from ckpt_surgery.inference.drafts.parts import Kind
from ckpt_surgery.inference.drafts.place_patterns import separating
from ckpt_surgery.inference.drafts.rule_drafts import (
    DraftedOutput,
    Inserted,
    RuleDraft,
    TemplatePiece,
    joined_text,
)
from ckpt_surgery.inference.drafts.tables import Tables
from ckpt_surgery.inference.drafts.value_texts import blanked
from ckpt_surgery.inference.keys.words import SEPARATORS, Span, span_of, tokens

NAMES = ("word", "part", "item", "piece", "element", "member", *(f"word{number}" for number in range(2, 50)))
"""Names of the groups of words; few rules need more than two."""
TREE = "tree"
_UNALIKE = 8
"""Number of rules that become one even if their keys have nothing in common."""
_CHOICES = 8
"""Most entries of a table that layers choose from: more explain nothing."""
_ENDINGS = 12
"""Most endings that one rule names."""


@frozen()
class Slot:
    """A place of a rule's pattern that is blank where rules are compared."""

    piece: int
    """The number of the piece of the pattern that holds the word; one more than there are for a layer."""
    before: str = ""
    word: str = ""
    after: str = ""


@frozen()
class Choice:
    """What a rule that stands for several has in place of their slots."""

    pattern: KeyPattern
    when: str | None
    expression: str
    """What tells the rules apart: `word`, `int(n) % 2`."""
    values: Sequence[Sequence[str]]
    """The values of the expression for each of the rules."""
    is_number: bool = False


Chosen = Sequence[tuple[RuleDraft, Slot]]


def join_rules(rules: Iterable[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Join the rules that differ in one slot: first in trees, then in words, then in layers."""
    found = list(rules)
    for slots in (_trees, _words, _layers):
        while len(fewer := _round(found, slots, universe, tables)) < len(found):
            found = fewer
    return found


def _trees(rule: RuleDraft) -> Iterator[Slot]:
    """The components that a pattern begins with, such as `params` and `opt_state/0/mu`."""
    pieces = () if rule.pattern is None else rule.pattern.pieces
    if pieces and isinstance(pieces[0], str):
        parts = tokens(pieces[0])
        for end, part in enumerate(parts, start=1):
            if part not in SEPARATORS or (end == len(parts) and len(pieces) == 1):
                yield Slot(0, "", "".join(parts[:end]), "".join(parts[end:]))


def _words(rule: RuleDraft) -> Iterator[Slot]:
    """The components of a pattern."""
    for at, piece in enumerate(() if rule.pattern is None else rule.pattern.pieces):
        parts = tokens(piece) if isinstance(piece, str) else ()
        for here, part in enumerate(parts):
            if part not in SEPARATORS:
                yield Slot(at, "".join(parts[:here]), part, "".join(parts[here + 1 :]))


def _layers(rule: RuleDraft) -> Iterator[Slot]:
    """The numbers that the condition of a rule is about."""
    if rule.pattern is not None and rule.when is not None and rule.outputs:
        yield Slot(len(rule.pattern.pieces))


def _round(
    rules: Sequence[RuleDraft],
    slots: Callable[[RuleDraft], Iterator[Slot]],
    universe: Universe,
    tables: Tables,
) -> list[RuleDraft]:
    alike: dict[Hashable, list[tuple[int, Slot]]] = defaultdict(list)
    for number, rule in enumerate(rules):
        for slot in slots(rule):
            alike[_frame(rule, slot)].append((number, slot))
    found: dict[int, RuleDraft | None] = dict(enumerate(rules))
    taken: set[int] = set()
    # Of `params/q`, `params/k`, `mu/q` and `mu/k`, `params` and `mu` are the trees: more follows on these.
    follows = {
        frame: len(tokens(several[0][1].after)) * (slots is _trees) for frame, several in alike.items()
    }
    for frame in sorted(alike, key=lambda frame: (follows[frame], len(alike[frame])), reverse=True):
        free = {number: (rules[number], slot) for number, slot in alike[frame] if number not in taken}
        for numbers in _with_like_keys(free):
            one = _one([free[number] for number in numbers], universe, tables)
            if one is not None:
                taken |= set(numbers)
                found |= {**dict.fromkeys(numbers), min(numbers): one}
    return [rule for rule in found.values() if rule is not None]


def _frame(rule: RuleDraft, slot: Slot) -> Hashable:
    """What rules have in common that may become one."""
    pieces = () if rule.pattern is None else rule.pattern.pieces
    return (
        *(slot.piece, slot.before, slot.after, pieces[: slot.piece], pieces[slot.piece + 1 :]),
        *(rule.kind, rule.by, rule.loops, rule.when if slot.word else None),
        tuple((blanked(output.value, slot.word), *map(_edges, output.to)) for output in rule.outputs),
    )


def _edges(piece: TemplatePiece) -> Hashable:
    """Of a text, only whether components begin and end with it."""
    return (piece[0] in SEPARATORS, piece[-1] in SEPARATORS) if isinstance(piece, str) else piece


def _with_like_keys(free: dict[int, tuple[RuleDraft, Slot]]) -> Iterator[list[int]]:
    """The rules whose new keys differ in at most one text each, no more than one pattern can name."""
    waiting = [list(free)]
    while waiting:
        several = waiting.pop()
        if len(several) < 2:
            continue
        outputs = zip(*(free[number][0].outputs for number in several), strict=True)
        wide = [(at, places) for at, places in enumerate(map(_differing, outputs)) if len(places) > 1]
        if wide:
            at, (place, *_) = wide[0]
            split: dict[Hashable, list[int]] = defaultdict(list)
            for number in several:
                split[free[number][0].outputs[at].to[place]].append(number)
            waiting += split.values()
        else:
            yield from _short_enough({number: free[number][1].word for number in several})


def _differing(outputs: Iterable[DraftedOutput]) -> list[int]:
    """The pieces of a key that are not the same in all rules."""
    return [
        at for at, pieces in enumerate(zip(*(one.to for one in outputs), strict=True)) if len({*pieces}) > 1
    ]


def _short_enough(words: dict[int, str]) -> Iterator[list[int]]:
    numbers: list[int] = []
    length = 0
    for number, word in words.items():
        length += len(alternation([word])) + 1
        if length > LONGEST:
            yield numbers
            numbers, length = [], 0
        numbers.append(number)
    yield numbers


# --- one rule of several ----------------------------------------------------------------------------------


@frozen()
class RuleChange:
    """Where the keys that several rules give to one output differ."""

    piece: int
    """The number of the piece of the template."""
    span: Span


def _one(chosen: Chosen, universe: Universe, tables: Tables) -> RuleDraft | None:
    """One rule that does what these do; None where there is none, or where they have too little in common."""
    first, slot = chosen[0]
    rules = [rule for rule, _ in chosen]
    changes = [_change(outputs) for outputs in zip(*(rule.outputs for rule in rules), strict=True)]
    if len(rules) < 2 or (None in changes and any(output.to for output in first.outputs)):
        return None
    choice = (_join_by_word if slot.word else _join_by_layer)(chosen, changes, universe)
    if choice is None:
        return None
    return replace(
        first,
        pattern=choice.pattern,
        when=choice.when,
        outputs=tuple(
            DraftedOutput(
                _with_choice(output.to, change, choice, tables) if change else (),
                blanked(output.value, slot.word, choice.expression),
            )
            for output, change in zip(first.outputs, changes, strict=True)
        ),
        claims=tuple(key for rule in rules for key in rule.claims),
        makes=sum(rule.makes for rule in rules),
        reasons=tuple(reason for rule in rules for reason in rule.reasons),
        looks_up=any(rule.looks_up for rule in rules),
    )


def _change(outputs: Sequence[DraftedOutput]) -> RuleChange | None:
    """Where one output's keys differ; None where they do not, or differ in more than whole components."""
    for at in _differing(outputs):
        span = span_of([str(output.to[at]) for output in outputs])
        whole = all(word and not set(SEPARATORS) & {word[0], word[-1]} for word in span.words)
        return RuleChange(at, span) if whole else None
    return None


def _join_by_word(chosen: Chosen, changes: Sequence[RuleChange | None], universe: Universe) -> Choice | None:
    """Join rules of different words by a group of them; None if its pattern claims more."""
    first, slot = chosen[0]
    assert first.pattern is not None
    pieces, words = first.pattern.pieces, [one.word for _, one in chosen]
    leading = not slot.piece and not slot.before
    alone = len(pieces) == 1 and not (slot.before + slot.after).strip("/.")
    if (
        len(set(words)) < len(words)
        or (alone and len(words) < _UNALIKE)
        or (leading and span_of(words).before)
    ):
        return None
    tree = leading and all(change is None or [*change.span.words] == words for change in changes)
    taken = {group.name for group in first.pattern.groups}
    name = next(name for name in ((TREE, *NAMES) if tree else NAMES) if name not in taken)
    group = NamedGroup(name, alternation(words))
    pattern = KeyPattern.of(*pieces[: slot.piece], slot.before, group, slot.after, *pieces[slot.piece + 1 :])
    apart = {
        key: {**match, name: one.word}
        for rule, one in chosen
        for key, match in universe.matched(rule.pattern or pattern).items()
    }
    alike = universe.matched(pattern) == apart
    return Choice(pattern, first.when, name, [[word] for word in words]) if alike else None


def _join_by_layer(chosen: Chosen, changes: Sequence[RuleChange | None], universe: Universe) -> Choice | None:
    """Join rules of different layers: `n % 2`, or the number itself, tells which rule is meant."""
    rules = [rule for rule, _ in chosen]
    pattern = rules[0].pattern
    assert pattern is not None
    for output, change in zip(rules[0].outputs, changes, strict=True):
        if change and len(output.to) == 1 and not (change.span.before + change.span.after).strip("/."):
            return None  # the keys have nothing in common
    matched = dict(universe.matched(pattern))
    claimed = [[matched.pop(key) for key in rule.claims] for rule in rules]
    wanted = [match for matches in claimed for match in matches]
    when = separating(pattern, wanted, list(matched.values())) if matched else None
    for name in (group.name for group in pattern.groups if group.inner == NUMBER):
        numbers = [{int(match[name]) for match in matches} for matches in claimed]
        for divisor in (len(rules), 0):
            values = [{one % divisor for one in each} if divisor else each for each in numbers]
            apart = sum(map(len, values)) == len(set().union(*values)) <= _CHOICES
            if apart and (when is not None or not matched):
                expression = f"int({name}) % {divisor}" if divisor else f"int({name})"
                return Choice(pattern, when, expression, [[*map(str, sorted(each))] for each in values], True)
    return None


def _with_choice(
    to: Sequence[TemplatePiece], change: RuleChange, choice: Choice, tables: Tables
) -> tuple[TemplatePiece, ...]:
    """The key with what is chosen: as it is, within a text that all have, or looked up in a table."""
    words = change.span.words
    pairs = [(value, word) for values, word in zip(choice.values, words, strict=True) for value in values]
    head, _, tail = words[0].partition(pairs[0][0])
    if [word for _, word in pairs] == [f"{head}{value}{tail}" for value, _ in pairs]:
        inserted = (head, Inserted(choice.expression), tail)
    elif choice.is_number:
        table = tables.extended("choices", dict(sorted(pairs)))
        inserted = ("", Inserted(f"{table}[str({choice.expression})]"), "")
    else:
        inserted = ("", Inserted(f"{tables.extended('names', dict(pairs))}[{choice.expression}]"), "")
    return joined_text(
        [*to[: change.piece], change.span.before, *inserted, change.span.after, *to[change.piece + 1 :]]
    )


# --- many that make nothing -------------------------------------------------------------------------------


def by_endings(kind: Kind, keys: Sequence[str], universe: Universe) -> RuleDraft | None:
    """One rule about these keys alone, by what they begin and end with, such as `state/.*/(?:m|kernel/v)`.

    None where there is none.
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
        next((one for one in _endings(key[len(prefix) :]) if one not in others), None) for key in keys
    ]
    words = alternation(sorted({ending for ending in shortest if ending is not None}))
    pattern = KeyPattern.of(prefix, NamedGroup("rest", REST), "/", NamedGroup("word", words))
    few = len(meant) > 1 and len(set(shortest)) <= _ENDINGS and len(words) <= LONGEST
    if not few or universe.matched(pattern).keys() != meant.keys():
        return None
    return RuleDraft(kind, pattern, (), tuple(keys), 0 if kind is Kind.DROPPED else len(keys))


def _endings(key: str) -> Iterator[str]:
    """The last component of a key, the last two, …"""
    for found in reversed(list(re.finditer("/", key))):
        yield key[found.end() :]
