"""Result of `inspect` as lines of styled text: the head, and a tree or a flat list of the leaves."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC

from rich.text import Text

from ckpt_surgery.cli.terminal.columns import blocks_of, flowing, padded, rows_of
from ckpt_surgery.core.documents import json_text
from ckpt_surgery.core.folding import ShownKey, escaped, fold
from ckpt_surgery.core.history import IN_MEMORY, NO_RECIPE, History, PastRecipe, own_metadata
from ckpt_surgery.core.text import bytes_text, chosen_text, number_of, shown
from ckpt_surgery.report.histograms import blocks
from ckpt_surgery.report.inspection import INFINITE, MIXED_DTYPES, NAN, ZEROS, Inspection, Unusual
from ckpt_surgery.report.leaves import Statistics, Unread, chunks_text, describe, stored_sharding
from ckpt_surgery.report.tree import TreeLine, by_size, dtype_texts, listing, size_texts, total_text, tree
from ckpt_surgery.report.values import shared_texts

MOST_METADATA = 200
"""Number of characters of metadata that are shown without `-v`."""

MOST_NAMES = 8
"""Number of steps, and of items, that the head names."""

ON_MESH = " on mesh "
"""Separator of a partition and the mesh of devices in the text of a sharding."""


def inspection_lines(
    inspection: Inspection, *, flat: bool, full: bool, verbose: bool, width: int
) -> Iterator[Text]:
    """Head, then a tree or a flat list of the leaves."""
    texts = shared_texts(inspection.leaves, inspection.values)
    lines = listing(inspection.leaves, texts, full=full, depth=inspection.depth)
    by_bytes = inspection.sort == "size"
    if flat:
        lines = by_size(lines) if by_bytes else lines
    else:
        lines = tree(lines, sort_by_size=by_bytes)
    parts = [stored_sharding(line.leaf).rpartition(ON_MESH) for line in lines if line.leaf is not None]
    meshes = {mesh for _, on, mesh in parts if on}
    mesh = meshes.pop() if len(meshes) == 1 else ""
    yield from head_lines(inspection, verbose, width)
    yield from _labelled("mesh", [Text(mesh)] if mesh else [], width)
    yield Text()
    names = [Text("  " * line.level).append(line.key, "bold" if line.leaf is None else "") for line in lines]
    rows = padded([_cells(line, mesh, verbose) for line in lines], (0, 2))
    yield from rows_of(names, rows, width)


def key_lines(inspection: Inspection) -> list[str]:
    """Keys on lines of their own, in the order of the checkpoint or of `sort`."""
    lines = listing(inspection.leaves, {}, full=True)
    return [line.key for line in (by_size(lines) if inspection.sort == "size" else lines)]


def _cells(line: TreeLine, mesh: str, verbose: bool) -> list[Text]:
    """Count, spec and value, bytes, sharding and chunks (`verbose`) of leaves; totals of subtrees."""
    size = Text(bytes_text(line.total.bytes), "dim")
    if line.leaf is None:
        return [Text(), Text(total_text(line.total)), size, Text(), Text()]
    count = f"{line.count:,} ×" if line.count > 1 else ""
    spec = Text.assemble((describe(line.leaf), "dim"), f" {line.value}" if line.value else "")
    sharding = stored_sharding(line.leaf).removesuffix(f"{ON_MESH}{mesh}")
    chunks = chunks_text(line.leaf.manifest) if verbose else ""
    return [Text(count, "dim"), spec, size, Text(sharding, "dim"), Text(chunks, "dim")]


def head_lines(inspection: Inspection, verbose: bool, width: int) -> Iterator[Text]:
    """Lines about the whole checkpoint: path, format, totals, dtypes, steps, items, metadata."""
    about = chosen_text(inspection.format, inspection.step, inspection.item)
    yield from flowing([Text(shown(inspection.path), "bold"), Text(f"({about})", "dim")], "  ", width)
    yield from flowing(list(map(Text, size_texts(inspection.leaves, inspection.others))), ", ", width)
    choices = inspection.choices
    lists = {
        "dtypes": dtype_texts(inspection.leaves),
        "stored as": _stored_texts(inspection),
        "steps": _few(list(map(str, choices.steps))),
        "unfinished steps": _few(list(map(str, choices.unfinished))),
        "items": _few(list(map(shown, choices.items))),
    }
    for label, parts in lists.items():
        chosen = str(inspection.step) if label == "steps" else None
        yield from _labelled(label, [Text(part, "bold" if part == chosen else "") for part in parts], width)
    if inspection.history is not None:
        for number, sentence in enumerate(_history_sentences(inspection.history)):
            label = "       " if number else "history"
            yield from flowing([Text(label, "dim"), *map(Text, sentence.split(" "))], " ", width)
    if metadata := own_metadata(inspection.metadata):
        text = json_text(metadata, indent=None).strip()
        cut = len(text) > MOST_METADATA and not verbose
        shortened = f"{text[:MOST_METADATA]}… (-v shows all)" if cut else text
        yield from flowing([Text("metadata", "dim"), *map(Text, shortened.split(" "))], " ", width)


def _history_sentences(history: History) -> Iterator[str]:
    """The history in words: how it was made, what came before that, and the config that is recorded."""
    *before, last = history.recipes or [None]
    verb, by = "made", "" if last is None else f" by {_recipe_text(last)}"
    if last is not None and last.name == NO_RECIPE:
        verb, by = "converted", ""
    origins = []
    for source in history.sources:
        chosen = chosen_text(source.format, source.step, source.item)
        origins.append(f"{shown(source.path)} ({chosen})")
    origin = f" from {_listed(origins)}" if origins else ""
    when = "" if history.written is None else f", {history.written.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    version = "" if history.version is None else f" with ckpt-surgery {shown(history.version)}"
    yield f"{verb}{origin}{by}{when}{version}"
    if before:
        yield f"before that by {_listed([_recipe_text(one) for one in before if one is not None])}"
    if history.config:
        yield f"a config of {len(history.config)} entries is recorded in it"


def _recipe_text(one: PastRecipe) -> str:
    names = {IN_MEMORY: "a recipe given as data", NO_RECIPE: "a conversion"}
    name = names.get(one.name, shown(one.name))
    params = ", ".join(f"{shown(key)}={shown(str(value))}" for key, value in one.params.items())
    return f"{name} with {params}" if params else name


def _listed(parts: Sequence[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _stored_texts(inspection: Inspection) -> list[str]:
    """`Q4_K in 226 leaves`, for each type of the format's own, in the order of the leaves."""
    stored = Counter((leaf.stored_type, leaf.unreadable) for leaf in inspection.leaves if leaf.stored_type)
    texts = []
    for (name, unread), count in stored.items():
        why = "" if unread is None else f" ({unread.why.removeprefix(f'is stored as {name}, which ')})"
        texts.append(f"{name} in {number_of(count, 'leaf')}{why}")
    return texts


def _labelled(label: str, parts: Sequence[Text], width: int) -> Iterator[Text]:
    """`label part, part`, where there are parts."""
    if parts:
        first = Text(f"{label} ", "dim").append_text(parts[0])
        yield from flowing([first, *parts[1:]], ", ", width)


def _few(names: Sequence[str]) -> Sequence[str]:
    """The last names, and how many are before them."""
    more = len(names) - MOST_NAMES
    return [f"{more:,} more", *names[-MOST_NAMES:]] if more > 0 else names


MOST_PATTERNS = 10
"""Number of patterns of keys that are listed for one kind of unusual leaves, without `--full`."""

_TITLES = {NAN: "NaN in", INFINITE: "inf in", ZEROS: "nothing but zeros in", MIXED_DTYPES: "mixed dtypes in"}


def statistics_lines(inspection: Inspection, *, full: bool, verbose: bool, width: int) -> Iterator[Text]:
    """Head, a line for every leaf with its numbers or why it has none, and what is unusual."""
    yield from head_lines(inspection, verbose, width)
    yield Text()
    by_leaf = [(inspection.statistics or {}).get(leaf.key.text) for leaf in inspection.leaves]
    listed = zip(inspection.leaves, by_leaf, strict=True)
    rows = padded([[Text(describe(leaf), "dim"), *_numbers(stats)] for leaf, stats in listed])
    for number, stats in enumerate(by_leaf):
        if isinstance(stats, Unread):
            why = Text(f"not read: {shown(stats.why)}", "bold red" if stats.damaged else "")
            rows[number] = [rows[number][0], why]
    yield from blocks_of([Text(escaped(leaf.key.printed)) for leaf in inspection.leaves], rows, width)
    yield Text()
    yield from unusual_lines(inspection.unusual or (), full, width)


def _numbers(stats: Statistics | Unread | None) -> list[Text]:
    """Minimum, maximum, mean, standard deviation, histogram, and the counts of NaN and of infinities."""
    if not isinstance(stats, Statistics):
        return [Text() for _ in range(6)]
    numbers = (("min", stats.minimum), ("max", stats.maximum), ("mean", stats.mean), ("std", stats.std))
    texts = [Text(f"{name} {'-' if n is None else f'{n:.4g}'}") for name, n in numbers]
    picture = blocks(stats.histogram) if len(stats.histogram.counts) > 1 else ""
    counts = [f"{count:,} {name}" for name, count in (("NaN", stats.nan), ("inf", stats.inf)) if count]
    return [*texts, Text(picture, "cyan"), Text(", ".join(counts), "bold red")]


def unusual_lines(groups: Sequence[Unusual], full: bool, width: int) -> Iterator[Text]:
    """A line for each kind of unusual leaves, and one for each pattern of keys below it."""
    if not groups:
        yield Text("nothing unusual: no NaN, no inf, no array of zeros, no mixed dtypes", "green")
        return
    for one in groups:
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
