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


GAP = "  "
"""Separator of two cells of a line."""
NARROWEST = 24
"""Least width of the first column."""
INDENT = 4
"""Indentation of cells that have no place beside their key, nor below the second column."""


def padded(rows: Sequence[Sequence[Text]], right: Collection[int] = ()) -> list[list[Text]]:
    """The cells with all columns as wide as their widest cell, and without the columns that are empty.

    `right`: numbers of the columns whose cells are put to the right end.
    """
    widths = [max((cell.cell_len for cell in column), default=0) for column in zip(*rows, strict=True)]
    padded_rows: list[list[Text]] = [[] for _ in rows]
    for row, cells in zip(rows, padded_rows, strict=True):
        for n, (cell, width) in enumerate(zip(row, widths, strict=True)):
            if width:
                space = Text(" " * (width - cell.cell_len))
                cells.append(space + cell if n in right else cell + space)
    return padded_rows


def first_width(names: Sequence[Text], rows: Sequence[Sequence[Text]], least: int, width: int) -> int:
    """Width of the first column: that of the longest name, or less where the first cells need the place.

    `least`: number of cells that are to be on the line of the name, if that can be.
    """
    wanted = max((name.cell_len for name in names), default=0)
    beside = max((sum(cell.cell_len + len(GAP) for cell in row[:least]) for row in rows), default=0)
    return min(wanted, max(NARROWEST, width - beside))


def rows_of(names: Sequence[Text], rows: Sequence[Sequence[Text]], least: int, width: int) -> Iterator[Text]:
    """A line for each name with its cells, or several where the width is not enough.

    What does not fit continues below the second column where its widest cell fits there, else a little to the
    right of the margin. A name that is too long for the first column has a line of its own.
    """
    column = first_width(names, rows, least, width)
    widest = max((cell.cell_len for row in rows for cell in row), default=0)
    hang = column + len(GAP) if column + len(GAP) + widest <= width else INDENT
    for name, cells in zip(names, rows, strict=True):
        yield from _row(name, cells, column, hang, width)


def blocks_of(
    names: Sequence[Text], rows: Sequence[Sequence[Text]], least: int, width: int, indent: int = INDENT
) -> Iterator[Text]:
    """A line for each name with its cells; where one does not fit, two for each.

    The first of the two has the name and `least` cells, the second, indented, all others.
    """
    longest = max((name.cell_len for name in names), default=0)
    if all(longest + sum(cell.cell_len + len(GAP) for cell in row) <= width for row in rows):
        yield from rows_of(names, rows, least, width)
        return
    column = first_width(names, rows, least, width)
    for name, cells in zip(names, rows, strict=True):
        yield from _row(name, cells[:least], column, INDENT, width)
        if any(cell.plain.strip() for cell in cells[least:]):
            yield from flowing([Text(" " * indent) + cells[least], *cells[least + 1 :]], GAP, width, indent)


def _row(name: Text, cells: Sequence[Text], column: int, hang: int, width: int) -> Iterator[Text]:
    line, used = name.copy(), False
    if not any(cell.plain.strip() for cell in cells):
        yield line
        return
    if line.cell_len > column:
        yield line
        line = Text(" " * hang)
    else:
        line.append(" " * (column - line.cell_len) + GAP)
    for cell in cells:
        length = cell_len(cell.plain.rstrip())
        if used and length and line.cell_len + length > width:
            line.rstrip()
            yield line
            line = Text(" " * hang)
        line.append_text(cell).append(GAP)
        used = True
    line.rstrip()
    yield line


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
