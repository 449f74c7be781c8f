"""One rule for a bundle of parts: how its keys, its order and its values follow from the numbers of a key."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.inference.drafts.indices import expression_of
from ckpt_surgery.inference.drafts.key_patterns import NUMBER, Universe
from ckpt_surgery.inference.drafts.loops import Loops, loops_of, rows_of
from ckpt_surgery.inference.drafts.parts import Bundle, Group, KeyPlace, Kind, RulePart
from ckpt_surgery.inference.drafts.place_patterns import WORD, Seen, claimed, seen_together
from ckpt_surgery.inference.drafts.rule_drafts import (
    DraftedOutput,
    Inserted,
    RuleDraft,
    TemplatePiece,
    joined_text,
)
from ckpt_surgery.inference.drafts.tables import Tables
from ckpt_surgery.inference.drafts.value_texts import gathers, with_holes, with_sources
from ckpt_surgery.inference.keys.grids import KeyTemplate


@dataclass(frozen=True)
class Rows:
    """What is known in every row: of each part, with each of its sources."""

    group: Group
    numbers: Mapping[str, Sequence[int]]
    """Columns of numbers by their expressions: `int(n)`, `i`."""
    texts: Mapping[str, Sequence[str]]
    """Columns of texts by the names of groups."""

    def first_of_parts(self) -> "Rows":
        """One row for each part, with the columns that have one value in all rows of a part."""
        starts, at = [], 0
        for part in self.group:
            starts.append(range(at, at + len(part.sources)))
            at += len(part.sources)
        kept = {
            name: [column[rows[0]] for rows in starts]
            for name, column in self.numbers.items()
            if all(len({column[row] for row in rows}) == 1 for rows in starts)
        }
        return Rows([replace(part, sources=part.sources[:1]) for part in self.group], kept, {})


def rule_for(bundle: Bundle, universe: Universe, tables: Tables) -> RuleDraft | None:
    """The rule for leaves whose keys differ in indices; None if no index formula fits."""
    places = list(dict.fromkeys(p for group in bundle for part in group for p in part.sources))
    seen = seen_together(places)
    claim = None if seen is None else claimed(seen, universe)
    if seen is None or claim is None:
        return None
    parts = [part for group in bundle for part in group]
    first = parts[0]
    reasons = tuple(reason for part in parts for reason in part.reasons)
    keys, when = claim
    makes = 0 if first.kind is Kind.DROPPED else len(keys)
    draft = RuleDraft(first.kind, seen.pattern, (), keys, makes, when=when, reasons=reasons)
    if first.kind is not Kind.MADE:
        return draft
    loops = loops_of(bundle)
    ordered = _order(bundle, seen, tables)
    if loops is None or ordered is None:
        return None
    outputs = _outputs(bundle, seen, loops, tables)
    if outputs is None:
        return None
    return replace(
        draft,
        outputs=outputs,
        makes=makes if first.sources[0].rest else len(parts),
        by=ordered or None,
        loops=loops.ranges,
        looks_up=any(part.looked_up for part in parts),
    )


def _rows(group: Group, seen: Seen, columns: Mapping[str, Sequence[int]]) -> Rows:
    matches = [seen.matches[place] for _, place in rows_of(group)]
    numbers = {
        f"int({one.name})": [int(match[one.name]) for match in matches]
        for one in seen.pattern.groups
        if one.inner == NUMBER
    }
    texts = {name: [match[name] for match in matches] for name in matches[0]}
    return Rows(group, {**columns, **numbers}, texts)


# --- order ------------------------------------------------------------------------------------------------


def _order(bundle: Bundle, seen: Seen, tables: Tables) -> str | None:
    """The expression of `by`; empty where none is needed, None where a part reads one leaf twice."""
    groups = [group for group in bundle if gathers(group[0].value.text)]
    if any(len(part.sources) > 1 for group in bundle if group not in groups for part in group):
        return None
    if any(len(set(part.sources)) < len(part.sources) for group in groups for part in group):
        return None
    rows = _rows([part for group in groups for part in group], seen, {}) if groups else None
    if rows is None:
        return ""
    values = [at for part in rows.group for at in range(len(part.sources))]
    if not any(values):
        return ""
    found = expression_of(values, rows.numbers)
    if found is not None:
        return found
    for name in sorted(rows.texts, key=WORD.__ne__):
        first: dict[str, int] = {}
        for text, value in zip(rows.texts[name], values, strict=True):
            first[text] = min(value, first.get(text, value))
        order = {text: rank for rank, text in enumerate(sorted(first, key=first.__getitem__))}
        looked_up = f"order[{name}]"
        found = expression_of(values, {**rows.numbers, looked_up: [order[text] for text in rows.texts[name]]})
        if found is not None:
            return found.replace(looked_up, f"{tables.named('order', order)}[{name}]")
    if all(_is_natural(part) for part in rows.group):
        return ""
    places = {place.text: at for part in rows.group for at, place in enumerate(part.sources)}
    agree = all(places[place.text] == at for part in rows.group for at, place in enumerate(part.sources))
    return f"{tables.named('order', places)}[key]" if agree else None


def _is_natural(part: RulePart) -> bool:
    keys = [place.text for place in part.sources]
    return keys == sorted(keys, key=natural_order)


# --- keys and values --------------------------------------------------------------------------------------


def _outputs(bundle: Bundle, seen: Seen, loops: Loops, tables: Tables) -> tuple[DraftedOutput, ...] | None:
    found: list[DraftedOutput] = []
    for group, columns in zip(bundle, loops.columns, strict=True):
        rows = _rows(group, seen, columns)
        to = _target(rows, tables)
        value = _value(rows, tables)
        if to is None or value is None:
            return None
        same = len(bundle) == 1 and not loops.ranges and not gathers(group[0].value.text)
        if same and all(part.target == part.sources[0] for part in group):
            to = ()
        found.append(DraftedOutput(to, value))
    return tuple(found)


def _target(rows: Rows, tables: Tables) -> tuple[TemplatePiece, ...] | None:
    targets = [part.target for part, _ in rows_of(rows.group)]
    pieces = spelled([target for target in targets if target is not None], rows, tables)
    first = targets[0]
    rest: list[TemplatePiece] = []
    if first is not None and first.rest:
        rest = [Inserted("rest"), first.suffix]
    return None if pieces is None else joined_text([*pieces, *rest])


def spelled(places: Sequence[KeyPlace], rows: Rows, tables: Tables) -> list[TemplatePiece] | None:
    """The key of one place in every row, all of one template, as texts and expressions."""
    pieces: list[TemplatePiece] = [places[0].template.texts[0]]
    for slot, text in enumerate(places[0].template.texts[1:]):
        piece = _text([place.numbers[slot] for place in places], rows, tables)
        if piece is None:
            return None
        pieces += [piece, text]
    return pieces


def _text(texts: Sequence[str], rows: Rows, tables: Tables) -> TemplatePiece | None:
    """Numbers as they are written in keys: row by row."""
    if len(set(texts)) == 1:
        return texts[0]
    for name, column in rows.texts.items():
        if column == texts:
            return Inserted(name)
    found = expression_of([int(text) for text in texts], rows.numbers)
    if found is not None:
        width = max((len(text) for text in texts if text.startswith("0") and text != "0"), default=0)
        if all(format(int(text), f"0{width}d" if width else "d") == text for text in texts):
            return Inserted(f"f'{{{found}:0{width}d}}'" if width else found)
    for name, column in rows.texts.items():
        table = dict(zip(column, texts, strict=True))
        if all(table[one] == text for one, text in zip(column, texts, strict=True)):
            return Inserted(f"{tables.named('numbers', table)}[{name}]")
    return None


def _value(rows: Rows, tables: Tables) -> str | None:
    first = rows.group[0]
    rows = rows.first_of_parts() if gathers(first.value.text) and not first.looked_up else rows
    values = [part.value for part, _ in rows_of(rows.group)]
    holes: list[str] = []
    columns = zip(*(value.numbers for value in values), strict=True)
    ends = zip(*(value.ends for value in values), strict=True)
    for column, end in itertools.zip_longest(columns, ends):
        found = "" if column == end else expression_of(column, rows.numbers)
        if found is None:
            return None
        holes.append(found)
    text = with_holes(first.value.text, holes)
    if not first.looked_up:
        return text
    sources = list(_looked_up(rows, tables))
    return (
        None if None in sources else with_sources(text, ["x" if one == "" else one or "" for one in sources])
    )


def _looked_up(rows: Rows, tables: Tables) -> Iterator[str | None]:
    """Each leaf of `xs` as an expression: empty for the leaf that the rule claims, None where none fits."""
    parts = [part for part, _ in rows_of(rows.group)]
    for at, place in enumerate(parts[0].looked_up):
        if place is None:
            yield ""
            continue
        places = [part.looked_up[at] for part in parts]
        if len({one.template for one in places if one is not None}) > 1:
            yield None
            continue
        pieces = spelled([one for one in places if one is not None], rows, tables)
        yield None if pieces is None else f"source[{_as_text(pieces)}]"


def _as_text(pieces: Sequence[TemplatePiece]) -> str:
    """The pieces as a literal of the expression language."""
    pieces = joined_text(pieces)
    if all(isinstance(piece, str) for piece in pieces):
        return repr("".join(map(str, pieces)))
    inner = "".join(
        _quoted(piece) if isinstance(piece, str) else _in_text(piece.expression) for piece in pieces
    )
    return f"f'{inner}'"


def _quoted(text: str) -> str:
    """Text as a part of an f-string in single quotes."""
    doubled = text.replace("\\", "\\\\").replace("{", "{{").replace("}", "}}").replace("'", "\\'")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in doubled)


def _in_text(expression: str) -> str:
    """An expression as a part of an f-string; of one that is such a text itself, what is in it."""
    return expression[2:-1] if expression.startswith("f'") else f"{{{expression}}}"


def literal(bundle: Bundle) -> Bundle:
    """The same parts with keys that have no numbers: for rules about one key, or a few."""
    parts = [part for group in literal_sources(bundle) for part in group]
    return [[replace(part, target=part.target and _literal(part.target))] for part in parts]


def literal_sources(bundle: Bundle) -> Bundle:
    """The same parts with sources that have no numbers: for rules about one leaf."""
    return [[_with_literal_sources(part) for part in group] for group in bundle]


def _with_literal_sources(part: RulePart) -> RulePart:
    sources = tuple(map(_literal, part.sources))
    return replace(part, sources=sources, looked_up=tuple(one and _literal(one) for one in part.looked_up))


def _literal(place: KeyPlace) -> KeyPlace:
    return KeyPlace(KeyTemplate((place.text,)), (), place.rest, place.suffix)
