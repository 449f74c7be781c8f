"""Draft few rules for parts: one for each bundle, then one for all that differ in one word of their keys."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from ckpt_surgery.inference.drafts.key_patterns import (
    BELOW,
    LONGEST,
    KeyPattern,
    NamedGroup,
    Universe,
    alternation,
    escaped,
    split_around,
    tokens,
)
from ckpt_surgery.inference.drafts.parts import (
    Bundle,
    Inserted,
    Kind,
    RuleDraft,
    RulePart,
    Tables,
    bundled,
    connected,
    looking_up,
    made_parts,
)
from ckpt_surgery.inference.drafts.single_rules import rule_for
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, X
from ckpt_surgery.inference.keys.grids import SEPARATORS

_MANY = 2
"""Rules that drop or fill leaves, above which one rule by the endings of keys is better."""
_LONGEST_ENDINGS = 200
"""Maximum length of the regular expression of all endings of keys in one rule."""


def draft_rules(parts: Iterable[RulePart], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that do exactly what the parts say, in the order of the parts."""
    return [rule for bundle in bundled(parts) for rule in _rules(bundle, universe, tables)]


def _rules(bundle: Bundle, universe: Universe, tables: Tables) -> list[RuleDraft]:
    """One rule for a bundle; else the rules of its units, in as few bundles as any number in keys makes.

    A single unit is one rule with all keys written out, or a rule for each leaf.
    """
    parts = [part for group in bundle for part in group]
    single = rule_for(bundle, universe, tables)
    if single is not None:
        return [single]
    units = connected(parts)
    if len(units) > 1:
        columns = [range(len(units)), *zip(*(unit[0].sources[0].values for unit in units), strict=False)]
        useful = [column for column in columns if len(set(column)) > 1]
        marks = min(useful, key=lambda column: len(set(column)))
        split: dict[object, list[RulePart]] = defaultdict(list)
        for mark, unit in zip(marks, units, strict=True):
            split[mark] += unit
        return [rule for some in split.values() for rule in _rules(bundled(some)[0], universe, tables)]
    single = rule_for([[part] for part in parts], universe, tables)
    if single is not None:
        return [single]
    return [
        looking_up([place.text for place in part.sources], part.target.text, part.value, part.reasons)
        for part in parts
    ]


def few_rules(formations: Sequence[Formation], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that make these formations of leaves with the keys of a universe; those are joined whose keys
    differ in one run of components, on both sides."""
    rules = draft_rules(made_parts(formations, universe.below("")), universe, tables)
    while len(fewer := _round(rules, universe, tables)) < len(rules):
        rules = fewer
    return rules


def plain_rules(kind: Kind, keys: Sequence[str], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """Rules that drop or fill these keys; in place of many, one by the endings of keys if these are short."""
    kept = [Formation(key, (key,), X, Evidence.VALUES) for key in keys]
    rules = [rule.instead(kind) for rule in few_rules(kept, universe, tables)]
    if len(rules) <= _MANY:
        return rules
    around = split_around(keys)
    prefix = "" if around is None else around[0][: around[0].rfind("/") + 1]
    for count in (1, 2):
        endings = {"/".join(key.split("/")[-count:]) for key in keys}
        group = NamedGroup("word", alternation(sorted(endings)))
        pattern = KeyPattern((prefix, "/", ""), (BELOW, group))
        if len(group.inner) <= _LONGEST_ENDINGS and universe.matched(pattern).keys() == set(keys):
            return [RuleDraft(pattern, (), tuple(keys), 0).instead(kind)]
    return rules


def _round(rules: Sequence[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    alike: dict[Hashable, dict[int, str]] = defaultdict(dict)
    follows: dict[Hashable, int] = {}
    for number, rule in enumerate(rules):
        for frame, word, after in _frames(rule):
            alike[frame][number] = word
            follows[frame] = after
    joined: dict[int, RuleDraft | None] = dict(enumerate(rules))
    taken: set[int] = set()
    # Of `params/q`, `params/k`, `mu/q` and `mu/k`, the first components are joined first: more follows them.
    for frame in sorted(alike, key=lambda frame: (follows[frame], len(alike[frame])), reverse=True):
        free = [number for number in alike[frame] if number not in taken]
        longest = max(len(escaped(word)) for word in alike[frame].values())
        most = LONGEST // (longest + 1) or 1  # so many words fit into one pattern
        for start in range(0, len(free), most):
            numbers = free[start : start + most]
            bundles = zip(*(rules[number].bundle for number in numbers), strict=True)
            joint = [[part for group in several for part in group] for several in bundles]
            one = rule_for(joint, universe, tables) if len(numbers) > 1 else None
            if one is not None:
                taken |= set(numbers)
                joined |= {**dict.fromkeys(numbers), min(numbers): one}
    return [rule for rule in joined.values() if rule is not None]


def _frames(rule: RuleDraft) -> Iterator[tuple[Hashable, str, int]]:
    """Frames of a rule: rules with a common frame can be joined, as they differ in one run of components.

    With the run of this rule, and the number of tokens behind it. Rules that differ in numbers alone share a
    frame without a run.
    """
    if rule.pattern is None:
        return
    new = [group[0].target.pattern for group in rule.bundle]
    inserted = (
        (output.value, *(piece for piece in output.to if isinstance(piece, Inserted)))
        for output in rule.outputs
    )
    same = (rule.by, rule.count, rule.when, *inserted)
    places = range(max(len(pattern.texts) for pattern in new))
    made = [tuple(_without(pattern, place) for pattern in new) for place in places]
    if rule.when is not None:  # layers of several kinds
        for place, others in enumerate(made):
            yield (same[:2], same[3:], rule.pattern, place, others), "", -1
    for at, text in enumerate(rule.pattern.texts):
        parts = tokens(text)
        for start in range(len(parts)):
            for end in range(start + 1, len(parts) + 1):
                before, word, after = parts[:start], parts[start:end], parts[end:]
                alone = not (before or after or rule.pattern.groups)
                if word[0] in SEPARATORS or word[-1] in SEPARATORS or alone:
                    continue
                here = (at, *before), tuple(after), _without(rule.pattern, at)
                for place, others in enumerate(made):
                    yield (same, here, place, others), "".join(word), len(after)


def _without(pattern: KeyPattern, at: int) -> Hashable:
    """A pattern without one of its texts."""
    return pattern.texts[:at], pattern.texts[at + 1 :], pattern.groups
