"""Difference of two checkpoints, as lines of styled text."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from ckpt_surgery.cli.terminal.columns import GAP, WORD, flowing, padded, rows_of, start_of
from ckpt_surgery.core.summary import SummaryRow
from ckpt_surgery.core.text import number_of, shown
from ckpt_surgery.report import differences
from ckpt_surgery.report.leaves import times_text

MOST_VALUES = 20
"""Number of leaves with differing values that are listed without `--full`."""


def difference_lines(difference: differences.Difference, *, full: bool, width: int) -> Iterator[Text]:
    """Lines for what differs, then the summary."""
    rows = differences.difference_rows(difference, full=full)
    by_kind: dict[str, list[SummaryRow]] = {"values": [], "not compared": [], "renamed": [], "": []}
    for row in rows:
        word = row.word.rstrip("?")
        by_kind[word if word in by_kind else ""].append(row)
    yield from _row_lines(by_kind[""], width)
    for row in by_kind["renamed"]:
        cells = [[Text(times_text(row.count, row.what), "dim")]]
        yield from rows_of([_side(row.word).append(row.key)], cells, width, WORD)
    for word in ("values", "not compared"):
        yield from _listed(by_kind[word], word, full, width)
    yield from _difference_summary(difference, width)


def _row_lines(rows: Sequence[SummaryRow], width: int) -> Iterator[Text]:
    keys = [_side(row.word).append(row.key) for row in rows]
    counts = [f"{row.count:,} × " if row.count > 1 else "" for row in rows]
    widest = max(map(len, counts), default=0)
    texts = [(f"{count:>{widest}}{row.what}", row.why) for row, count in zip(rows, counts, strict=True)]
    cells = [[Text(text, "dim") for text in row] for row in texts]
    yield from rows_of(keys, padded(cells), width)


def _side(side: str) -> Text:
    styles = {"only in A": "bold red", "only in B": "green", "changed": "yellow"}
    styles |= {"renamed": "cyan", "renamed?": "cyan"}
    return start_of(side, styles[side])


def _listed(rows: Sequence[SummaryRow], word: str, full: bool, width: int) -> Iterator[Text]:
    """A line for each pattern of keys and its texts; only the first ones of many, unless `full`."""
    listed = rows if full else rows[:MOST_VALUES]
    keys = [start_of(word, "yellow").append(row.key) for row in listed]
    cells = [
        [Text(times_text(row.count, "")), *map(Text, shown(row.why).split(differences.APART))]
        for row in listed
    ]
    most = max(map(len, cells), default=0)
    padding = [[*row, *(Text() for _ in range(most - len(row)))] for row in cells]
    yield from rows_of(keys, padded(padding), width, WORD + len(GAP))
    if more := sum(row.count for row in rows[len(listed) :]):
        noun = "leaf" if more == 1 else "leaves"
        yield start_of(word, "yellow").append(f"and {more:,} more {noun} (--full)")


def _difference_summary(difference: differences.Difference, width: int) -> Iterator[Text]:
    compared = difference.values
    within = differences.tolerance_note(difference.tolerance)
    if not difference.different:
        note = "; --values compares the numbers too" if compared is None else within
        same = f"{differences.same_text(difference)}{note}{differences.format_note(difference)}"
        yield from flowing([Text("same", "bold green"), *map(Text, same.split(" "))], " ", width)
        return
    word = "different:" if difference.known else "not known to be the same:"
    first, *others = differences.count_texts(difference, of_guesses=" (--values compares them)")
    parts = [Text.assemble((word, "bold"), f" {first}"), *map(Text, others)]
    parts[-1].append(f"; {number_of(difference.common, 'leaf')} in both")
    yield from flowing(parts, ", ", width)
