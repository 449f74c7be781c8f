"""Short representations of listings, for terminals and notebooks."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ckpt_surgery.core.keys import SEPARATOR, parts_of
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.summaries.summary import Summary, SummaryRow, warning_lines
from ckpt_surgery.core.text import bytes_text, number_of
from ckpt_surgery.report.leaves import describe, short_dtype, times_text
from ckpt_surgery.report.tree import CUT, TreeLine, dtype_totals, listing, size_texts, total_text, tree

MOST_TREE_LINES = 60
"""Lines of a tree; of a larger one only the upper levels are shown."""


def listing_summary(
    about: str,
    leaves: Sequence[Leaf],
    texts: Mapping[str, str],
    others: int = 0,
    warnings: Sequence[str] = (),
    inside: int = 0,
) -> Summary:
    """A checkpoint by its leaves. `texts`: values that are known, by key text; see `shared_texts`.

    `others`: number of leaves that are not among these. `inside`: number of components that all keys begin
    with, and that are left out.
    """
    dtypes = [
        f"{short_dtype(name)} {bytes_text(total.bytes)} in {number_of(total.leaves, 'leaf')}"
        for name, total in dtype_totals(leaves).items()
    ]
    lines = [_without(line, inside) for line in listing(leaves, texts)]
    return Summary(
        about,
        (", ".join(size_texts(leaves, others)), *([", ".join(dtypes)] if len(dtypes) > 1 else [])),
        list(map(_listing_row, lines)),
        warning_lines(warnings),
        lambda: _upper_levels(tree(lines)),
    )


def _without(line: TreeLine, inside: int) -> TreeLine:
    return replace(line, key=SEPARATOR.join(parts_of(line.key)[inside:])) if inside else line


def _upper_levels(lines: Sequence[TreeLine]) -> list[SummaryRow]:
    """A tree with as many of its levels as fit."""
    counts = Counter(line.level for line in lines)
    sizes = itertools.accumulate(counts[level] for level in sorted(counts))
    deepest = max(0, sum(size <= MOST_TREE_LINES for size in sizes) - 1)
    shown = [line for line in lines if line.level <= deepest]
    return [_cut_off(line) if line.level == deepest else _listing_row(line) for line in shown]


def _cut_off(line: TreeLine) -> SummaryRow:
    """The row of a line without those inside of it."""
    row = _listing_row(line)
    return row if line.leaf is not None else replace(row, key=f"{row.key}{SEPARATOR}{CUT}")


def _listing_row(line: TreeLine) -> SummaryRow:
    size, count = bytes_text(line.total.bytes), line.total.leaves
    if line.leaf is None:
        return SummaryRow("", line.key, total_text(line.total), size, count, line.level)
    what = f"{times_text(line.count, describe(line.leaf))} {line.value}".rstrip()
    return SummaryRow("", line.key, what, size, count, line.level)
