"""Warnings about valid but probably unintended sources, destinations and plans; items not carried over."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Literal

from ckpt_surgery.core.arrays import grid_counts
from ckpt_surgery.core.errors import Problem, SourceError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.leaves import Leaf, Unreadable
from ckpt_surgery.core.protocols import Source, details_of
from ckpt_surgery.core.text import few, number_of, shown
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats.shared.orbax_layout import is_item
from ckpt_surgery.formats.shared.steps import holds_no_model
from ckpt_surgery.functions.arrays import reads
from ckpt_surgery.live.source import FORMAT as TREE
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.listing import directory_names, is_directory, names_in, real_path, walk
from ckpt_surgery.storage.record_files import record_path

if TYPE_CHECKING:
    from ckpt_surgery.planner.plan import DroppedItem, Input, Plan
    from ckpt_surgery.planner.prepared import DestinationOptions

MOST_NAMES = 5
"""Number of entries of custom metadata that a warning names."""


def plan_warnings(plan: "Plan", sources: Mapping[str, Source]) -> tuple[str, ...]:
    """Warnings that hold for any destination. Raises SourceError or PlanError for leaves that are misread."""
    from ckpt_surgery.planner.target import TARGET  # imports planning

    inputs = [source for source in plan.inputs if source.name != TARGET]
    leaves = leaves_read(plan)
    return (
        *repeated_sources(sources, inputs),
        *filled_chunks(plan, leaves),
        *dequantized(leaves.values()),
        *disguised_bfloat16(plan, sources),
        *unread_weights(sources[source.name] for source in inputs),
    )


def leaves_read(plan: "Plan") -> dict[tuple[str, str], Leaf]:
    """Leaves that a plan reads, by the name of their source and the text of their key."""
    return {(read.source, read.leaf.key.text): read.leaf for step in plan.steps for read in reads(step.value)}


def filled_chunks(plan: "Plan", leaves: Mapping[tuple[str, str], Leaf]) -> tuple[str, ...]:
    """Warn of chunks that are read but not stored, and so have the fill value; not of `sparse` formats'."""
    dense = {i.name for i in plan.inputs if i.format != TREE and not formats.format_named(i.format).sparse}
    lacking: dict[tuple[str, str], int] = {}
    for (source, _), leaf in leaves.items():
        held = leaf.manifest
        if source in dense and held is not None and not held.complete:
            wanted = prod(grid_counts(held.spec.shape, held.chunk_shape))
            lacking[source, leaf.key.printed] = wanted - len(held.chunks)
    if not lacking:
        return ()
    several = len(plan.inputs) > 1
    listed = few_keys(f"{source}:{key}" if several else key for source, key in lacking)
    count = sum(lacking.values())
    are = "is not stored and has" if count == 1 else "are not stored and have"
    return (f"{number_of(count, 'chunk')} of {listed} {are} the fill value",)


def dequantized(leaves: Collection[Leaf]) -> tuple[str, ...]:
    """Warn of leaves that are read as another type than the stored one: at most one sentence.

    Raises SourceError, with their keys, if some cannot be read.
    """
    unread: dict[Unreadable, list[str]] = {}
    for leaf in leaves:
        if leaf.unreadable is not None:
            unread.setdefault(leaf.unreadable, []).append(leaf.key.printed)
    if unread:
        named = ((why, f"the plan reads what {why.why}: {few_keys(keys)}") for why, keys in unread.items())
        raise SourceError(*(Problem(what, hint=f"{why.hint} Or drop it.") for why, what in named))
    converted = [leaf for leaf in leaves if leaf.stored_type is not None]
    counts = Counter(leaf.stored_type for leaf in converted).most_common()
    types = ", ".join(f"{name} ({count:,})" for name, count in counts)
    dtypes = ", ".join(sorted({leaf.spec.dtype.name for leaf in converted if leaf.spec is not None}))
    return (f"dequantized to {dtypes}: leaves that are stored as {types}",) if counts else ()


def disguised_bfloat16(plan: "Plan", sources: Mapping[str, Source]) -> tuple[str, ...]:
    """Warn of uint16 leaves that are most likely bfloat16, and are read as integers.

    Raises PlanError where such integers become floating-point numbers: they would be wrong.
    """
    from ckpt_surgery.planner.disguised import converted, misread, used_as_integers  # imports planning

    suspects = {name: details_of(source).disguised_bfloat16 for name, source in sources.items()}
    if not any(suspects.values()):
        return ()
    if wrong := converted(plan, suspects):
        raise misread(wrong)
    return disguised_warning(used_as_integers(plan, suspects))


WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".msgpack", ".npz", ".gguf", ".h5"})
"""Suffixes of weight files that lie side by side in a model's directory."""


def _unread_files(source: Source) -> list[str]:
    """Weight files of the source's own kind in its directory that the source does not read."""
    if isinstance(source, TreeSource) or not is_directory(source.path):
        return []
    root = real_path(source.path)
    read = {os.path.basename(file) for file in source.files() if os.path.dirname(file) in (root, source.path)}
    suffixes = {os.path.splitext(name)[1] for name in read} & WEIGHT_SUFFIXES
    if not suffixes:
        return []
    return [name for name in names_in(root) if os.path.splitext(name)[1] in suffixes and name not in read]


def unread_weights(sources: Iterable[Source]) -> tuple[str, ...]:
    """Warn of each source whose directory holds weights that do not belong to it."""
    unread = ((source.path, _unread_files(source)) for source in sources)
    return tuple(f"not read, as they are not part of {path}: {few(names)}" for path, names in unread if names)


def chosen_item_notes(sources: Iterable[Source]) -> tuple[str, ...]:
    """Note each source of which an item was chosen because it holds the model, and others do not."""
    notes = []
    for source in sources:
        if source.item is not None and not holds_no_model(source.item):
            others = [name for name in details_of(source).choices().items if holds_no_model(name)]
            item = f"{shown(source.path)}: the item `{shown(source.item)}`"
            notes += [f"{item} is read, as it holds the model, not {few(others)}"] if others else []
    return tuple(notes)


def kept_as_integers(sources: Iterable[Source]) -> tuple[str, ...]:
    """Warn, in a comparison, of each source whose arrays of uint16 are most likely bfloat16."""
    counts = {shown(source.path): len(details_of(source).disguised_bfloat16) for source in sources}
    how = "T5X kept bfloat16 so; `uint16=bfloat16` compares them as such"
    compared = "of uint16 compared as integers"
    return tuple(f"{path}: {number_of(n, 'leaf')} {compared}: {how}" for path, n in counts.items() if n)


def disguised_warning(count: int) -> tuple[str, ...]:
    """Warn that `count` leaves of uint16 are most likely bfloat16; no warning for 0."""
    how = "T5X kept bfloat16 so; `input: {uint16: bfloat16}` reads them back"
    return (f"{number_of(count, 'leaf')} of uint16: {how}",) if count else ()


def repeated_sources(sources: Mapping[str, Source], inputs: "Sequence[Input]") -> Iterator[str]:
    """Warn of each checkpoint that is given under two names: most often by mistake."""
    alike: dict[str, list[str]] = {}
    for source in inputs:
        alike.setdefault(source.fingerprint, []).append(source.name)
    for names in alike.values():
        if len(names) > 1:
            # Copies have equal fingerprints too. Their files tell them apart, but take time to list.
            files = {name: frozenset(map(real_path, sources[name].files())) for name in names}
            same = [name for name in names if files[name] == files[names[0]]]
            if len(same) > 1:
                listed = ", ".join(f"`{name}`" for name in same)
                yield f"the sources {listed} are the same checkpoint, {sources[names[0]].path}"


def destination_warnings(options: "DestinationOptions", first: Source) -> Iterator[str]:
    """Warn of custom metadata that the format cannot hold, and of a name that promises another format."""
    format = options.format
    if first.metadata and not formats.format_named(format).holds_metadata:
        names = ", ".join(f"`{name}`" for name in sorted(map(str, first.metadata))[:MOST_NAMES])
        more = ", …" if len(first.metadata) > MOST_NAMES else ""
        yield f"the custom metadata ({names}{more}) is left out: {format} checkpoints have no place for it"
    named = formats.promised(options.name)
    if named not in (None, format):
        yield f"{options.path} will be {format}, though its name says {named}"


JSON_FILES = frozenset({"metadata", "metrics"})
"""Names of the files in which Orbax stores the items of its JSON handlers."""


def dropped_items(sources: Mapping[str, Source], options: "DestinationOptions") -> "tuple[DroppedItem, ...]":
    """List the items of the sources' steps that are not sources themselves. Reads names and sizes."""
    from ckpt_surgery.planner.plan import DroppedItem
    from ckpt_surgery.planner.prepared import DEFAULT_ITEM  # imports planning
    from ckpt_surgery.planner.target import TARGET

    of_items = {name: source for name, source in sources.items() if source.item is not None}
    places = {name: real_path(os.path.dirname(record_path(source))) for name, source in of_items.items()}
    why = f"only the item {options.item or DEFAULT_ITEM} is written"
    if options.step is None and options.item is None:
        why = "DST has no items"
    dropped: dict[str, DroppedItem] = {}
    for name, place in places.items():
        for item in () if name == TARGET else details_of(sources[name]).choices().items:
            directory = os.path.join(os.path.dirname(place), item)
            if item != OWN.rstrip("/") and directory not in (*places.values(), *dropped):
                nbytes = sum(stat.size for stat in walk(directory, directory).values())
                names = directory_names(directory)
                is_json = not names.directories and JSON_FILES.intersection(names.files)
                kind: Literal["arrays", "json", "other"] = "json" if is_json else "other"
                kind = "arrays" if is_item(directory) else kind
                dropped[directory] = DroppedItem(name, item, kind, nbytes, why)
    return tuple(dropped.values())
