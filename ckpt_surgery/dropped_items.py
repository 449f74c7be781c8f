"""Items of the sources' steps that a result does not get: each is told, and none is read."""

import os
from collections.abc import Iterator, Mapping

from ckpt_surgery.core.protocols import ChosenSource, Source
from ckpt_surgery.formats.shared.orbax_layout import is_item
from ckpt_surgery.planner.options import DEFAULT_ITEM, DestinationOptions
from ckpt_surgery.planner.plan import DroppedItem
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.storage.draft import OWN
from ckpt_surgery.storage.listing import directory_names, real_path, walk
from ckpt_surgery.structure import place_of_record

JSON_FILES = frozenset({"metadata", "metrics"})
"""Names of the files in which Orbax stores the items of its JSON handlers."""


def dropped_items(sources: Mapping[str, Source], options: DestinationOptions) -> tuple[DroppedItem, ...]:
    """All items of the steps that are read, but those that are sources themselves. Reads names and sizes."""
    read = {_directory(source) for source in sources.values() if source.item is not None}
    if options.step is None and options.item is None:
        why = "DST has no items"
    else:
        why = f"only the item {options.item or DEFAULT_ITEM} is written"
    seen: set[str] = set()
    found = []
    for name, source in sources.items():
        for directory in _beside(source) if name != TARGET else ():
            if directory not in read and directory not in seen:
                seen.add(directory)
                nbytes = sum(stat.size for stat in walk(directory, directory).values())
                found.append(DroppedItem(name, os.path.basename(directory), _kind(directory), nbytes, why))
    return tuple(found)


def _directory(source: Source) -> str:
    """Real path, or URL, of the item that a source reads."""
    return real_path(os.path.dirname(place_of_record(source)))


def _beside(source: Source) -> Iterator[str]:
    """The directories of all items of the step that a source is an item of."""
    if source.item is None or not isinstance(source, ChosenSource):
        return
    step = os.path.dirname(_directory(source))
    yield from (os.path.join(step, name) for name in source.choices().items if name != OWN.rstrip("/"))


def _kind(directory: str) -> str:
    """What an item holds: `arrays`, `json` or `other`."""
    if is_item(directory):
        return "arrays"
    names = directory_names(directory)
    is_json = not names.directories and bool(JSON_FILES.intersection(names.files))
    return "json" if is_json else "other"
