"""How two checkpoints differ, as lines of styled text."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from ckpt_surgery.cli.columns import GAP, blocks_of, flowing, padded, rows_of
from ckpt_surgery.cli.render import WORD, number_of, start_of
from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import shown
from ckpt_surgery.report.differences import (
    Difference,
    DifferenceRow,
    Holds,
    ValueDifference,
    difference_rows,
    folded_values,
    why_missing,
)
from ckpt_surgery.report.distances import Tolerance
from ckpt_surgery.report.renames import Proof

MOST_VALUES = 20
"""Number of leaves with differing values that are listed without `--full`."""


def difference_lines(difference: Difference, *, full: bool, width: int) -> Iterator[Text]:
    """What differs, then the summary."""
    rows = difference_rows(difference, full=full)
    yield from _row_lines([row for row in rows if not row.source], width)
    for row in rows:
        if row.source:
            yield from _renamed_lines(row, width)
    unequal = folded_values(difference.values or (), full=full)
    told = [(row.key, row.count, [_leaves(row.count), *_distances(row.worst)]) for row in unequal]
    yield from _listed(told, "values", full, width)
    unknown = [(escaped(one.key), 1, [shown(one.why)]) for one in difference.uncompared]
    yield from _listed(unknown, "not compared", full, width)
    yield from _difference_summary(difference, width)


def _row_lines(rows: Sequence[DifferenceRow], width: int) -> Iterator[Text]:
    keys = [_side(row.side).append(row.key) for row in rows]
    counts = [f"{row.count:,} × " if row.count > 1 else "" for row in rows]
    widest = max(map(len, counts), default=0)
    cells = [_cells(row, f"{count:>{widest}}") for row, count in zip(rows, counts, strict=True)]
    yield from rows_of(keys, padded(cells, (False, False)), 1, width)


def _renamed_lines(row: DifferenceRow, width: int) -> Iterator[Text]:
    """`old → new  3 × f32[16]`; on two lines where that is too long."""
    what = f"{row.count:,} × {row.before}" if row.count > 1 else row.before
    parts = [_side(row.side).append(row.source), Text(f"→ {row.key}").append(f"  {what}", "dim")]
    yield from flowing(parts, " ", width, WORD)


def _leaves(count: int) -> str:
    return number_of(count, "leaf") if count > 1 else ""


def _cells(row: DifferenceRow, count: str) -> list[Text]:
    """Count and what is in A and in B; why the other cannot hold it."""
    change = " → ".join(text for text in (row.before, row.after) if text)
    return [Text(text, "dim") for text in (count + change, row.why)]


def _side(side: str) -> Text:
    styles = {"only in A": "bold red", "only in B": "green", "changed": "yellow"}
    styles |= {"renamed": "cyan", "renamed?": "cyan"}
    return start_of(side, styles[side])


def _distances(value: ValueDifference) -> list[str]:
    """The largest distances and the cosine; for what is no number, that the bytes differ."""
    if value.max_abs is None or value.max_rel is None:
        return ["other bytes"]
    cosine = "-" if value.cosine is None else f"{value.cosine:.8f}"
    return [f"max abs {value.max_abs:.4g}", f"max rel {value.max_rel:.4g}", f"cosine {cosine}"]


def _listed(
    told: Sequence[tuple[str, int, Sequence[str]]], word: str, full: bool, width: int
) -> Iterator[Text]:
    """A line for each pattern of keys and its texts; only the first ones of many, unless `full`."""
    listed = told if full else told[:MOST_VALUES]
    keys = [start_of(word, "yellow").append(key) for key, _, _ in listed]
    most = max((len(texts) for _, _, texts in listed), default=0)
    cells = [[Text(text) for text in (*texts, *[""] * (most - len(texts)))] for _, _, texts in listed]
    yield from blocks_of(keys, padded(cells, (False,) * most), 0, width, WORD + len(GAP))
    more = sum(count for _, count, _ in told[len(listed) :])
    if more:
        leaves = "leaf" if more == 1 else "leaves"
        yield start_of(word, "yellow").append(f"and {more:,} more {leaves} (--full)")


def _difference_summary(difference: Difference, width: int) -> Iterator[Text]:
    compared = difference.values
    within = _within(difference.tolerance)
    if not difference.different:
        keys = "" if difference.only_a or difference.only_b else "keys, "
        kinds = "" if difference.scalars or not keys else "kinds, "
        what = f"{keys}{kinds}shapes, dtypes" + ("" if compared is None else " and values")
        note = "; --values compares the numbers too" if compared is None else within
        same = f"{what} ({number_of(difference.common, 'leaf')}){note}{_of_formats(difference)}"
        yield from flowing([Text("same", "bold green"), *map(Text, same.split(" "))], " ", width)
        return
    unequal = sum(not value.equal for value in compared or ())
    guessed = sum(one.proof is Proof.NAMES for one in difference.renamed)
    moved = len(difference.renamed)
    counts = [
        (len(difference.only_a) - moved, f"only in A{_of_empty(difference.only_a, difference.holds_b)}"),
        (len(difference.only_b) - moved, f"only in B{_of_empty(difference.only_b, difference.holds_a)}"),
        (moved - guessed, "renamed"),
        (guessed, "renamed, to go by names and shapes (--values compares them)"),
        (len(difference.changed), "changed"),
        (unequal, f"with other values{within}"),
        (len(difference.uncompared), "not compared"),
    ]
    told = [f"{count:,} {what}," for count, what in counts if count]
    told[-1] = f"{told[-1].removesuffix(',')};"
    word = "different:" if difference.known else "not known to be the same:"
    parts = [word, *told, f"{number_of(difference.common, 'leaf')} in both"]
    yield from flowing([Text(part, "" if i else "bold") for i, part in enumerate(parts)], " ", width)


def _within(tolerance: Tolerance) -> str:
    """` (rtol 1e-05, atol 0)`; nothing where only equal values are the same."""
    return "" if tolerance.exact else f" (rtol {tolerance.rtol:g}, atol {tolerance.atol:g})"


def _of_formats(difference: Difference) -> str:
    """A remark on what one of the formats cannot express, although the values are the same."""
    holds = difference.holds_a if not difference.holds_a.empty else difference.holds_b
    counts = [
        (len(difference.scalars), "scalar", "scalars"),
        (len(difference.only_a) + len(difference.only_b), "empty node", "empty nodes"),
    ]
    told = [f"{count:,} {one if count == 1 else several}" for count, one, several in counts if count]
    return f"; {holds.format} has no place for {' and '.join(told)}" if told else ""


def _of_empty(leaves: Sequence[Leaf], other: Holds) -> str:
    """A remark on how many of the leaves the format of the other checkpoint cannot hold."""
    count = sum(bool(why_missing(leaf, other)) for leaf in leaves)
    if not count:
        return ""
    return f" ({number_of(count, 'empty node')}, which {other.format} does not hold)"
