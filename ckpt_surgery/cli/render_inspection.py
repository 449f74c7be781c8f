"""What `inspect` found as lines of styled text: the head, and a tree or a flat list of the leaves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from ckpt_surgery.cli.columns import flowing, padded, rows_of
from ckpt_surgery.cli.render import chosen_text, number_of
from ckpt_surgery.core.documents import json_text
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.report.leaves import short_dtype
from ckpt_surgery.report.scalars import shared_texts
from ckpt_surgery.report.tree import Line, Total, by_size, dtype_totals, listing, total_of, tree

if TYPE_CHECKING:
    from ckpt_surgery.inspecting import Inspection

MOST_METADATA = 200
"""Number of characters of metadata that are shown without `-v`."""

MOST_NAMES = 8
"""Number of steps, and of items, that the head names."""

_UNITS = ("", "K", "M", "B", "T")


def count_text(count: int) -> str:
    """A large number in short: `512`, `1.50K`, `267M`, `70.6B`; three significant digits, powers of 1000."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{_UNITS[unit]}"


def inspection_lines(
    found: "Inspection", *, flat: bool, full: bool, verbose: bool, width: int
) -> Iterator[Text]:
    """Head, then a tree or a flat list of the leaves."""
    yield from head_lines(found, verbose, width)
    yield Text()
    texts = shared_texts(found.leaves, found.values)
    lines = listing(found.leaves, texts, full=full, depth=found.depth)
    by_bytes = found.sort == "size"
    if flat:
        lines = by_size(lines) if by_bytes else lines
    else:
        lines = tree(lines, sort_by_size=by_bytes)
    names = [Text("  " * line.level).append(line.key, "bold" if line.row is None else "") for line in lines]
    right = (True, False, True, False, False, False)
    rows = padded([_cells(line, verbose) for line in lines], right)
    yield from rows_of(names, rows, 3, width)


def _cells(line: Line, verbose: bool) -> list[Text]:
    """Count, spec, bytes, value, sharding and chunks (`verbose`) of leaves; totals of subtrees."""
    size = bytes_text(line.total.nbytes)
    if line.row is None:
        return [Text(), Text(_total_text(line.total)), Text(size), Text(), Text(), Text()]
    row = line.row
    told = (
        f"{row.count:,} ×" if row.count > 1 else "",
        row.spec,
        bytes_text(row.nbytes),
        row.value,
        row.sharding,
        row.chunks if verbose else "",
    )
    return [Text(text, "cyan" if text is row.value else "dim") for text in told]


def _total_text(total: Total) -> str:
    """`26 leaves, 267M`: the number of elements is left out where there are none."""
    leaves = number_of(total.leaves, "leaf")
    return f"{leaves}, {count_text(total.elements)}" if total.elements else leaves


def head_lines(found: "Inspection", verbose: bool, width: int) -> Iterator[Text]:
    """What the checkpoint is as a whole: path, format, totals, dtypes, steps, items, metadata."""
    about = chosen_text(found.format, found.step, found.item)
    yield from flowing([Text(shown(found.path), "bold"), Text(f"({about})", "dim")], "  ", width)
    yield from flowing(_sizes(found), ", ", width)
    dtypes = [
        Text(f"{short_dtype(name)} {bytes_text(total.nbytes)} in {number_of(total.leaves, 'leaf')}")
        for name, total in dtype_totals(found.leaves).items()
    ]
    if len(dtypes) > 1:
        yield from _labelled("dtypes", dtypes, width)
    choices = found.choices
    yield from _labelled("steps", _step_texts(choices.steps, found.step), width)
    yield from _labelled("unfinished steps", _few(list(map(str, choices.unfinished))), width)
    others = [shown(name) for name in choices.items]
    yield from _labelled("items", _few(others), width)
    if found.metadata:
        text = json_text(found.metadata, indent=None).strip()
        cut = len(text) > MOST_METADATA and not verbose
        told = f"{text[:MOST_METADATA]}… (-v shows all)" if cut else text
        yield from flowing([Text("metadata", "dim"), *map(Text, told.split(" "))], " ", width)


def _sizes(found: "Inspection") -> list[Text]:
    total = total_of(found.leaves)
    count = found.parameters
    leaves = number_of(total.leaves, "leaf")
    if found.others:
        leaves = f"{total.leaves:,} of {number_of(total.leaves + found.others, 'leaf')}"
    parts = [leaves, bytes_text(total.nbytes)]
    if count:
        parts.append(f"{number_of(count, 'parameter')}")
    if count and count != total.elements:
        parts.append(f"{number_of(total.elements, 'element')}")
    return list(map(Text, parts))


def _labelled(label: str, parts: Sequence[Text], width: int) -> Iterator[Text]:
    """`label part, part`, where there are parts."""
    if parts:
        first = Text(f"{label} ", "dim").append_text(parts[0])
        yield from flowing([first, *parts[1:]], ", ", width)


def _few(names: Sequence[str]) -> list[Text]:
    """The last names, and how many are before them."""
    more = len(names) - MOST_NAMES
    return [Text(name) for name in ([f"{more:,} more", *names[-MOST_NAMES:]] if more > 0 else names)]


def _step_texts(steps: Sequence[int], chosen: int | None) -> list[Text]:
    told = _few([str(step) for step in steps])
    return [Text(one.plain, "bold" if one.plain == str(chosen) else "") for one in told]
