"""Statistics as lines of styled text: numbers and histograms, then what is unusual."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.cli.render.inspection import head_lines
from ckpt_surgery.cli.terminal.columns import blocks_of, flowing, padded
from ckpt_surgery.core.folding import ShownKey, escaped, fold
from ckpt_surgery.core.text import number_of, shown
from ckpt_surgery.report.histograms import blocks
from ckpt_surgery.report.inspection import INFINITE, MIXED_DTYPES, NAN, ZEROS, Unusual
from ckpt_surgery.report.leaves import Statistics, Unread, describe

if TYPE_CHECKING:
    from ckpt_surgery.report.inspection import Inspection

MOST_PATTERNS = 10
"""Number of patterns of keys that are listed for one kind of unusual leaves, without `--full`."""

_TITLES = {NAN: "NaN in", INFINITE: "inf in", ZEROS: "nothing but zeros in", MIXED_DTYPES: "mixed dtypes in"}


def statistics_lines(found: "Inspection", *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """Head, a line for every leaf with its numbers or why it has none, and what is unusual."""
    statistics = found.statistics or {}
    yield from head_lines(found, verbose, width)
    yield Text()
    told = [statistics.get(leaf.key.text) for leaf in found.leaves]
    listed = zip(found.leaves, told, strict=True)
    cells = [[Text(describe(leaf), "dim"), *_numbers(stats)] for leaf, stats in listed]
    rows = padded(cells, (False,) * 7)
    rows = [
        _unread(row, stats) if isinstance(stats, Unread) else row
        for row, stats in zip(rows, told, strict=True)
    ]
    yield from blocks_of([Text(escaped(leaf.key.printed)) for leaf in found.leaves], rows, 1, width)
    yield Text()
    yield from unusual_lines(found.unusual or (), full, width)


def _unread(cells: Sequence[Text], stats: Unread) -> list[Text]:
    """The description of a leaf, and why it has no numbers."""
    return [cells[0], Text(f"not read: {shown(stats.why)}", "bold red" if stats.damaged else "")]


def _numbers(stats: Statistics | Unread | None) -> list[Text]:
    """Minimum, maximum, mean, standard deviation, histogram, and the counts of NaN and of infinities."""
    if not isinstance(stats, Statistics):
        return [Text()] * 6
    numbers = (("min", stats.minimum), ("max", stats.maximum), ("mean", stats.mean), ("std", stats.std))
    found = [Text(f"{name} {'-' if n is None else f'{n:.4g}'}") for name, n in numbers]
    picture = blocks(stats.histogram) if len(stats.histogram.counts) > 1 else ""
    counts = [f"{count:,} {name}" for name, count in (("NaN", stats.nan), ("inf", stats.inf)) if count]
    return [*found, Text(picture, "cyan"), Text(", ".join(counts), "bold red")]


def unusual_lines(found: Sequence[Unusual], full: bool, width: int) -> Iterator[Text]:
    """A line for each kind of unusual leaves, and one for each pattern of keys below it."""
    if not found:
        yield Text("nothing unusual: no NaN, no inf, no array of zeros, no mixed dtypes", "green")
        return
    for one in found:
        style = "yellow" if one.what in (ZEROS, MIXED_DTYPES) else "bold red"
        yield Text(f"{_TITLES[one.what]} {number_of(len(one.leaves), 'leaf')}", style)
        entries = [ShownKey(leaf.key.printed, (), describe(leaf)) for leaf in one.leaves]
        folds = fold(entries)
        for line in folds if full else folds[:MOST_PATTERNS]:
            count = f"{line.count:,} × " if line.count > 1 else ""
            parts = [Text(f"  {line.key}"), Text(f"{count}{entries[line.first].like}", "dim")]
            yield from flowing(parts, "  ", width)
        if not full and len(folds) > MOST_PATTERNS:
            yield Text(f"  and {len(folds) - MOST_PATTERNS:,} more (--full)", "dim")
