"""Rules that are alike but for words, as one rule: with a table where the new words are others."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.key_patterns import LONGEST, Group, Pattern, Piece, Universe, alternation
from ckpt_surgery.inference.rule_drafts import Inserted, Output, RuleDraft, TemplatePiece, joined_text
from ckpt_surgery.inference.tables import Tables
from ckpt_surgery.inference.value_texts import blanked
from ckpt_surgery.inference.words import SEPARATORS, Span, span_of, tokens

NAMES = ("word", "part", "item", "piece", "element", "member", *(f"word{number}" for number in range(2, 50)))
"""Names of the groups of words; few rules need more than two."""
TREE = "tree"
_UNALIKE = 8
"""So many rules become one even if their keys have nothing in common."""


@frozen()
class Blank:
    """A word of a rule's pattern, and what stands around it."""

    piece: int
    """The number of the piece of the pattern."""
    before: str
    word: str
    after: str

    @property
    def around(self) -> Hashable:
        """What rules that differ in this word alone have in common."""
        return self.piece, self.before, self.after


def merged(rules: Sequence[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """The rules, those that are alike but for words as one: first whole trees, then words inside them."""
    found = list(rules)
    for leading in (True, False):
        while True:
            fewer = _round(found, leading, universe, tables)
            if len(fewer) == len(found):
                break
            found = fewer
    return found


def _round(rules: Sequence[RuleDraft], leading: bool, universe: Universe, tables: Tables) -> list[RuleDraft]:
    alike: dict[Hashable, list[tuple[int, Blank]]] = defaultdict(list)
    for number, rule in enumerate(rules):
        for blank in _blanks(rule, leading):
            alike[_frame(rule, blank)].append((number, blank))
    found: dict[int, RuleDraft | None] = dict(enumerate(rules))
    taken: set[int] = set()
    # Of `params/q`, `params/k`, `mu/q` and `mu/k`, `params` and `mu` are the trees: more follows on these.
    follows = {mark: len(tokens(bucket[0][1].after)) if leading else 0 for mark, bucket in alike.items()}
    for mark in sorted(alike, key=lambda mark: (follows[mark], len(alike[mark])), reverse=True):
        bucket = alike[mark]
        for several in _with_like_keys([one for one in bucket if one[0] not in taken], rules):
            one = _one([rules[number] for number, _ in several], [b for _, b in several], universe, tables)
            if one is not None:
                numbers = sorted(number for number, _ in several)
                taken |= set(numbers)
                found |= dict.fromkeys(numbers)
                found[numbers[0]] = one
    return [rule for rule in found.values() if rule is not None]


def _blanks(rule: RuleDraft, leading: bool) -> Iterator[Blank]:
    """The words of a pattern: single components, or with `leading` the components that it begins with."""
    pieces = () if rule.pattern is None else rule.pattern.pieces
    for at, piece in enumerate(pieces[:1] if leading else pieces):
        if not isinstance(piece, str):
            continue
        parts = tokens(piece)
        for end, part in enumerate(parts):
            whole = leading and end + 1 == len(parts) and len(pieces) == 1
            if part not in SEPARATORS and not whole:
                start = 0 if leading else end
                yield Blank(
                    at, "".join(parts[:start]), "".join(parts[start : end + 1]), "".join(parts[end + 1 :])
                )


def _frame(rule: RuleDraft, blank: Blank) -> Hashable:
    """What two rules have in common that may become one."""
    pieces = () if rule.pattern is None else rule.pattern.pieces
    return (
        *(blank.around, pieces[: blank.piece], pieces[blank.piece + 1 :]),
        *(rule.kind, rule.by, rule.when, rule.loops),
        tuple((blanked(output.value, blank.word), _texts_left_out(output)) for output in rule.outputs),
    )


def _texts_left_out(output: Output) -> tuple[TemplatePiece, ...]:
    return tuple("" if isinstance(piece, str) else piece for piece in output.to)


# --- which rules ------------------------------------------------------------------------------------------

Chosen = Sequence[tuple[int, Blank]]


def _with_like_keys(bucket: Chosen, rules: Sequence[RuleDraft]) -> Iterator[Chosen]:
    """The rules of a bucket whose new keys differ in at most one text each: all, or parts of them."""
    waiting = [bucket]
    while waiting:
        several = waiting.pop()
        differing = _differing([rules[number] for number, _ in several]) if len(several) > 1 else None
        if differing is None:
            continue
        if all(len(texts) < 2 for texts in differing):
            yield from _short_enough(several)
            continue
        at = next(output for output, texts in enumerate(differing) if len(texts) > 1)
        split: dict[Hashable, list[tuple[int, Blank]]] = defaultdict(list)
        for number, blank in several:
            to = rules[number].outputs[at].to
            split[to[differing[at][0]]].append((number, blank))
        waiting += split.values()


def _differing(rules: Sequence[RuleDraft]) -> list[list[int]]:
    """For each output, the pieces of its key that are not the same in all rules."""
    return [
        [at for at, pieces in enumerate(zip(*(one.to for one in outputs), strict=True)) if len({*pieces}) > 1]
        for outputs in zip(*(rule.outputs for rule in rules), strict=True)
    ]


def _short_enough(several: Chosen) -> Iterator[Chosen]:
    """The same rules, so many at a time as one regular expression can have words."""
    chosen: list[tuple[int, Blank]] = []
    length = 0
    for number, blank in several:
        length += len(alternation([blank.word])) + 1
        if length > LONGEST:
            yield chosen
            chosen, length = [], 0
        chosen.append((number, blank))
    yield chosen


# --- one rule of several ----------------------------------------------------------------------------------


@frozen()
class Change:
    """Where the keys that several rules give to one output differ."""

    piece: int
    """The number of the piece of the template."""
    span: Span


def _one(
    rules: Sequence[RuleDraft], blanks: Sequence[Blank], universe: Universe, tables: Tables
) -> RuleDraft | None:
    """One rule that does what these do; None where there is none, or where they have too little in common."""
    first, blank = rules[0], blanks[0]
    assert first.pattern is not None
    words = tuple(one.word for one in blanks)
    if not blank.piece and not blank.before and len(words) > 1 and span_of(words).before:
        return None  # they are words of one tree
    alone = len(first.pattern.pieces) == 1 and not (blank.before + blank.after).strip("/.")
    if len(rules) < 2 or len(set(words)) < len(words) or (alone and len(rules) < _UNALIKE):
        return None
    changes = [_change(outputs) for outputs in zip(*(rule.outputs for rule in rules), strict=True)]
    told = [change for change in changes if change is not None]
    if len(told) < len(changes) and any(output.to for output in first.outputs):
        return None
    tree = blank.piece == 0 and not blank.before and all(one.span.words == words for one in told)
    name = _name(first, tree)
    pattern = _with_group(first.pattern, blank, Group(name, alternation(words)))
    if not _claims_the_same(pattern, name, rules, words, universe):
        return None
    return replace(
        first,
        pattern=pattern,
        outputs=tuple(
            Output(
                output.to if change is None else _with_words(output.to, change, words, name, tables),
                blanked(output.value, blank.word, name),
            )
            for output, change in zip(first.outputs, changes, strict=True)
        ),
        claims=tuple(key for rule in rules for key in rule.claims),
        makes=sum(rule.makes for rule in rules),
        reasons=tuple(reason for rule in rules for reason in rule.reasons),
        looks_up=any(rule.looks_up for rule in rules),
    )


def _change(outputs: Sequence[Output]) -> Change | None:
    """Where one output's keys differ; None where they do not, or differ in more than whole components."""
    for at, pieces in enumerate(zip(*(output.to for output in outputs), strict=True)):
        texts = [piece for piece in pieces if isinstance(piece, str)]
        if len(set(texts)) > 1:
            span = span_of(texts)
            whole = all(word and not set(SEPARATORS) & {word[0], word[-1]} for word in span.words)
            return Change(at, span) if whole else None
    return None


def _name(rule: RuleDraft, tree: bool) -> str:
    assert rule.pattern is not None
    taken = {group.name for group in rule.pattern.groups}
    return next(name for name in ((TREE, *NAMES) if tree else NAMES) if name not in taken)


def _with_group(pattern: Pattern, blank: Blank, group: Group) -> Pattern:
    pieces: tuple[Piece, ...] = (blank.before, group, blank.after)
    new = tuple(piece for piece in pieces if piece != "")
    return Pattern((*pattern.pieces[: blank.piece], *new, *pattern.pieces[blank.piece + 1 :]))


def _claims_the_same(
    pattern: Pattern, name: str, rules: Sequence[RuleDraft], words: Sequence[str], universe: Universe
) -> bool:
    """Whether a pattern matches what the rules' patterns match, with the same texts at the same places."""
    apart = {
        key: {**match, name: word}
        for rule, word in zip(rules, words, strict=True)
        for key, match in universe.matched(rule.pattern or pattern).items()
    }
    return universe.matched(pattern) == apart


def _with_words(
    to: Sequence[TemplatePiece], change: Change, words: Sequence[str], name: str, tables: Tables
) -> tuple[TemplatePiece, ...]:
    """The key with its words looked up in a table, or inserted as they are."""
    span = change.span
    if span.words == tuple(words):
        inserted = Inserted(name)
    else:
        table = dict(zip(words, span.words, strict=True))
        inserted = Inserted(f"{tables.extended('names', table)}[{name}]")
    return joined_text([*to[: change.piece], span.before, inserted, span.after, *to[change.piece + 1 :]])
