"""One rule for a bundle of parts: keys, order and values as formulas and tables of the parts of a key."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.indices import Column, Columns, condition, expression_of
from ckpt_surgery.inference.drafts.key_patterns import (
    BELOW,
    NUMBER,
    KeyPlace,
    Matched,
    Universe,
    in_common,
)
from ckpt_surgery.inference.drafts.parts import (
    Bundle,
    DraftedOutput,
    Group,
    Inserted,
    RuleDraft,
    RulePart,
    Tables,
    TemplatePiece,
    gathers,
)


def rule_for(bundle: Bundle, universe: Universe, tables: Tables) -> RuleDraft | None:
    """The rule for leaves whose keys differ in numbers and words; None if no formula or table fits."""
    alike = _alike(bundle)
    claim = None if alike is None else _claimed(alike, universe)
    if alike is None or claim is None:
        return None
    parts = [part for group in alike for part in group]
    pattern = parts[0].sources[0].pattern
    keys, when = claim
    columns, ordered = _enumerated(alike), _order(alike, tables)
    if columns is None or ordered is None:
        return None
    outputs = [_output(_rows(group, column), tables) for group, column in zip(alike, columns, strict=True)]
    known = tuple(output for output in outputs if output is not None)
    if len(known) < len(outputs):
        return None
    count = max(map(max, columns)) + 1
    alone = len(alike) == count == 1 and not gathers(parts[0])
    if alone and all(part.target.text == part.sources[0].text for part in parts):
        known = (replace(known[0], to=()),)
    makes = len(keys) if BELOW in pattern.groups else len(parts)
    reasons = tuple(reason for part in parts for reason in part.reasons)
    return RuleDraft(pattern, known, keys, makes, ordered or None, when, count, reasons, alike)


def _alike(bundle: Bundle) -> Bundle | None:
    """The bundle with one pattern for all sources, and one for what each group makes."""
    source = in_common(place for group in bundle for part in group for place in part.sources)
    targets = [in_common(part.target for part in group) for group in bundle]
    known = [target for target in targets if target is not None]
    if source is None or len(known) < len(targets):
        return None
    return [
        [
            replace(part, sources=tuple(map(source, part.sources)), target=target(part.target))
            for part in group
        ]
        for group, target in zip(bundle, known, strict=True)
    ]


# --- keys that it claims ----------------------------------------------------------------------------------


def _claimed(bundle: Bundle, universe: Universe) -> tuple[tuple[str, ...], str | None] | None:
    """The keys that the rule claims, and the condition on one number that excludes others that its pattern
    matches; None if no condition excludes them."""
    places = [place for group in bundle for part in group for place in part.sources]
    pattern = places[0].pattern
    wanted = {tuple(place.matched.values()) for place in places}
    claimed: dict[str, Matched] = {}
    others: list[Matched] = []
    for key, match in universe.matched(pattern).items():
        if tuple(match[group.name] for group in pattern.groups if group != BELOW) in wanted:
            claimed[key] = match
        else:
            others.append(match)
    if not others:
        return tuple(claimed), None
    for group in pattern.groups:
        if group.inner == NUMBER:
            mine, beyond = ([int(match[group.name]) for match in some] for some in (claimed.values(), others))
            when = condition(mine, beyond, f"int({group.name})")
            if when is not None:
                return tuple(claimed), when
    return None


# --- the variable of `for` --------------------------------------------------------------------------------

Row = tuple[RulePart, KeyPlace]
"""A part, and one of its sources."""


def _rows_of(group: Group) -> list[Row]:
    """Every part with each of its sources, in order."""
    return [(part, place) for part in group for place in part.sources]


def _enumerated(bundle: Bundle) -> Sequence[Column] | None:
    """A number for each row of every group, which tells those of one source apart: from 0, by the numbers in
    the target's key and in the value. None if not all sources have equally many in every group."""
    columns: list[Column] = []
    counts, sources = set(), set()
    for rows in map(_rows_of, bundle):
        of_place: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, (_, place) in enumerate(rows):
            of_place[place.values].append(at)
        column = [0] * len(rows)
        for own in of_place.values():
            if len(own) > 1:
                for number, at in enumerate(sorted(own, key=lambda at: _numbers(rows[at][0]))):
                    column[at] = number
        columns.append(column)
        counts |= set(map(len, of_place.values()))
        sources.add(frozenset(of_place))
    return columns if len(counts) == len(sources) == 1 else None


def _numbers(part: RulePart) -> tuple[int, ...]:
    """All numbers in the key that a part makes, and in its value."""
    return (*(int(text) for text in part.target.values if text.isdecimal()), *part.value.numbers)


# --- order ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Columns of numbers and texts of a group: a row for each part with each of its sources."""

    rows: Sequence[Row]
    numbers: Columns
    """Columns of numbers by their expressions: `int(n)`, `i`."""
    texts: Mapping[str, Sequence[str]]
    """Columns of words and of numbers as keys have them, by the names of their places; words come first."""


def _rows(group: Group, column: Column = ()) -> Rows:
    """The columns of a group. `column`: that of the variable `i`, if it has several values."""
    rows = _rows_of(group)
    every = zip(*(place.values for _, place in rows), strict=True)
    named = zip(rows[0][1].pattern.groups, every, strict=True)
    columns = {place: texts for place, texts in named if place != BELOW}
    texts = {place.name: columns[place] for place in sorted(columns, key=lambda place: place.inner == NUMBER)}
    names = [place.name for place in columns if place.inner == NUMBER]
    numbers = {f"int({name})": [int(text) for text in texts[name]] for name in names}
    return Rows(rows, {**({"i": column} if any(column) else {}), **numbers}, texts)


def _order(bundle: Bundle, tables: Tables) -> str | None:
    """The expression of `by`; empty where none is needed, None where none gives the order."""
    groups = [group for group in bundle if gathers(group[0])]
    if any(len(part.sources) > 1 for group in bundle if group not in groups for part in group):
        return None
    parts = [part for group in groups for part in group]
    values = [at for part in parts for at in range(len(part.sources))]
    if not any(values):
        return ""
    rows = _rows(parts)
    expression = expression_of(values, rows.numbers)
    if expression is not None:
        return expression
    for name, texts in rows.texts.items():
        first: dict[str, int] = {}
        for text, value in zip(texts, values, strict=True):
            first[text] = min(value, first.get(text, value))
        order = {text: rank for rank, text in enumerate(sorted(first, key=first.__getitem__))}
        looked_up = f"order[{name}]"
        expression = expression_of(values, {**rows.numbers, looked_up: [order[text] for text in texts]})
        if expression is not None:
            return expression.replace(looked_up, f"{tables.named('order', order)}[{name}]")
    return None


def is_natural(part: RulePart) -> bool:
    """True if the sources of a part are in the order that rules without `by` give them."""
    keys = [place.text for place in part.sources]
    return keys == sorted(keys, key=natural_order)


# --- keys and values --------------------------------------------------------------------------------------


def _output(rows: Rows, tables: Tables) -> DraftedOutput | None:
    """The template of the keys of a group, and its value, with expressions; None if none fit."""
    targets = [part.target for part, _ in rows.rows]
    pattern = targets[0].pattern
    pieces: list[TemplatePiece] = [pattern.texts[0]]
    columns = zip(*(target.values for target in targets), strict=True)
    for group, column, before, text in zip(
        pattern.groups, columns, pattern.texts, pattern.texts[1:], strict=False
    ):
        inserted = Inserted("rest") if group == BELOW else _text(column, rows, tables, before)
        if inserted is None:
            return None
        pieces += [inserted, text]
    value = _value(rows)
    return None if value is None else DraftedOutput(tuple(filter(None, pieces)), value)


def _text(texts: Sequence[str], rows: Rows, tables: Tables, before: str) -> TemplatePiece | None:
    """The template of one column of numbers or words, behind the text `before`; None if none fits."""
    if len(set(texts)) == 1:
        return texts[0]
    for name, column in rows.texts.items():
        if column == texts:
            return Inserted(name)
    numeric = all(text.isdecimal() for text in texts)
    expression = expression_of([int(text) for text in texts], rows.numbers) if numeric else None
    if expression is not None:
        width = max((len(text) for text in texts if text.startswith("0") and text != "0"), default=0)
        if all(format(int(text), f"0{width}d" if width else "d") == text for text in texts):
            return Inserted(f"f'{{{expression}:0{width}d}}'" if width else expression)
    if numeric and before[-1:].isalpha():
        return None  # a part of a name, as in `w1`, which a table would take apart
    count = len(set(texts))
    remainders = {
        f"str(int({name}) % {count})": [str(int(text) % count) for text in column]
        for name, column in rows.texts.items()
        if f"int({name})" in rows.numbers and not numeric
    }
    words = {name: column for name, column in rows.texts.items() if f"int({name})" not in rows.numbers}
    for name, column in {**words, **remainders, **rows.texts}.items():
        table = dict(zip(column, texts, strict=True))
        if all(table[entry] == text for entry, text in zip(column, texts, strict=True)):
            return Inserted(f"{tables.named('numbers' if numeric else 'names', table)}[{name}]")
    return None


def _value(rows: Rows) -> str | None:
    """The value with an expression in each hole; None if none fits."""
    parts, numbers = [part for part, _ in rows.rows], rows.numbers
    if gathers(parts[0]):  # only columns that are constant in each part
        alone = set(map(id, parts))
        numbers = {
            name: column
            for name, column in numbers.items()
            if len(set(zip(map(id, parts), column, strict=True))) == len(alone)
        }
    holes: list[str] = []
    columns = zip(*(part.value.numbers for part in parts), strict=True)
    ends = zip(*(part.value.ends for part in parts), strict=True)
    for column, end in itertools.zip_longest(columns, ends):
        hole = "" if column == end else expression_of(column, numbers)
        if hole is None:
            return None
        holes.append(hole)
    return parts[0].value.text.format(*holes)  # holes are items of subscripts and arguments of calls
