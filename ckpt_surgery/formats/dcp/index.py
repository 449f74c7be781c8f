"""Read `.metadata`: tensors and their chunks, other objects, and the places of their bytes in files.

Everything is checked but for what only the data files tell. Source of the format: the classes of
torch.distributed.checkpoint.metadata and .filesystem (2.2 to 2.13), and what Megatron-LM's planner adds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Unreadable
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.registry import Listing, Reader
from ckpt_surgery.formats.shared.boxes import check_tiling
from ckpt_surgery.formats.shared.limits import MOST_AXES, check_shape
from ckpt_surgery.formats.shared.torch.globals import (
    DTYPES,
    Record,
    Unsupported,
    Vocabulary,
    is_number,
    is_numbers,
    ordered_dict,
    size,
    what_is,
)
from ckpt_surgery.formats.shared.torch.tree import MOST_DEPTH, TEXT_GAIN, TEXT_SLACK, check_unicode
from ckpt_surgery.storage.failures import about_key, damaged

# --- names that the pickle can use ------------------------------------------------------------------------

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
            return Unsupported("a layout of tensors")
        case (str(name),):
            raise damaged(f"a tensor has the layout `{shown(name[:200])}`; only `torch.strided` is read")
    raise damaged("a layout is not made of its name")


def _persistent(identifier: object) -> object:
    raise damaged(f"it asks for {what_is(identifier)} outside of it, which no metadata is")


VOCABULARY = Vocabulary(
    values=DTYPES,
    calls={
        "torch.Size": size,
        "collections.OrderedDict": ordered_dict,
        "torch.serialization._get_layout": _layout,
        **dict.fromkeys(_ENUMS, lambda _: Unsupported("a member of an enumeration")),
        # The directory that a checkpoint was written to, which it need not lie in any more.
        **dict.fromkeys(_PATHS, lambda _: Unsupported("a path")),
    },
    classes=(),
    records=(TENSOR, OBJECT, CHUNK, INDEX, PLACE, *PROPERTIES, *ROOTS, *_UNUSED),
    persistent=_persistent,
    of="metadata of checkpoints",
    most_instructions=2**25,
)
"""Names of dtypes, and of classes whose instances become records. A chunk takes about 60 instructions."""


# --- entries ----------------------------------------------------------------------------------------------


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
    keys.
    """
    fields = _fields(root, ROOTS, "the metadata")
    entries, paths = fields.get("state_dict_metadata"), fields.get("planner_data")
    if type(entries) is not dict or not all(type(name) is str for name in entries):
        raise damaged("`state_dict_metadata` is not a dictionary by names")
    places = _places(fields.get("storage_data"))
    stored_entries: list[Stored] = []
    room = TEXT_SLACK + TEXT_GAIN * metadata_bytes
    for name, entry in entries.items():
        with about_key(Key.of([name[:200]])):
            key = _key(name, paths if type(paths) is dict else {}, room)
            room -= len(key.text)
            stored_entries.append(_stored(name, key, entry, places))
    return stored_entries


def _fields(value: object, names: tuple[str, ...], what: str) -> Mapping[str | int, object]:
    """The fields of a record of one of these classes. `what` it should be is for the error."""
    if not isinstance(value, Record) or value.name not in names:
        raise damaged(f"{what} is {what_is(value)}, not an instance of `{names[0]}`")
    return value.fields


def _key(name: str, paths: Mapping[object, object], room: int) -> Key:
    """The key of a name: its path in the tree that was saved, or the name split on `/` where none is told."""
    check_unicode(name)
    path = paths.get(name, tuple(name.split("/")))
    parts = path if type(path) is tuple else ()
    if not parts or not all(type(part) is str or is_number(part) for part in parts):
        raise damaged("its path in `planner_data` does not consist of names and indices")
    if len(parts) > MOST_DEPTH and name in paths:
        raise damaged(f"is nested more than {MOST_DEPTH} deep")
    if sum(len(part) + 1 for part in parts if type(part) is str) > room:
        raise damaged("its keys are longer together than its size allows")
    key = Key(tuple(map(str, parts)), tuple(type(part) is int for part in parts))
    check_unicode(key.text)
    return key


def _places(storage: object) -> Places:
    """The place of every chunk and object."""
    if type(storage) is not dict:
        raise damaged("`storage_data` is not a dictionary")
    by_name = {}
    for index, place in storage.items():
        fields = _fields(index, (INDEX,), "a key of `storage_data`")
        name, offset = fields.get("fqn"), fields.get("offset")
        if type(name) is not str or not (offset is None or is_numbers(offset)):
            raise damaged("a key of `storage_data` does not have a name and offsets")
        with about_key(Key.of([name[:200]])):
            by_name[name, offset] = _place(place)
    return by_name


def _place(value: object) -> Chunk:
    fields = _fields(value, (PLACE,), "its place")
    file, offset, length = (fields.get(name) for name in ("relative_path", "offset", "length"))
    if type(file) is not str or not is_number(offset) or not is_number(length):
        raise damaged("its place is not a file, an offset and a length")
    if file in ("", ".", "..") or set(file) & set("/\\\0") or len(file) > 255:
        raise damaged(f"should be in `{shown(file[:200])}`, which is not a plain file name")
    check_unicode(file)
    transforms = fields.get("transform_descriptors")
    if transforms:
        listed = few([shown(str(name)[:50]) for name in transforms]) if type(transforms) is list else "some"
        what = f"is stored through transforms ({listed}), which are not undone"
        raise SourceError(what, hint="Load it with torch, and save it without `_extensions`.")
    return Chunk(file, offset, length)


def _stored(name: str, key: Key, entry: object, places: Places) -> Stored:
    """The tensor or object of an entry. Raises SourceError without the name."""
    if isinstance(entry, Record) and entry.name == OBJECT:
        if (name, None) not in places:
            raise damaged("`storage_data` does not have its place")
        return Stored(key, None, [StoredPart(Region((), ()), places[name, None])])
    fields = _fields(entry, (TENSOR,), "its description")
    dtype = _fields(fields.get("properties"), PROPERTIES, "the record of its properties").get(0)
    shape = fields.get("size")
    if not isinstance(dtype, np.dtype):
        raise damaged(f"its dtype is {what_is(dtype)}")
    if not is_numbers(shape):
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
        if not is_numbers(offsets) or not is_numbers(sizes):
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
