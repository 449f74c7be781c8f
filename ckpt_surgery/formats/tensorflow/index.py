"""The index of a tensor bundle: every variable, and where its bytes lie.

Format: tensorflow/tensorflow, core/protobuf/tensor_bundle.proto, core/util/tensor_bundle, core/framework/
types.proto; keys of parts: core/util/saved_tensor_slice_util.cc and core/lib/strings/ordered_code.cc.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.boxes import check_tiling
from ckpt_surgery.formats.shared.limits import MOST_AXES, check_shape
from ckpt_surgery.formats.tensorflow.proto import (
    Fields,
    fields,
    integer,
    message,
    messages,
    optional_integer,
    signed,
)
from ckpt_surgery.storage.failures import damaged, with_path

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the graph of TensorFlow's objects, which is not a variable."""
NEWEST = 1
"""Newest version of the format that this module reads."""
_PART = b"\0"
"""First byte of the keys of parts of partitioned variables."""
_FULL = -1
"""Length, in the key of a part, that stands for the whole axis."""

# --- types ------------------------------------------------------------------------------------------------

_NAMES = (
    *("float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool"),
    *("qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16"),
    *("resource", "variant", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"),
)
TYPES: Mapping[int, str] = dict(enumerate(_NAMES, start=1))
"""Names of all DataTypes by their numbers."""
STRING = 7
"""The DataType of strings."""
NUMBERS: Mapping[int, np.dtype[Any]] = {n: DTYPES[name] for n, name in TYPES.items() if name in DTYPES}
"""Dtypes of those DataTypes that are numbers. Elements of narrow ones take a byte each in files."""


# --- what an index says -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VariablePart:
    """A box of a variable whose bytes are contiguous."""

    region: Region
    shard: int
    offset: int
    """Offset in bytes in the shard."""
    size: int
    """Number of bytes."""
    checksum: int
    """Masked CRC-32C of the bytes as they are stored; of strings see `tensorflow.source.decoded_text`."""


Extent = tuple[int, int]
"""Start and length of an interval of an axis; the length is `_FULL` for the whole axis."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of the index, or a part of a partitioned one, which has an entry of its own."""

    type: int
    """DataType, one of TYPES."""
    shape: Shape
    parts: tuple[VariablePart, ...]
    """Boxes that hold each element once."""
    slices: tuple[tuple[Extent, ...], ...] = ()
    """In an entry, the extent along each axis of every part: those have entries of their own."""


@dataclass(frozen=True)
class BundleIndex:
    """The contents of a bundle's index."""

    shards: int
    """Number of data files."""
    variables: Mapping[str, Variable]
    """All variables by name, in the order of their names' bytes."""


def read_index(pairs: Iterable[tuple[bytes, bytes]]) -> BundleIndex:
    """The index in the entries of a table. Raises SourceError unless all variables are whole and disjoint."""
    header: BundleIndex | None = None
    entries: dict[str, Variable] = {}
    parts: dict[bytes, Variable] = {}
    for key, value in pairs:
        if header is None:
            header = _header(key, value)
        elif key.startswith(_PART):
            parts[key] = _entry(f"a part, {key!r}", value, header)
        elif (name := _name(key)) != OBJECT_GRAPH:
            entries[name] = _entry(name, value, header)
    if header is None:
        raise damaged("its table is empty")
    variables = {name: _whole(name, entry, parts) for name, entry in entries.items()}
    if parts:
        raise damaged(f"no variable has the part {shown(repr(next(iter(parts)))[:200])}")
    _check_apart(variables)
    return replace(header, variables=variables)


def _name(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise damaged(f"the name {key[:100]!r} is not UTF-8") from None


def _header(key: bytes, value: bytes) -> BundleIndex:
    """An index without its variables."""
    if key:
        raise SourceError("its table has no header", hint="It is damaged, or the table of another program.")
    header = fields(value)
    if any(isinstance(value, bytes) for value in header.get(1, ())):
        raise v1_checkpoint("it")
    shards, endianness = integer(header, 1), integer(header, 2)
    needed = integer(message(header, 3), 2)
    if needed > NEWEST:
        raise SourceError(
            f"it needs a reader of version {needed} of the format, and this one is of version {NEWEST}",
            hint="A newer ckpt-surgery may read it.",
        )
    if not 0 < shards < 100_000 or endianness > 1:
        raise damaged(f"its header has {shards} data files and the byte order {endianness}")
    if endianness == 1:
        raise SourceError(
            "it is of a big-endian host, and only little endian is read",
            hint="Restore it in TensorFlow on a little-endian host and save it there.",
        )
    return BundleIndex(shards, {})


def v1_checkpoint(what: str) -> SourceError:
    """The error to raise for a checkpoint of version 1."""
    return SourceError(
        f"{what} is a TensorFlow checkpoint of version 1, which is not read",
        hint="Restore it in TensorFlow and save it with "
        "`tf.compat.v1.train.Saver(write_version=tf.compat.v1.train.SaverDef.V2)`.",
    )


# --- entries ----------------------------------------------------------------------------------------------


def _entry(name: str, value: bytes, header: BundleIndex) -> Variable:
    """One entry, valid in itself. Raises SourceError with its name."""
    with with_path(f"`{name[:200]}`"):
        message_fields = fields(value)
        shape = _shape(message(message_fields, 2))
        stored = VariablePart(
            Region.whole(shape),
            integer(message_fields, 3),
            signed(integer(message_fields, 4)),
            signed(integer(message_fields, 5)),
            integer(message_fields, 6),
        )
        slices = tuple(_extents(part) for part in messages(message_fields, 7))
        entry = Variable(integer(message_fields, 1), shape, (stored,), slices)
        if not 0 <= stored.shard < header.shards or stored.offset < 0 or stored.size < 0:
            raise damaged(
                f"it is in data file {stored.shard} of {header.shards}, {stored.size} bytes "
                f"from byte {stored.offset} on"
            )
        if entry.type in NUMBERS:
            spec = ArraySpec(shape, NUMBERS[entry.type])
            check_shape(spec.shape, spec.dtype.itemsize)
            if stored.size != spec.nbytes and not slices:
                raise damaged(f"it is {spec}, which takes {spec.nbytes} bytes, not {stored.size}")
        return entry


def _shape(shape: Fields) -> Shape:
    """The shape in a TensorShapeProto."""
    _check_rank(shape, 2)
    axes = tuple(signed(integer(axis, 1)) for axis in messages(shape, 2))
    if integer(shape, 3) or any(n < 0 for n in axes):
        raise damaged("its shape is not known")
    return axes


def _check_rank(fields: Fields, number: int) -> None:
    axes = len(fields.get(number, ()))
    if axes > MOST_AXES:
        raise damaged(f"it has {axes} axes; {MOST_AXES} is the limit")


def _extents(extents: Fields) -> tuple[Extent, ...]:
    """The extents in a TensorSliceProto."""
    _check_rank(extents, 1)
    return tuple(_extent(axis) for axis in messages(extents, 1))


def _extent(extent: Fields) -> Extent:
    start, length = signed(integer(extent, 1)), optional_integer(extent, 2)
    if start < 0 or (length is None and start) or (length is not None and signed(length) < 0):
        raise damaged(f"a part of it begins at {start} and has the length {length}")
    return start, _FULL if length is None else length


# --- variables --------------------------------------------------------------------------------------------


def _whole(name: str, entry: Variable, parts: dict[bytes, Variable]) -> Variable:
    """A variable with all of its parts, which are removed from `parts`."""
    with with_path(f"`{name[:200]}`"):
        if entry.type not in TYPES:
            raise SourceError(
                f"it has the unknown DataType {entry.type}", hint="It is damaged, or newer than this program."
            )
        if not entry.slices:
            return entry
        pieces = sorted(
            (_part(name, entry, extents, parts) for extents in entry.slices), key=lambda p: p.region.starts
        )
        check_tiling(entry.shape, [part.region for part in pieces])
    return replace(entry, parts=tuple(pieces))


def _part(
    name: str, entry: Variable, extents: Sequence[Extent], parts: dict[bytes, Variable]
) -> VariablePart:
    region = _region(extents, entry.shape)
    part = parts.pop(part_key(name, extents), None)
    if part is None:
        raise damaged(f"its part at {list(region.starts)} is missing, or named twice")
    if (part.type, part.shape, part.slices) != (entry.type, region.shape, ()):
        raise damaged(
            f"its part {list(region.starts)} is {TYPES.get(part.type, part.type)}{list(part.shape)} "
            f"where {TYPES[entry.type]}{list(region.shape)} belongs"
        )
    return replace(part.parts[0], region=region)


def _region(extents: Sequence[Extent], shape: Shape) -> Region:
    if len(extents) != len(shape):
        raise damaged(f"a part of it has {len(extents)} axes, and it has {len(shape)}")
    starts = tuple(start for start, _ in extents)
    stops = tuple(
        n if length == _FULL else start + length for (start, length), n in zip(extents, shape, strict=True)
    )
    if any(stop > n for stop, n in zip(stops, shape, strict=True)):
        raise damaged(f"a part of it ends at {list(stops)}, outside of its shape {list(shape)}")
    return Region(starts, stops)


def _check_apart(variables: Mapping[str, Variable]) -> None:
    """Raise SourceError where variables share bytes: a small file could then claim any amount of data."""
    places = sorted(
        (p.shard, p.offset, p.size, name) for name, v in variables.items() for p in v.parts if p.size
    )
    for (shard, offset, size, name), (next_shard, start, _, other) in pairwise(places):
        if shard == next_shard and start < offset + size:
            raise damaged(
                f"`{shown(name[:200])}` and `{shown(other[:200])}` share bytes of data file {shard}"
            )


# --- keys of parts -----------------------------------------------------------------------------------------


def part_key(name: str, extents: Sequence[Extent]) -> bytes:
    """The key of a part: an ordered code of 0, the name, the number of axes, and each start and length."""
    numbers = (number for extent in extents for number in extent)
    return b"".join(
        [_unsigned(0), _text(name.encode()), _unsigned(len(extents)), *(_signed(n) for n in numbers)]
    )


def _unsigned(value: int) -> bytes:
    """The number of bytes, then the bytes, most significant first; 0 has none."""
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _text(text: bytes) -> bytes:
    """A text, escaped and terminated. UTF-8 has no 0xff, which would have to be escaped as well."""
    return text.replace(b"\0", b"\0\xff") + b"\0\1"


def _signed(value: int) -> bytes:
    """A number with as many leading ones (zeros if negative) as bytes, most significant byte first."""
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << length) - 1) << 7 * length
    return (value & ((1 << 8 * length) - 1) ^ header).to_bytes(length, "big")
