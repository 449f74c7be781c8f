"""Reading PyTorch's distributed checkpoints, which `torch.distributed.checkpoint.save` writes.

Source of the format: torch.distributed.checkpoint (2.2 to 2.13), its classes in .metadata and .filesystem,
and what Megatron-LM's planner adds. `.metadata` is a pickle that says which chunks every tensor has, and
where they are: each is what `torch.save` writes, an archive within a file. What is not a tensor is such an
archive too.

A data file is a sequence of zip archives, whose headers lie at their beginnings and ends. The end of one and
the beginning of the next are read together, and so are archives that are short.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import SourceError, in_one_line
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, Manifest, contiguous
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.dcp import DATA_SUFFIX, METADATA
from ckpt_surgery.formats.registry import Listing, Reader, Selection
from ckpt_surgery.formats.shared.boxes import Box, Boxes, check_tiling, on_grid
from ckpt_surgery.formats.shared.limits import MOST_AXES, check_shape
from ckpt_surgery.formats.shared.torch import globals as words
from ckpt_surgery.formats.shared.torch import tree
from ckpt_surgery.formats.shared.torch.unpickler import load
from ckpt_surgery.formats.shared.zip.members import LOCAL, read_archive
from ckpt_surgery.storage.failures import about_key, damaged, with_key, with_path
from ckpt_surgery.storage.listing import FileStat, check_link, has_entry, is_directory, real_path
from ckpt_surgery.storage.reading import OpenFile, PagedFile, opened, stat_within

_CHECKPOINT = "torch.distributed.checkpoint"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"
"""Module of the properties of tensors up to torch 2.2."""

TENSOR = f"{_CHECKPOINT}.metadata.TensorStorageMetadata"
OBJECT = f"{_CHECKPOINT}.metadata.BytesStorageMetadata"
CHUNK = f"{_CHECKPOINT}.metadata.ChunkStorageMetadata"
INDEX = f"{_CHECKPOINT}.metadata.MetadataIndex"
PLACE = f"{_CHECKPOINT}.filesystem._StorageInfo"
PROPERTIES = (f"{_CHECKPOINT}.metadata.TensorProperties", f"{_SHARDED}.TensorProperties")
ROOTS = (
    f"{_CHECKPOINT}.metadata.Metadata",
    "megatron.core.dist_checkpointing.strategies.torch.MCoreMetadata",
)
_UNUSED = (
    f"{_CHECKPOINT}.metadata.StorageMeta",
    f"{_CHECKPOINT}.filesystem._StoragePrefix",
    # Megatron-LM keeps the plans of all ranks, to save the next time without making them again.
    f"{_CHECKPOINT}.planner.SavePlan",
    f"{_CHECKPOINT}.planner.WriteItem",
    f"{_CHECKPOINT}.planner.TensorWriteData",
)
"""Classes whose instances are not looked at."""
_ENUMS = (
    f"{_CHECKPOINT}.metadata._MEM_FORMAT_ENCODING",
    f"{_SHARDED}.MEM_FORMAT_ENCODING",
    f"{_CHECKPOINT}.planner.WriteItemType",
)
_PATHS = tuple(
    f"{module}.{kind}Path" for module in ("pathlib", "pathlib._local") for kind in ("Posix", "Windows")
)


def _layout(arguments: tuple[Any, ...]) -> object:
    """The layout of a tensor, which DCP stores with strides."""
    match arguments:
        case ("torch.strided",):
            return words.Unsupported("a layout of tensors")
        case (str(name),):
            raise damaged(f"a tensor has the layout `{shown(name[:200])}`; only `torch.strided` is read")
    raise damaged("a layout is not made of its name")


def _persistent(identifier: object) -> object:
    raise damaged(f"it asks for {words.what_is(identifier)} outside of it, which no metadata is")


VOCABULARY = words.Vocabulary(
    values=words.DTYPES,
    calls={
        "torch.Size": words.size,
        "collections.OrderedDict": words.ordered_dict,
        "torch.serialization._get_layout": _layout,
        **dict.fromkeys(_ENUMS, lambda _: words.Unsupported("a member of an enumeration")),
        # The directory that a checkpoint was written to, which it need not lie in any more.
        **dict.fromkeys(_PATHS, lambda _: words.Unsupported("a path")),
    },
    classes=(),
    records=(TENSOR, OBJECT, CHUNK, INDEX, PLACE, *PROPERTIES, *ROOTS, *_UNUSED),
    persistent=_persistent,
    of="metadata of checkpoints",
    most_instructions=2**25,
)
"""Names of dtypes, and of classes whose instances become records. A chunk takes about 60 instructions."""


@dataclass(slots=True, eq=False)
class StoredPart:
    """A box of a tensor that has elements, or an object, and where the bytes are that `torch.save` wrote."""

    region: Region
    """Of an object, that of an array without axes."""
    place: Chunk
    """With the name of the file in the checkpoint's directory."""
    content: Manifest | Reader | None = None
    """The elements of a box, once the data file was read."""


@dataclass(slots=True)
class Stored:
    """A tensor, or anything else."""

    key: Key
    spec: ArraySpec | None
    """None for an object that is not a tensor."""
    parts: Sequence[StoredPart]
    """They hold every element exactly once; an object is one."""
    content: Listing | Unreadable | None = None
    """The leaves of an object, or why it has none, once its data file was read."""


Places = Mapping[tuple[str, Shape | None], Chunk]
"""The places of chunks by name and offsets, and of objects by name and None."""


def read_index(root: object, metadata_bytes: int) -> list[Stored]:
    """Entries of a checkpoint, in its own order.

    `root`: the unpickled metadata. `metadata_bytes`: length of the pickle, which bounds the length of all
    keys. Raises SourceError with the name of the first entry that is not right.
    """
    fields = _fields(root, ROOTS, "the metadata")
    entries, paths = fields.get("state_dict_metadata"), fields.get("planner_data")
    if type(entries) is not dict or not all(type(name) is str for name in entries):
        raise damaged("`state_dict_metadata` is not a dictionary by names")
    places = _places(fields.get("storage_data"))
    stored_entries: list[Stored] = []
    room = tree.TEXT_SLACK + tree.TEXT_GAIN * metadata_bytes
    for name, entry in entries.items():
        with about_key(Key.of([name[:200]])):
            key = _key(name, paths if type(paths) is dict else {}, room)
            room -= len(key.text)
            stored_entries.append(_stored(name, key, entry, places))
    return stored_entries


def _fields(value: object, names: tuple[str, ...], what: str) -> Mapping[str | int, object]:
    """The fields of a record of one of these classes. `what` it should be is for the error."""
    if not isinstance(value, words.Record) or value.name not in names:
        raise damaged(f"{what} is {words.what_is(value)}, not an instance of `{names[0]}`")
    return value.fields


def _key(name: str, paths: Mapping[object, object], room: int) -> Key:
    """The key of a name: its path in the tree that was saved, or the name split on `/` where none is told."""
    tree.check_unicode(name)
    path = paths.get(name, tuple(name.split("/")))
    parts = path if type(path) is tuple else ()
    if not parts or not all(type(part) is str or words.is_number(part) for part in parts):
        raise damaged("its path in `planner_data` does not consist of names and indices")
    if len(parts) > tree.MOST_DEPTH and name in paths:
        raise damaged(f"is nested more than {tree.MOST_DEPTH} deep")
    if sum(len(part) + 1 for part in parts if type(part) is str) > room:
        raise damaged("its keys are longer together than its size allows")
    key = Key(tuple(map(str, parts)), tuple(type(part) is int for part in parts))
    tree.check_unicode(key.text)
    return key


def _places(storage: object) -> Places:
    """The place of every chunk and object."""
    if type(storage) is not dict:
        raise damaged("`storage_data` is not a dictionary")
    by_name = {}
    for index, place in storage.items():
        fields = _fields(index, (INDEX,), "a key of `storage_data`")
        name, offset = fields.get("fqn"), fields.get("offset")
        if type(name) is not str or not (offset is None or words.is_numbers(offset)):
            raise damaged("a key of `storage_data` does not have a name and offsets")
        with about_key(Key.of([name[:200]])):
            by_name[name, offset] = _place(place)
    return by_name


def _place(value: object) -> Chunk:
    fields = _fields(value, (PLACE,), "its place")
    file, offset, length = (fields.get(name) for name in ("relative_path", "offset", "length"))
    if type(file) is not str or not words.is_number(offset) or not words.is_number(length):
        raise damaged("its place is not a file, an offset and a length")
    if file in ("", ".", "..") or set(file) & set("/\\\0") or len(file) > 255:
        raise damaged(f"should be in `{shown(file[:200])}`, which is not a plain file name")
    tree.check_unicode(file)
    transforms = fields.get("transform_descriptors")
    if transforms:
        listed = few([shown(str(name)[:50]) for name in transforms]) if type(transforms) is list else "some"
        what = f"is stored through transforms ({listed}), which are not undone"
        raise SourceError(what, hint="Load it with torch, and save it without `_extensions`.")
    return Chunk(file, offset, length)


def _stored(name: str, key: Key, entry: object, places: Places) -> Stored:
    """The tensor or object of an entry. Raises SourceError without the name."""
    if isinstance(entry, words.Record) and entry.name == OBJECT:
        if (name, None) not in places:
            raise damaged("`storage_data` does not have its place")
        return Stored(key, None, [StoredPart(Region((), ()), places[name, None])])
    fields = _fields(entry, (TENSOR,), "its description")
    dtype = _fields(fields.get("properties"), PROPERTIES, "the record of its properties").get(0)
    shape = fields.get("size")
    if not isinstance(dtype, np.dtype):
        raise damaged(f"its dtype is {words.what_is(dtype)}")
    if not words.is_numbers(shape):
        raise damaged("its size is not a shape")
    check_shape(shape, dtype.itemsize)
    spec = ArraySpec(shape, dtype)
    parts = list(_chunks(name, spec, fields.get("chunks"), places))
    if spec.size:
        check_tiling(spec.shape, [part.region for part in parts])
    return Stored(key, spec, parts)


def _chunks(name: str, spec: ArraySpec, entries: object, places: Places) -> Iterator[StoredPart]:
    """The chunks that have elements: ranks that have none of a tensor's are listed with empty chunks."""
    if type(entries) is not list:
        raise damaged("its chunks are not a list")
    for entry in entries:
        fields = _fields(entry, (CHUNK,), "a chunk")
        offsets, sizes = fields.get("offsets"), fields.get("sizes")
        if not words.is_numbers(offsets) or not words.is_numbers(sizes):
            raise damaged("a chunk does not have offsets and sizes")
        stops = tuple(map(sum, zip(offsets, sizes, strict=False)))
        if not len(offsets) == len(sizes) == spec.ndim or any(map(int.__gt__, stops, spec.shape)):
            chunk = f"its chunk of {list(sizes)[:MOST_AXES]} at {list(offsets)[:MOST_AXES]}"
            raise damaged(f"{chunk} is not within {list(spec.shape)}")
        if 0 in sizes:
            continue
        if (name, offsets) not in places:
            raise damaged(f"`storage_data` does not have the place of its chunk at {list(offsets)}")
        yield StoredPart(Region(offsets, stops), places[name, offsets])


REMEMBERED_BYTES, REMEMBERED = 1024, 4096
"""Pickles of at most so many bytes are read once, and so many of them: chunks of one shape have the same."""
END_BYTES = 1024
"""Bytes at both ends of an archive that are fetched: torch 2.13 puts 700 before a tensor, 810 behind."""
PAGE_BYTES = 4 * END_BYTES
"""Bytes that are read together: the end of an archive, and the beginning of the next one; short archives."""
TOGETHER = 1024
"""Archives of which the ends are fetched at the same time."""


def read_contents(directory: str, index: Sequence[Stored]) -> dict[str, FileStat]:
    """Read what all entries hold from the data files; returns the sizes and times of these by path."""
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
                try:
                    entry.content = tree.list_leaves(saved, path, "", entry.key)
                    leaves = entry.content.leaves
                except SourceError as error:  # it asks for other things than plain values and tensors
                    why = f"is a Python object that is not read: {in_one_line(error)[:500]}"
                    entry.content, leaves = Unreadable(why, words.RESAVE), {}
                leaf_room += size - len(leaves)
                text_room += tree.TEXT_GAIN * size - sum(map(len, leaves))
                if leaf_room < 0 or text_room < 0:
                    what = "all objects up to here have more leaves together than their size allows"
                    raise damaged(f"{shown(path)}: {what}", words.RESAVE)
    return files


def _chunk(
    part: StoredPart, dtype: np.dtype[Any], value: object, saved: tree.Saved, path: str
) -> Manifest | Reader:
    """A chunk of a tensor. Raises SourceError where it is not what the index says."""
    wanted = ArraySpec(part.region.shape, dtype)
    stored = ArraySpec(value.shape, value.dtype) if isinstance(value, words.Tensor) else words.what_is(value)
    if not isinstance(value, words.Tensor) or stored != wanted:
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
        if file.stat.size > tree.MOST_PICKLE_BYTES:
            limit = f"{tree.MOST_PICKLE_BYTES} is the limit"
            raise damaged(f"{shown(metadata)} has {file.stat.size} bytes; {limit}")
        data = file.read(0, file.stat.size)
    with with_path(path):
        root = load(data, VOCABULARY, METADATA)
    with with_path(metadata):
        index = read_index(root, len(data))
    files = {metadata: file.stat, **read_contents(path, index)}
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    for entry in index:
        added = _listed(entry)
        for text, leaf in added.leaves.items():
            if text in leaves:
                twice = SourceError("two leaves have this key", hint="Rename one of them with torch.")
                raise with_key(leaf.key, twice)
        leaves |= added.leaves
        readers |= added.readers
    return Listing(leaves, files, readers=readers)


def _listed(entry: Stored) -> Listing:
    """The leaves of an entry, and what reads those without a manifest."""
    content, spec, key = entry.content, entry.spec, entry.key
    if isinstance(content, Listing):
        return content
    if spec is None:
        leaf = Leaf(key, LeafKind.ARRAY, ArraySpec((), np.dtype(object)), unreadable=content)
        return Listing({key.text: leaf})
    boxes = [Box(part.region, part.content) for part in entry.parts if part.content is not None]
    manifest = on_grid(spec, boxes) if spec.size else contiguous(spec, "", 0)
    leaf = Leaf(key, LeafKind.ARRAY, spec, manifest)
    readers = {key.text: Boxes(spec, boxes)} if manifest is None else {}
    return Listing({key.text: leaf}, readers=readers)


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Files that no rank writes, out of all in the directory; `--overwrite` refuses to delete them."""
    return [name for name in names if name != METADATA and ("/" in name or not name.endswith(DATA_SUFFIX))]
