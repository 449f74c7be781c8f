"""Lines of cells, broken between cells alone, so that no key and no figure is cut; texts that many show."""

import textwrap
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

WORD = 13
"""Width of the first column."""


def sentence(text: str, width: int) -> Iterator[Text]:
    """A sentence, broken at spaces alone: no option, key or number is cut."""
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    yield from map(Text, lines)


def start_of(word: str, style: str) -> Text:
    """The first column of a line. The style does not extend to text that is appended."""
    return Text().append(f"{word:<{WORD}}", style)


def labelled(label: str, text: str | Text = "") -> Text:
    """Word of the first column for a text."""
    label = label if len(label) < WORD else f"{label} "
    return Text.assemble((f"{label:<{WORD}}", "dim"), text)


ARROW = " → "
GAP = "  "
"""Separator of two cells of a line."""
NARROWEST = 24
"""Least width of the first column."""
INDENT = 4
"""Indentation of cells that have no place beside their key."""


def padded(rows: Sequence[Sequence[Text]], right: Collection[int] = ()) -> list[list[Text]]:
    """Pad the cells, in place, to the width of the widest in their column; leave out empty columns.

    `right`: numbers of the columns whose cells are put to the right end.
    """
    widths = [max((cell.cell_len for cell in column), default=0) for column in zip(*rows, strict=True)]
    for row in rows:
        for n, (cell, width) in enumerate(zip(row, widths, strict=True)):
            pad = cell.pad_left if n in right else cell.pad_right
            pad(width - cell.cell_len)
    return [[cell for cell, width in zip(row, widths, strict=True) if width] for row in rows]


def rows_of(
    names: Sequence[Text], rows: Sequence[Sequence[Text]], width: int, indent: int = INDENT
) -> Iterator[Text]:
    """A line for each name with its cells; where these have no place beside it, they follow below it.

    The first column is as wide as the longest name, or less where the cells need the place.
    A name that is too long for a line is broken before its arrow.
    """
    beside = max((sum(cell.cell_len + len(GAP) for cell in row) for row in rows), default=0)
    column = min(_longest(names), max(NARROWEST, width - beside))
    for name, cells in zip(names, rows, strict=True):
        line, space = name.copy(), column - name.cell_len
        line.append(" " * space)
        for cell in _trimmed(cells) if space < 0 else cells:
            line.append(GAP).append_text(cell)
        line.rstrip()
        if line.cell_len <= width:
            yield line
            continue
        first, *others = name.split(ARROW)
        yield from flowing([first, *(Text(ARROW.lstrip()) + one for one in others)], " ", width, indent)
        if trimmed := _trimmed(cells):
            yield from flowing([Text(" " * indent) + trimmed[0], *trimmed[1:]], GAP, width, indent)


def blocks_of(names: Sequence[Text], rows: Sequence[Sequence[Text]], width: int) -> Iterator[Text]:
    """A line for each name with its cells; where one does not fit, two for each, so that columns stay.

    The first of the two has the name and one cell, the second all others.
    """
    if all(sum(cell.cell_len + len(GAP) for cell in row) <= width - _longest(names) for row in rows):
        yield from rows_of(names, rows, width)
        return
    for (name,), (first, *others) in zip(padded([[name] for name in names]), rows, strict=True):
        yield from rows_of([name], [[first]], width)
        while others and not others[-1].plain.strip():
            others.pop()
        if others:
            yield from flowing([Text(" " * INDENT) + others[0], *others[1:]], GAP, width)


def _longest(names: Sequence[Text]) -> int:
    return max((name.cell_len for name in names), default=0)


def _trimmed(cells: Sequence[Text]) -> list[Text]:
    """The cells that are not blank, without spaces at their ends."""
    copies = [cell.copy() for cell in cells if cell.plain.strip()]
    for cell in copies:
        cell.rstrip()
    return copies


def flowing(parts: Sequence[Text], between: str, width: int, hang: int = INDENT) -> Iterator[Text]:
    """The parts one after the other, broken between parts where the width is not enough."""
    line = Text()
    for i, part in enumerate(parts):
        piece = part if i == len(parts) - 1 else part + Text(between.rstrip())
        lead = "" if not line else between[len(between.rstrip()) :]
        length = cell_len(piece.plain.rstrip())
        if line.plain.strip() and line.cell_len + len(lead) + length > width:
            line.rstrip()
            yield line
            line, lead = Text(" " * hang), ""
        line = line + Text(lead) + piece
    if line:
        line.rstrip()
        yield line
