"""Reading PyTorch's distributed checkpoints, which `torch.distributed.checkpoint.save` writes.

Source of the format: torch.distributed.checkpoint (2.2 to 2.13). `.metadata` is a pickle that says which
chunks every tensor has, and where they are: each is what `torch.save` writes, an archive within a file. What
is not a tensor is such an archive too.

A data file is a sequence of zip archives, whose headers lie at their beginnings and ends. The end of one and
the beginning of the next are read together, and so are archives that are short.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, Manifest, contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.dcp import DATA_SUFFIX, METADATA
from ckpt_surgery.formats.dcp.index import VOCABULARY, Stored, StoredPart, read_index
from ckpt_surgery.formats.registry import Listing, Reader, Selection
from ckpt_surgery.formats.shared.boxes import Box, Boxes, on_grid
from ckpt_surgery.formats.shared.torch import tree
from ckpt_surgery.formats.shared.torch.globals import RESAVE, Tensor, what_is
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.formats.shared.zip.members import LOCAL, read_archive
from ckpt_surgery.storage.failures import about_key, damaged, flawed, one_line, with_path
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_directory, real_path
from ckpt_surgery.storage.paged import PagedFile
from ckpt_surgery.storage.reading import OpenFile, opened, stat_within

REMEMBERED_BYTES, REMEMBERED = 1024, 4096
"""Pickles of at most so many bytes are read once, and so many of them: chunks of one shape have the same."""
END_BYTES = 1024
"""Bytes at both ends of an archive that are fetched: torch 2.13 puts 700 before a tensor, 810 behind."""
PAGE_BYTES = 4 * END_BYTES
"""Bytes that are read together: the end of an archive, and the beginning of the next one; short archives."""
TOGETHER = 1024
"""Archives of which the ends are fetched at the same time."""


def read_contents(directory: str, index: Sequence[Stored]) -> dict[str, FileStat]:
    """Read the contents of all entries from the data files, of which it returns size and time by path."""
    by_file: dict[str, list[tuple[Stored, StoredPart]]] = defaultdict(list)
    for entry in index:
        for part in entry.parts:
            by_file[part.place.file].append((entry, part))
    files: dict[str, FileStat] = {}
    load_short = lru_cache(REMEMBERED)(load)
    # What all objects together may still add: leaves, and characters of their keys.
    leaf_room, text_room = tree.NODE_SLACK, tree.TEXT_SLACK
    for name, listed in by_file.items():
        path, places = os.path.join(directory, name), [part.place for _, part in listed]
        stat = files[path] = stat_within(directory, name)
        end = max(place.offset + place.length for place in places)
        if end > stat.size:
            raise damaged(f"{shown(path)} has {stat.size} bytes, but a chunk ends at byte {end}")
        with opened(path, stat) as file:
            for number, saved in read_items(file, places):
                (entry, part), size = listed[number], len(saved.pickle)
                if entry.spec is not None:
                    with about_key(entry.key):
                        value = (load_short if size <= REMEMBERED_BYTES else load)(saved.pickle)
                        part.content = _chunk(part, entry.spec.dtype, value, saved, path)
                    continue
                entry.content = _object(entry.key, saved, path)
                leaves = entry.content.leaves if isinstance(entry.content, Listing) else {}
                leaf_room += size - len(leaves)
                text_room += tree.TEXT_GAIN * size - sum(map(len, leaves))
                if leaf_room < 0 or text_room < 0:
                    what = "all objects up to here have more leaves together than their size allows"
                    raise damaged(f"{shown(path)}: {what}", RESAVE)
    return files


def _object(key: Key, saved: tree.Saved, path: str) -> Listing | Unreadable:
    """The leaves of an object; or why it has none: it asks for other things than plain values and tensors."""
    try:
        return tree.list_leaves(saved, path, "", key)
    except SourceError as error:
        return Unreadable(f"is a Python object that is not read: {one_line(error)[:500]}", RESAVE)


def _chunk(
    part: StoredPart, dtype: np.dtype[Any], value: object, saved: tree.Saved, path: str
) -> Manifest | Reader:
    """A chunk of a tensor. Raises SourceError where it is not what the index says."""
    wanted = ArraySpec(part.region.shape, dtype)
    stored = ArraySpec(value.shape, value.dtype) if isinstance(value, Tensor) else what_is(value)
    if not isinstance(value, Tensor) or stored != wanted:
        what = f"its chunk of {list(wanted.shape)} at {list(part.region.starts)} is {wanted}"
        raise damaged(f"{what}, but {shown(path)} has {stored} at byte {part.place.offset}")
    return tree.stored_tensor(value, saved, path)


def read_items(file: OpenFile, places: Sequence[Chunk]) -> Iterator[tuple[int, tree.Saved]]:
    """The number of each place in `places`, and its archive, by increasing offset.

    Offsets of storages are those in the file. Raises SourceError, with the offset of the archive, for one
    that is not whole; the caller has checked that all lie within the file.
    """
    pages = PagedFile(file, PAGE_BYTES, kept=3 * TOGETHER)
    order = sorted(range(len(places)), key=lambda i: (places[i].offset, places[i].length))
    for begin in range(0, len(order), TOGETHER):
        batch = order[begin : begin + TOGETHER]
        pages.prefetch(end for number in batch for end in _ends(places[number]))
        for number in batch:
            with with_path(f"{file.path} from byte {places[number].offset} on"):
                yield number, _read_item(file, pages, places[number])


def _read_item(file: OpenFile, pages: PagedFile, place: Chunk) -> tree.Saved:
    stat = FileStat(place.length, file.stat.modified, file.stat.version)
    # Its path is in the context of the error already.
    item = OpenFile("its archive", stat, lambda at, buffer: pages.read_into(place.offset + at, buffer))
    if item.read(0, min(len(LOCAL), place.length)) != LOCAL:
        raise damaged("is not a zip archive, as `torch.save` writes it")
    return replace(tree.read_saved(item, read_archive(item, most_comment=0)), start=place.offset)


def _ends(place: Chunk) -> tuple[tuple[int, int], tuple[int, int]]:
    """Start and stop of the beginning and of the end of an archive."""
    start, stop = place.offset, place.offset + place.length
    return (start, min(start + END_BYTES, stop)), (max(start, stop - END_BYTES), stop)


UNFINISHED = (
    "It is written last: the save was not finished, or the copy is incomplete. "
    "If each rank wrote metadata of its own, save again with `use_collectives=True`."
)


def read(path: str, selection: Selection) -> Listing:
    """Open a directory. Reads its metadata, and of the data files what lies around the tensors."""
    if not is_directory(path):
        what = f"{shown(path)} is not a directory, as distributed checkpoints are"
        raise SourceError(what, hint="Name its directory.")
    metadata = os.path.join(path, METADATA)
    if not has_entry(metadata):
        raise SourceError(f"{shown(metadata)} does not exist", hint=UNFINISHED)
    check_link(metadata, real_path(path))
    with opened(metadata) as file:
        if file.stat.size > (most := tree.MOST_PICKLE_BYTES):
            raise damaged(f"{shown(metadata)} has {file.stat.size} bytes; {most} is the limit")
        data = file.read(0, file.stat.size)
    with with_path(path):
        root = load(data, VOCABULARY, METADATA)
    with with_path(metadata):
        index = read_index(root, len(data))
    files = {metadata: file.stat, **read_contents(path, index)}
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    for entry in index:
        for leaf, reader in _leaves(entry):
            text = leaf.key.text
            if text in leaves:
                raise flawed(text, "is the key of two leaves", "Rename one of them with torch.")
            leaves[text] = leaf
            if reader is not None:
                readers[text] = reader
    return Listing(leaves, files, readers=readers)


def _leaves(entry: Stored) -> Iterator[tuple[Leaf, Reader | None]]:
    """The leaves of an entry, and what reads those without a manifest."""
    content, spec = entry.content, entry.spec
    if spec is not None:
        boxes = [Box(part.region, part.content) for part in entry.parts if part.content is not None]
        manifest = on_grid(spec, boxes) if spec.size else contiguous(spec, "", 0)
        yield Leaf(entry.key, LeafKind.ARRAY, spec, manifest), None if manifest else Boxes(spec, boxes)
    elif isinstance(content, Listing):
        yield from ((leaf, content.readers.get(text)) for text, leaf in content.leaves.items())
    else:
        yield Leaf(entry.key, LeafKind.ARRAY, ArraySpec((), np.dtype(object)), unreadable=content), None


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Those of all files in the directory, by relative path, that no rank writes: kept by `--overwrite`."""
    return [name for name in names if name != METADATA and ("/" in name or not name.endswith(DATA_SUFFIX))]
