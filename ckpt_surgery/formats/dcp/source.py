"""Reading PyTorch's distributed checkpoints, which `torch.distributed.checkpoint.save` writes.

Source of the format: torch.distributed.checkpoint (2.2 to 2.13). `.metadata` is a pickle that says which
chunks every tensor has, and where they are: each is what `torch.save` writes, an archive within a file. What
is not a tensor is such an archive too.

A data file is a sequence of zip archives, whose headers lie at their beginnings and ends. The end of one and
the beginning of the next are read together, and so are archives that are short.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import Problem, SourceError, in_one_line
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.dcp import DATA_SUFFIX, METADATA
from ckpt_surgery.formats.dcp.index import VOCABULARY, Stored, StoredPart, read_index
from ckpt_surgery.formats.registry import Listing, Reader, Selection
from ckpt_surgery.formats.shared.boxes import Box, Boxes, on_grid
from ckpt_surgery.formats.shared.torch.globals import RESAVE, Tensor, what_is
from ckpt_surgery.formats.shared.torch.tree import (
    MOST_PICKLE_BYTES,
    MOST_PROBLEMS,
    NODE_SLACK,
    TEXT_GAIN,
    TEXT_SLACK,
    Saved,
    list_leaves,
    read_saved,
    stored_tensor,
)
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.formats.shared.zip.members import LOCAL, read_archive
from ckpt_surgery.storage.failures import damaged, with_key, with_path
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import OpenFile, PagedFile, opened, stat_within

REMEMBERED_BYTES, REMEMBERED = 1024, 4096
"""Pickles of at most so many bytes are read once, and so many of them: chunks of one shape have the same."""
END_BYTES = 1024
"""Bytes at both ends of an archive that are fetched: torch 2.13 puts 700 before a tensor, 810 behind."""
PAGE_BYTES = 4 * END_BYTES
"""Bytes that are read together: the end of an archive, and the beginning of the next one; short archives."""
TOGETHER = 1024
"""Archives of which the ends are fetched at the same time."""


@dataclass
class DcpContents:
    """Contents of the data files read so far."""

    files: dict[str, FileStat] = field(default_factory=dict)
    """Size and time of each data file, by path."""
    tensors: dict[StoredPart, Box] = field(default_factory=dict)
    objects: dict[StoredPart, Listing | Unreadable] = field(default_factory=dict)
    """The leaves of each object, or why it has none."""
    leaf_room: int = NODE_SLACK
    """Number of leaves that all objects together may still add; grows with the bytes read, as `text_room`."""
    text_room: int = TEXT_SLACK
    """Number of characters that their keys together may still have."""
    known: dict[bytes, object] = field(default_factory=dict)
    """Values of short pickles of tensors."""


def read_contents(directory: str, index: Sequence[Stored]) -> DcpContents:
    """The contents of all data files. Errors name tensors that are not as the index says, the first few."""
    by_file: dict[str, list[tuple[Stored, StoredPart]]] = {}
    for entry in index:
        for part in entry.parts:
            by_file.setdefault(part.place.file, []).append((entry, part))
    contents = DcpContents()
    problems: list[Problem] = []
    for name, listed in by_file.items():
        path, places = os.path.join(directory, name), [part.place for _, part in listed]
        stat = contents.files[path] = stat_within(directory, name)
        end = max(place.offset + place.length for place in places)
        if end > stat.size:
            raise damaged(f"{shown(path)} has {stat.size} bytes, but a chunk ends at byte {end}")
        with opened(path, stat) as file:
            for number, saved in read_items(file, places):
                entry, part = listed[number]
                try:
                    _add(contents, entry, part, saved, path)
                except SourceError as error:
                    problems += with_key(entry.key, error).problems
                if contents.leaf_room < 0 or contents.text_room < 0:
                    what = "all objects up to here have more leaves together than their size allows"
                    raise damaged(f"{shown(path)}: {what}", RESAVE)
                if len(problems) >= MOST_PROBLEMS:
                    raise SourceError(*problems)
    if problems:
        raise SourceError(*problems)
    return contents


def _add(contents: DcpContents, entry: Stored, part: StoredPart, saved: Saved, path: str) -> None:
    """Take in an archive. Raises SourceError where a chunk of a tensor is not what the index says."""
    pickle, known = saved.pickle, contents.known
    if entry.spec is None:
        leaves: Mapping[str, Leaf] = {}
        try:
            contents.objects[part] = listing = list_leaves(saved, path, "", entry.key)
            leaves = listing.leaves
        except SourceError as error:  # it asks for other things than plain values and tensors
            why = f"is a Python object that is not read: {in_one_line(error)[:500]}"
            contents.objects[part] = Unreadable(why, RESAVE)
        contents.leaf_room += len(pickle) - len(leaves)
        contents.text_room += TEXT_GAIN * len(pickle) - sum(map(len, leaves))
        return
    value = known[pickle] if pickle in known else load(pickle)
    wanted = ArraySpec(part.region.shape, entry.spec.dtype)
    stored = ArraySpec(value.shape, value.dtype) if isinstance(value, Tensor) else what_is(value)
    if not isinstance(value, Tensor) or stored != wanted:
        what = f"its chunk of {list(wanted.shape)} at {list(part.region.starts)} is {wanted}"
        raise damaged(f"{what}, but {shown(path)} has {stored} at byte {part.place.offset}")
    if len(pickle) <= REMEMBERED_BYTES and len(known) < REMEMBERED:
        known[pickle] = value
    contents.tensors[part] = Box(part.region, stored_tensor(value, saved, path))


def read_items(file: OpenFile, places: Sequence[Chunk]) -> Iterator[tuple[int, Saved]]:
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


def _read_item(file: OpenFile, pages: PagedFile, place: Chunk) -> Saved:
    stat = FileStat(place.length, file.stat.modified, file.stat.version)
    # Its path is in the context of the error already.
    item = OpenFile("its archive", stat, lambda at, buffer: pages.read_into(place.offset + at, buffer))
    if item.read(0, min(len(LOCAL), place.length)) != LOCAL:
        raise damaged("is not a zip archive, as `torch.save` writes it")
    saved = read_saved(item, read_archive(item, most_comment=0))
    return replace(saved, start=place.offset)


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
        if file.stat.size > MOST_PICKLE_BYTES:
            raise damaged(f"{shown(metadata)} has {file.stat.size} bytes; {MOST_PICKLE_BYTES} is the limit")
        data = file.read(0, file.stat.size)
    with with_path(path):
        root = load(data, VOCABULARY, METADATA)
    with with_path(metadata):
        index = read_index(root, len(data))
    contents = read_contents(path, index)
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    for entry in index:
        for leaf, reader in _leaves(entry, contents):
            text = leaf.key.text
            if text in leaves:
                twice = SourceError("two leaves have this key", hint="Rename one of them with torch.")
                raise with_key(leaf.key, twice)
            leaves[text] = leaf
            if reader is not None:
                readers[text] = reader
    return Listing(leaves, {metadata: file.stat, **contents.files}, readers=readers)


def _leaves(entry: Stored, contents: DcpContents) -> Iterator[tuple[Leaf, Reader | None]]:
    """The leaves of an entry, and what reads those without a manifest."""
    if entry.spec is not None:
        boxes = [contents.tensors[part] for part in entry.parts]
        manifest = on_grid(entry.spec, boxes) if entry.spec.size else contiguous(entry.spec, "", 0)
        reader = Boxes(entry.spec, boxes) if manifest is None else None
        yield Leaf(entry.key, LeafKind.ARRAY, entry.spec, manifest), reader
        return
    (part,) = entry.parts
    content = contents.objects[part]
    if isinstance(content, Unreadable):
        spec = ArraySpec((), np.dtype(object))
        yield Leaf(entry.key, LeafKind.ARRAY, spec, unreadable=content), None
        return
    for text, leaf in content.leaves.items():
        yield leaf, content.readers.get(text)


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Files that no rank writes, out of `names`: relative paths of all files in the directory.

    `--overwrite` refuses to delete them. A rank writes a data file even if nothing is in it.
    """
    return [name for name in names if name != METADATA and ("/" in name or not name.endswith(DATA_SUFFIX))]
