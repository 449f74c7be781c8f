"""One rule for a bundle of parts: keys, order and values as formulas and tables of the parts of a key."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.indices import Columns, condition, expression_of
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
    Kind,
    RuleDraft,
    RulePart,
    Tables,
    TemplatePiece,
    gathers,
    joined_text,
    with_holes,
)

_CHOICES = 8
"""Maximum size of a table of words indexed by numbers: more entries explain nothing."""
_LOOPED = "ij"
"""Names of the variables of `for`."""


def rule_for(bundle: Bundle, universe: Universe, tables: Tables) -> RuleDraft | None:
    """The rule for leaves whose keys differ in numbers and words; None if no formula or table fits."""
    alike = _alike(bundle)
    claim = None if alike is None else _claimed(alike, universe)
    if alike is None or claim is None:
        return None
    parts = [part for group in alike for part in group]
    kind, pattern = parts[0].kind, parts[0].sources[0].pattern
    reasons = tuple(reason for part in parts for reason in part.reasons)
    keys, when = claim
    draft = RuleDraft(kind, pattern, (), keys, len(keys), when=when, reasons=reasons, bundle=alike)
    if kind is not Kind.MADE:
        return replace(draft, makes=0) if kind is Kind.DROPPED else draft
    loops, ordered = _loops(alike), _order(alike, tables)
    if loops is None or ordered is None:
        return None
    ranges, columns = loops
    outputs = [_output(_rows(*each), tables) for each in zip(alike, columns, strict=True)]
    known = tuple(output for output in outputs if output is not None)
    if len(known) < len(outputs):
        return None
    alone = len(alike) == 1 and not ranges and not gathers(parts[0].value.text)
    if alone and all(part.target and part.target.text == part.sources[0].text for part in parts):
        known = (replace(known[0], to=()),)
    makes = len(keys) if BELOW in pattern.groups else len(parts)
    return replace(draft, outputs=known, makes=makes, by=ordered or None, loops=ranges)


def _alike(bundle: Bundle) -> Bundle | None:
    """The bundle with one pattern for all sources, and one for what each group makes."""
    source = in_common(place for group in bundle for part in group for place in part.sources)
    targets = [in_common(part.target for part in group if part.target is not None) for group in bundle]
    if source is None or None in targets:
        return None
    return [
        [
            RulePart(
                part.kind,
                tuple(map(source, part.sources)),
                part.target and target and target(part.target),
                part.value,
                part.reasons,
            )
            for part in group
        ]
        for group, target in zip(bundle, targets, strict=True)
    ]


# --- keys that it claims ----------------------------------------------------------------------------------


def _claimed(bundle: Bundle, universe: Universe) -> tuple[tuple[str, ...], str | None] | None:
    """The keys that the rule claims, and the condition on one number that excludes others that its pattern
    matches; None if no condition excludes them."""
    places = {place.values: place for group in bundle for part in group for place in part.sources}
    wanted = {tuple(match.values()): match for match in (place.matched for place in places.values())}
    pattern = next(iter(places.values())).pattern
    keys: list[str] = []
    others: list[Matched] = []
    reached = set()
    for key, match in universe.matched(pattern).items():
        at = tuple(match[group.name] for group in pattern.groups if group != BELOW)
        if at in wanted:
            keys.append(key)
            reached.add(at)
        else:
            others.append(match)
    if len(reached) < len(wanted):
        return None
    if not others:
        return tuple(keys), None
    parts = [part for each in bundle for part in each]
    for slot, (before, group) in enumerate(zip(pattern.texts, pattern.groups, strict=False)):
        if group.inner == NUMBER:
            # `w1` and `w3` are names: being odd means nothing, and rules take them apart unless both of them
            # make one leaf.
            named = before[-1:].isalpha()
            together = any(len({place.values[slot] for place in part.sources}) > 1 for part in parts)
            numbers, beyond = (
                [int(match[group.name]) for match in each] for each in (wanted.values(), others)
            )
            when = condition(numbers, beyond, f"int({group.name})", not named, together or not named)
            if when is not None:
                return tuple(keys), when
    return None


# --- variables of `for` -----------------------------------------------------------------------------------

Row = tuple[RulePart, KeyPlace]
"""A part, and one of its sources."""
Ranges = tuple[tuple[str, str], ...]
"""The variables of a rule, each with the list of its values as an expression."""


def _rows_of(group: Group) -> list[Row]:
    """Every part with each of its sources, in order."""
    return [(part, place) for part in group for place in part.sources]


def _loops(bundle: Bundle) -> tuple[Ranges, Sequence[Columns]] | None:
    """The variables that enumerate the parts of each source in every group, and their values in each group;
    None if there are none."""
    places = {place.values for group in bundle for part in group for place in part.sources}
    loops: list[tuple[Ranges, Columns]] = []
    for rows in map(_rows_of, bundle):
        at_place: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, (_, place) in enumerate(rows):
            at_place[place.values].append(at)
        loop = _repeated(rows, list(at_place.values())) if at_place.keys() == places else None
        if loop is None:
            return None
        loops.append(loop)
    (ranges, *others), columns = zip(*loops, strict=True)
    return None if set(others) - {ranges} else (ranges, columns)


def _repeated(rows: Sequence[Row], by_place: Sequence[Sequence[int]]) -> tuple[Ranges, Columns] | None:
    """One variable, or two, that number the rows of each place; none where each has one row."""
    if all(len(place) == 1 for place in by_place):
        return (), {}
    targets = zip(*(part.target.values for part, _ in rows if part.target is not None), strict=True)
    holes = zip(*(part.value.numbers for part, _ in rows), strict=True)
    numbers = [list(map(int, column)) for column in targets if all(map(str.isdigit, column))]
    columns = [_ranks(column, by_place) for column in (*numbers, *holes) if len(set(column)) > 1]
    for ranks in (*((one,) for one in columns), *itertools.combinations(columns, 2)):
        lengths = [max(column) + 1 for column in ranks]
        wanted = list(itertools.product(*map(range, lengths)))
        if all(sorted(tuple(one[at] for one in ranks) for at in place) == wanted for place in by_place):
            ranges = ((name, f"range({length})") for name, length in zip(_LOOPED, lengths, strict=False))
            return tuple(ranges), dict(zip(_LOOPED, ranks, strict=False))
    return None


def _ranks(column: Sequence[int], by_place: Sequence[Sequence[int]]) -> list[int]:
    """The rank of each number among those of its place."""
    ranks = [0] * len(column)
    for place in by_place:
        order = {number: rank for rank, number in enumerate(sorted({column[at] for at in place}))}
        for at in place:
            ranks[at] = order[column[at]]
    return ranks


# --- order ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Columns of numbers and texts of a group: a row for each part with each of its sources."""

    rows: Sequence[Row]
    numbers: Columns
    """Columns of numbers by their expressions: `int(n)`, `i`."""
    words: Mapping[str, Sequence[str]]
    """Columns of words by the names of their places."""
    digits: Mapping[str, Sequence[str]]
    """Columns of numbers as they are written in keys, by the names of their places."""

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """All columns of texts: words first."""
        return {**self.words, **self.digits}


def _rows(group: Group, columns: Columns) -> Rows:
    rows = _rows_of(group)
    texts = zip(*(place.values for _, place in rows), strict=True)
    named = zip(rows[0][1].pattern.groups, texts, strict=True)
    columns_of = {place: column for place, column in named if place != BELOW}
    words = {place.name: column for place, column in columns_of.items() if place.inner != NUMBER}
    digits = {place.name: column for place, column in columns_of.items() if place.inner == NUMBER}
    numbers = {f"int({name})": [int(text) for text in column] for name, column in digits.items()}
    return Rows(rows, {**columns, **numbers}, words, digits)


def _order(bundle: Bundle, tables: Tables) -> str | None:
    """The expression of `by`; empty where none is needed, None where none gives the order."""
    groups = [group for group in bundle if gathers(group[0].value.text)]
    if any(len(part.sources) > 1 for group in bundle if group not in groups for part in group):
        return None
    parts = [part for group in groups for part in group]
    values = [at for part in parts for at in range(len(part.sources))]
    if not any(values):
        return ""
    rows = _rows(parts, {})
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
    targets = [part.target for part, _ in rows.rows if part.target is not None]
    pieces: list[TemplatePiece] = [targets[0].pattern.texts[0]]
    columns = zip(*(target.values for target in targets), strict=True)
    pattern = targets[0].pattern
    for group, column, text in zip(pattern.groups, columns, pattern.texts[1:], strict=True):
        inserted = [Inserted("rest")] if group == BELOW else _text(column, rows, tables, str(pieces[-1]))
        if inserted is None:
            return None
        pieces += [*inserted, text]
    value = _value(rows)
    return None if value is None else DraftedOutput(joined_text(pieces), value)


def _text(texts: Sequence[str], rows: Rows, tables: Tables, before: str) -> Sequence[TemplatePiece] | None:
    """The template of one column of numbers or words, behind the text `before`; None if none fits."""
    if len(set(texts)) == 1:
        return [texts[0]]
    for name, column in rows.texts.items():
        if column == texts:
            return [Inserted(name)]
    numeric = all(text.isdigit() for text in texts)
    expression = expression_of([int(text) for text in texts], rows.numbers) if numeric else None
    if expression is not None:
        width = max((len(text) for text in texts if text.startswith("0") and text != "0"), default=0)
        if all(format(int(text), f"0{width}d" if width else "d") == text for text in texts):
            return [Inserted(f"f'{{{expression}:0{width}d}}'" if width else expression)]
    if numeric and before[-1:].isalpha():
        return None  # a part of a name, as in `w1`, which a table would take apart
    count = len(set(texts))
    remainders = {
        f"str(int({name}) % {count})": [str(int(text) % count) for text in column]
        for name, column in rows.digits.items()
        if not numeric
    }
    for name, column in {**rows.words, **remainders, **rows.digits}.items():
        table = dict(zip(column, texts, strict=True))
        short = numeric or name in rows.words or len(table) <= _CHOICES
        if not short or any(table[entry] != text for entry, text in zip(column, texts, strict=True)):
            continue
        entry, text = next(iter(table.items()))
        head, _, tail = text.partition(entry)
        if name not in remainders and all(text == f"{head}{entry}{tail}" for entry, text in table.items()):
            return [head, Inserted(name), tail]
        kind = "numbers" if numeric else "names" if name in rows.words else "choices"
        table = dict(sorted(table.items())) if kind == "choices" else table
        return [Inserted(f"{tables.named(kind, table)}[{name}]")]
    return None


def _value(rows: Rows) -> str | None:
    """The value with an expression in each hole; None if none fits."""
    parts, numbers = [part for part, _ in rows.rows], rows.numbers
    if gathers(parts[0].value.text):  # only columns that are constant in each part
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
    return with_holes(parts[0].value.text, holes)
