"""One rule for a bundle of parts: keys, order and values as formulas and tables of the parts of a key."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.indices import Columns, condition, expression_of
from ckpt_surgery.inference.drafts.key_patterns import (
    BELOW,
    NUMBER,
    KeyPattern,
    KeyPlace,
    Matched,
    Universe,
    in_common,
)
from ckpt_surgery.inference.drafts.loops import loops_of, rows_of
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
    with_sources,
)

_CHOICES = 8
"""Maximum size of a table indexed by numbers: more entries explain nothing."""


def rule_for(bundle: Bundle, universe: Universe, tables: Tables, word: str = "") -> RuleDraft | None:
    """The rule for leaves whose keys differ in numbers and words; None if no formula or table fits.

    `word`: the name of the group in which their patterns differ.
    """
    alike = _alike(bundle, word)
    claim = None if alike is None else _claimed(alike, universe)
    if alike is None or claim is None:
        return None
    parts = [part for group in alike for part in group]
    first = parts[0]
    pattern = first.sources[0].pattern
    reasons = tuple(reason for part in parts for reason in part.reasons)
    keys, when = claim
    makes = 0 if first.kind is Kind.DROPPED else len(keys)
    draft = RuleDraft(first.kind, pattern, (), keys, makes, when=when, reasons=reasons, bundle=alike)
    if first.kind is not Kind.MADE:
        return draft
    loops, ordered = loops_of(alike), _order(alike, tables)
    if loops is None or ordered is None:
        return None
    ranges, columns = loops
    outputs = _outputs(alike, bool(ranges), columns, tables)
    if outputs is None:
        return None
    return replace(
        draft,
        outputs=outputs,
        makes=makes if BELOW in pattern.groups else len(parts),
        by=ordered or None,
        loops=ranges,
    )


def _alike(bundle: Bundle, word: str) -> Bundle | None:
    """The bundle with one pattern for all sources, and one for what each group makes and looks up."""
    sources = in_common((place for group in bundle for part in group for place in part.sources), word)
    if sources is None:
        return None
    groups = [_with_patterns(group, sources) for group in bundle]
    return None if None in groups else [group for group in groups if group is not None]


def _with_patterns(group: Group, source: Callable[[KeyPlace], KeyPlace]) -> Group | None:
    columns = [[part.target for part in group], *zip(*(part.looked_up for part in group), strict=True)]
    common = [in_common(place for place in column if place is not None) for column in columns]
    if None in common:
        return None
    target, *looked_up = [express for express in common if express is not None]
    return [
        RulePart(
            part.kind,
            tuple(map(source, part.sources)),
            part.target and target(part.target),
            part.value,
            part.reasons,
            tuple(place and to(place) for place, to in zip(part.looked_up, looked_up, strict=True)),
        )
        for part in group
    ]


# --- keys that it claims ----------------------------------------------------------------------------------


def _claimed(bundle: Bundle, universe: Universe) -> tuple[tuple[str, ...], str | None] | None:
    """The keys that the rule claims, and the condition that excludes others that its pattern matches.

    None if no condition excludes them.
    """
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
    when = _separating(pattern, list(wanted.values()), others) if others else None
    return None if others and when is None else (tuple(keys), when)


def _separating(pattern: KeyPattern, wanted: Sequence[Matched], others: Sequence[Matched]) -> str | None:
    """A condition on one number that holds for all `wanted` keys and no other; None if none does."""
    for before, group in zip(pattern.texts, pattern.groups, strict=False):
        if group.inner == NUMBER:
            numbers, beyond = ([int(match[group.name]) for match in each] for each in (wanted, others))
            when = condition(numbers, beyond, f"int({group.name})", ranges=before[-1:].isalpha())
            if when is not None:
                return when
    return None


# --- order ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Columns of numbers and texts of a group: a row for each part with each of its sources."""

    group: Group
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
    places = [place for _, place in rows_of(group)]
    texts = zip(*(place.values for place in places), strict=True)
    words: dict[str, Sequence[str]] = {}
    digits: dict[str, Sequence[str]] = {}
    for named, column in zip(places[0].pattern.groups, texts, strict=True):
        if named != BELOW:
            (digits if named.inner == NUMBER else words)[named.name] = column
    numbers = {f"int({name})": [int(text) for text in column] for name, column in digits.items()}
    return Rows(group, {**columns, **numbers}, words, digits)


def _order(bundle: Bundle, tables: Tables) -> str | None:
    """The expression of `by`; empty where none is needed, None where a part reads one leaf twice."""
    groups = [group for group in bundle if gathers(group[0].value.text)]
    if any(len(part.sources) > 1 for group in bundle if group not in groups for part in group):
        return None
    parts = [part for group in groups for part in group]
    if any(len(set(part.sources)) < len(part.sources) for part in parts):
        return None
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
    if all(is_natural(part) for part in parts):
        return ""
    places = {place.text: at for part in parts for at, place in enumerate(part.sources)}
    agree = all(places[place.text] == at for part in parts for at, place in enumerate(part.sources))
    return f"{tables.named('order', places)}[key]" if agree else None


def is_natural(part: RulePart) -> bool:
    """True if the sources of a part are in the order that rules without `by` give them."""
    keys = [place.text for place in part.sources]
    return keys == sorted(keys, key=natural_order)


# --- keys and values --------------------------------------------------------------------------------------


def _outputs(
    bundle: Bundle, looped: bool, loops: Sequence[Columns], tables: Tables
) -> tuple[DraftedOutput, ...] | None:
    outputs: list[DraftedOutput] = []
    for group, columns in zip(bundle, loops, strict=True):
        rows = _rows(group, columns)
        targets = [part.target for part, _ in rows_of(group) if part.target is not None]
        to, formula = _spelled(targets, rows, tables), _formula(rows)
        if to is None or formula is None:
            return None
        sources = list(_looked_up(rows, tables))
        if None in sources:
            return None
        value = with_sources(formula, [source or "x" for source in sources]) if sources else formula
        same = len(bundle) == 1 and not looped and not gathers(group[0].value.text)
        if same and all(part.target and part.target.text == part.sources[0].text for part in group):
            to = ()
        outputs.append(DraftedOutput(to, value, formula))
    return tuple(outputs)


def _spelled(places: Sequence[KeyPlace], rows: Rows, tables: Tables) -> tuple[TemplatePiece, ...] | None:
    """The template of these keys, all of one pattern: texts and expressions."""
    pattern = places[0].pattern
    pieces: list[TemplatePiece] = [pattern.texts[0]]
    columns = zip(*(place.values for place in places), strict=True)
    for group, column, text in zip(pattern.groups, columns, pattern.texts[1:], strict=True):
        inserted = [Inserted("rest")] if group == BELOW else _text(column, rows, tables, str(pieces[-1]))
        if inserted is None:
            return None
        pieces += [*inserted, text]
    return joined_text(pieces)


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
    for name, column in rows.texts.items() if numeric else rows.words.items():
        table = _table(column, texts)
        if table is not None and numeric:
            return [Inserted(f"{tables.named('numbers', table)}[{name}]")]
        if table is not None:
            return _around(name, table) or [Inserted(f"{tables.named('names', table)}[{name}]")]
    return _chosen(texts, rows, tables)


def _chosen(texts: Sequence[str], rows: Rows, tables: Tables) -> Sequence[TemplatePiece] | None:
    """Words chosen by a number or its remainder, from a short table; None if none fits."""
    count = len(set(texts))
    remainders = {f"int({n}) % {count}": [str(int(t) % count) for t in c] for n, c in rows.digits.items()}
    for name, column in {**remainders, **rows.digits}.items():
        table = _table(column, texts)
        if table is not None and len(table) <= _CHOICES:
            key = f"str({name})" if name in remainders else name
            choices = dict(sorted(table.items()))
            return _around(name, table) or [Inserted(f"{tables.named('choices', choices)}[{key}]")]
    return None


def _table(column: Sequence[str], texts: Sequence[str]) -> Mapping[str, str] | None:
    """The text for each entry of a column; None if one entry has several texts."""
    table = dict(zip(column, texts, strict=True))
    return table if all(table[entry] == text for entry, text in zip(column, texts, strict=True)) else None


def _around(name: str, table: Mapping[str, str]) -> Sequence[TemplatePiece]:
    """The entry with the same text before and behind it in the whole table; empty if they vary."""
    entry, text = next(iter(table.items()))
    head, _, tail = text.partition(entry)
    alike = all(text == f"{head}{entry}{tail}" for entry, text in table.items())
    return [head, Inserted(name), tail] if alike else []


def _formula(rows: Rows) -> str | None:
    """The value with an expression in each hole; None if none fits."""
    parts = [part for part, _ in rows_of(rows.group)]
    first, numbers = parts[0], rows.numbers
    if gathers(first.value.text) and not first.looked_up:  # only columns that are constant in each part
        numbers = {
            name: column
            for name, column in numbers.items()
            if len(set(zip(map(id, parts), column, strict=True))) == len(rows.group)
        }
    holes: list[str] = []
    columns = zip(*(part.value.numbers for part in parts), strict=True)
    ends = zip(*(part.value.ends for part in parts), strict=True)
    for column, end in itertools.zip_longest(columns, ends):
        hole = "" if column == end else expression_of(column, numbers)
        if hole is None:
            return None
        holes.append(hole)
    return with_holes(first.value.text, holes)


def _looked_up(rows: Rows, tables: Tables) -> Iterator[str | None]:
    """Expression for each leaf of `xs`: empty for the leaf that the rule claims, None if none fits."""
    for column in zip(*(part.looked_up for part, _ in rows_of(rows.group)), strict=True):
        places = [place for place in column if place is not None]
        pieces = _spelled(places, rows, tables) if places else ()
        yield None if pieces is None else f"source[{_as_text(pieces)}]" if pieces else ""


def _as_text(pieces: Sequence[TemplatePiece]) -> str:
    """The pieces as a literal of the expression language."""
    if all(isinstance(piece, str) for piece in pieces):
        return repr("".join(map(str, pieces)))
    inner = "".join(
        _quoted(piece) if isinstance(piece, str) else _in_text(piece.expression) for piece in pieces
    )
    return f"f'{inner}'"


def _quoted(text: str) -> str:
    """Text as a part of an f-string in single quotes."""
    doubled = text.replace("\\", "\\\\").replace("{", "{{").replace("}", "}}").replace("'", "\\'")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in doubled)


def _in_text(expression: str) -> str:
    """An expression as a part of an f-string; an f-string itself loses its quotes."""
    return expression[2:-1] if expression.startswith("f'") else f"{{{expression}}}"
