"""How two checkpoints differ, in words: what the comparison says, without columns and colours."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.summaries.summary import Summary, SummaryRow, warning_lines
from ckpt_surgery.core.text import number_of
from ckpt_surgery.report.differences import (
    ComparedLeaf,
    Difference,
    DifferenceRow,
    Holds,
    difference_rows,
    folded_values,
    why_missing,
)
from ckpt_surgery.report.distances import Tolerance
from ckpt_surgery.report.leaves import times_text
from ckpt_surgery.report.renames import Proof


def count_texts(difference: Difference, of_guesses: str = "") -> list[str]:
    """`2 only in A`, `1 changed`, …: how many leaves differ, and how.

    `of_guesses` is added where leaves are the same only to go by their names.
    """
    unequal = sum(not value.equal for value in difference.values or ())
    guessed = sum(one.proof is Proof.NAMES for one in difference.renamed)
    moved = len(difference.renamed)
    counts = [
        (len(difference.only_a) - moved, f"only in A{_of_empty(difference.only_a, difference.holds_b)}"),
        (len(difference.only_b) - moved, f"only in B{_of_empty(difference.only_b, difference.holds_a)}"),
        (moved - guessed, "renamed"),
        (guessed, f"renamed, to go by names and shapes{of_guesses}"),
        (len(difference.changed), "changed"),
        (unequal, f"with other values{tolerance_note(difference.tolerance)}"),
        (len(difference.uncompared), "not compared"),
    ]
    return [f"{count:,} {what}" for count, what in counts if count]


def same_text(difference: Difference) -> str:
    """`keys, kinds, shapes, dtypes and values (164 leaves)`: what was compared and is the same."""
    keys = "" if difference.only_a or difference.only_b else "keys, "
    kinds = "" if difference.scalars or not keys else "kinds, "
    values = "" if difference.values is None else " and values"
    return f"{keys}{kinds}shapes, dtypes{values} ({number_of(difference.common, 'leaf')})"


def distance_texts(value: ComparedLeaf) -> list[str]:
    """The largest distances and the cosine."""
    cosine = "-" if value.cosine is None else f"{value.cosine:.8f}"
    return [f"max abs {value.max_abs:.4g}", f"max rel {value.max_rel:.4g}", f"cosine {cosine}"]


def tolerance_note(tolerance: Tolerance) -> str:
    """` (rtol 1e-05, atol 0)`; nothing where only equal values are the same."""
    return "" if tolerance.exact else f" (rtol {tolerance.rtol:g}, atol {tolerance.atol:g})"


def format_note(difference: Difference) -> str:
    """A remark on what one of the formats cannot express, although the values are the same."""
    holds = difference.holds_a if not difference.holds_a.empty else difference.holds_b
    counts = [
        (len(difference.scalars), "scalar", "scalars"),
        (len(difference.only_a) + len(difference.only_b), "empty node", "empty nodes"),
    ]
    lacking = [f"{count:,} {one if count == 1 else several}" for count, one, several in counts if count]
    return f"; {holds.format} has no place for {' and '.join(lacking)}" if lacking else ""


def _of_empty(leaves: Sequence[Leaf], other: Holds) -> str:
    """A remark on how many of the leaves the format of the other checkpoint cannot hold."""
    count = sum(bool(why_missing(leaf, other)) for leaf in leaves)
    if not count:
        return ""
    return f" ({number_of(count, 'empty node')}, which {other.format} does not hold)"


# --- a summary of it ----------------------------------------------------------------------------------------


def difference_summary(difference: Difference) -> Summary:
    """Differences, as they are printed."""
    in_both = f"{number_of(difference.common, 'leaf')} in both"
    if not difference.different:
        about = f"same: {same_text(difference)}{format_note(difference)}"
    else:
        word = "different" if difference.known else "not known to be the same"
        about = f"{word}: {', '.join(count_texts(difference))}; {in_both}"
    return Summary(about, (), list(_difference_rows(difference)), warning_lines(difference.warnings))


def _difference_rows(difference: Difference) -> Iterator[SummaryRow]:
    yield from map(_difference_row, difference_rows(difference))
    for row in folded_values(difference.values or ()):
        yield SummaryRow(
            "values", row.key, times_text(row.count, ""), distance_texts(row.worst)[0], row.count
        )
    for one in difference.uncompared:
        yield SummaryRow("not compared", escaped(one.key), "", one.why)


def _difference_row(row: DifferenceRow) -> SummaryRow:
    keys = f"{row.source} → {row.key}" if row.source else row.key
    change = row.before if row.source else " → ".join(text for text in (row.before, row.after) if text)
    return SummaryRow(row.side, keys, times_text(row.count, change), row.why, row.count)
