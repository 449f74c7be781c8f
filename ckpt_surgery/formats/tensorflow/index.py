"""The index of a tensor bundle: every variable, and where its bytes lie.

Format: tensorflow/tensorflow, core/protobuf/tensor_bundle.proto, core/util/tensor_bundle, core/framework/
types.proto; keys of parts: core/util/saved_tensor_slice_util.cc and core/lib/strings/ordered_code.cc. Entries
are messages of Protocol Buffers: protobuf.dev/programming-guides/encoding.
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
from ckpt_surgery.formats.tensorflow.table import varint
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

# --- messages ---------------------------------------------------------------------------------------------

VARINT, BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Kinds of fields, and the bytes of numbers that have a fixed width."""
Fields = dict[int, list[int | bytes]]
"""The values of a message's fields by their numbers: bytes for texts, bytes and messages, else unsigned."""


def fields(message: bytes) -> Fields:
    """The fields of a message, the values of each in their order. If not repeated, the last counts."""
    values: Fields = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind not in (VARINT, BYTES, *_FIXED):
            raise damaged(f"a message has a field of the unknown kind {kind}")
        size, at = (_FIXED[kind], at) if kind in _FIXED else varint(message, at)
        value: int | bytes = size
        if kind != VARINT:
            if size > len(message) - at:
                raise damaged(f"a field of {size} bytes begins where {len(message) - at} are left")
            stored, at = message[at : at + size], at + size
            value = stored if kind == BYTES else int.from_bytes(stored, "little")
        values.setdefault(number, []).append(value)
    return values


def _unsigned(parts: Fields, number: int) -> int:
    """The value of a field that is a number, 0 where it is left out."""
    value = parts.get(number, [0])[-1]
    if isinstance(value, bytes):
        raise damaged(f"field {number} of a message is not a number")
    return value


def _integer(parts: Fields, number: int) -> int:
    """The same, of 64 bits in two's complement."""
    value = _unsigned(parts, number)
    return value - (1 << 64) if value >> 63 else value


def _bytes(parts: Fields, number: int) -> list[bytes]:
    """The values of a field that is a message and may be repeated."""
    values = [value for value in parts.get(number, ()) if isinstance(value, bytes)]
    if len(values) != len(parts.get(number, ())):
        raise damaged(f"field {number} of a message is not a message")
    return values


def _message(parts: Fields, number: int) -> Fields:
    """The fields of a message that is not repeated: none where it is left out."""
    return fields(b"".join(_bytes(parts, number)))


def _axes(parts: Fields, number: int) -> list[Fields]:
    """Repeated messages, one for each axis of an array."""
    axes = _bytes(parts, number)
    if len(axes) > MOST_AXES:
        raise damaged(f"it has {len(axes)} axes; {MOST_AXES} is the limit")
    return list(map(fields, axes))


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
    entries = iter(pairs)
    header = next(entries, None)
    if header is None:
        raise damaged("its table is empty")
    shards = _shards(*header)
    whole: dict[str, Variable] = {}
    parts: dict[bytes, Variable] = {}
    for key, value in entries:
        if key.startswith(_PART):
            parts[key] = _entry(f"a part, {key!r}", value, shards)
            continue
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise damaged(f"the name {key[:100]!r} is not UTF-8") from None
        if name != OBJECT_GRAPH:
            whole[name] = _entry(name, value, shards)
    variables = {name: _with_parts(name, entry, parts) for name, entry in whole.items()}
    if parts:
        raise damaged(f"no variable has the part {shown(repr(next(iter(parts)))[:200])}")
    _check_apart(variables)
    return BundleIndex(shards, variables)


def _shards(key: bytes, value: bytes) -> int:
    """The number of data files in the header, which is the first entry."""
    if key:
        raise SourceError("its table has no header", hint="It is damaged, or the table of another program.")
    header = fields(value)
    if any(isinstance(value, bytes) for value in header.get(1, ())):
        raise v1_checkpoint("it")
    shards, endianness = _unsigned(header, 1), _unsigned(header, 2)
    needed = _unsigned(_message(header, 3), 2)
    if needed > NEWEST:
        what = f"it needs a reader of version {needed} of the format, and this one is of version {NEWEST}"
        raise SourceError(what, hint="A newer ckpt-surgery may read it.")
    if not 0 < shards < 100_000:
        raise damaged(f"its header has {shards} data files")
    if endianness:
        what = f"it has the byte order {endianness}, of a big-endian host, and only little endian is read"
        raise SourceError(what, hint="Restore it in TensorFlow on a little-endian host and save it there.")
    return shards


def v1_checkpoint(what: str) -> SourceError:
    """The error to raise for a checkpoint of version 1."""
    return SourceError(
        f"{what} is a TensorFlow checkpoint of version 1, which is not read",
        hint="Restore it in TensorFlow and save it with "
        "`tf.compat.v1.train.Saver(write_version=tf.compat.v1.train.SaverDef.V2)`.",
    )


def _entry(name: str, value: bytes, shards: int) -> Variable:
    """One entry, valid in itself. Raises SourceError with its name."""
    with with_path(f"`{name[:200]}`"):
        entry = fields(value)
        about = _message(entry, 2)
        shape = tuple(_integer(axis, 1) for axis in _axes(about, 2))
        if _unsigned(about, 3) or any(n < 0 for n in shape):
            raise damaged("its shape is not known")
        type, shard, checksum = (_unsigned(entry, number) for number in (1, 3, 6))
        offset, size = _integer(entry, 4), _integer(entry, 5)
        slices = tuple(tuple(map(_extent, _axes(fields(part), 1))) for part in _bytes(entry, 7))
        if not 0 <= shard < shards or offset < 0 or size < 0:
            raise damaged(f"it is in data file {shard} of {shards}, {size} bytes from byte {offset} on")
        if type in NUMBERS:
            spec = ArraySpec(shape, NUMBERS[type])
            check_shape(shape, spec.dtype.itemsize)
            if size != spec.nbytes and not slices:
                raise damaged(f"it is {spec}, which takes {spec.nbytes} bytes, not {size}")
        stored = VariablePart(Region.whole(shape), shard, offset, size, checksum)
        return Variable(type, shape, (stored,), slices)


def _extent(extent: Fields) -> Extent:
    whole, start, length = 2 not in extent, _integer(extent, 1), _integer(extent, 2)
    if start < 0 or length < 0 or (whole and start):
        has = "no length" if whole else f"the length {length}"
        raise damaged(f"a part of it begins at {start} and has {has}")
    return start, _FULL if whole else length


def _with_parts(name: str, entry: Variable, parts: dict[bytes, Variable]) -> Variable:
    """A variable with all of its parts, which are removed from `parts`."""
    with with_path(f"`{name[:200]}`"):
        if entry.type not in TYPES:
            what = f"it has the unknown DataType {entry.type}"
            raise SourceError(what, hint="It is damaged, or newer than this program.")
        if not entry.slices:
            return entry
        pieces = [_part(name, entry, extents, parts) for extents in entry.slices]
        pieces.sort(key=lambda piece: piece.region.starts)
        check_tiling(entry.shape, [part.region for part in pieces])
    return replace(entry, parts=tuple(pieces))


def _part(
    name: str, entry: Variable, extents: Sequence[Extent], parts: dict[bytes, Variable]
) -> VariablePart:
    shape = entry.shape
    if len(extents) != len(shape):
        raise damaged(f"a part of it has {len(extents)} axes, and it has {len(shape)}")
    starts = tuple(start for start, _ in extents)
    stops = tuple(
        n if length == _FULL else start + length for (start, length), n in zip(extents, shape, strict=True)
    )
    if any(map(int.__gt__, stops, shape)):
        raise damaged(f"a part of it ends at {list(stops)}, outside of its shape {list(shape)}")
    region, part = Region(starts, stops), parts.pop(part_key(name, extents), None)
    if part is None:
        raise damaged(f"its part at {list(starts)} is missing, or named twice")
    if (part.type, part.shape, part.slices) != (entry.type, region.shape, ()):
        slice_text = f"its part {list(starts)} is {TYPES.get(part.type, part.type)}{list(part.shape)}"
        raise damaged(f"{slice_text} where {TYPES[entry.type]}{list(region.shape)} belongs")
    return replace(part.parts[0], region=region)


def _check_apart(variables: Mapping[str, Variable]) -> None:
    """Raise SourceError where variables share bytes: a small file could then claim any amount of data."""
    places = sorted(
        (p.shard, p.offset, p.size, name) for name, v in variables.items() for p in v.parts if p.size
    )
    for (shard, offset, size, name), (next_shard, start, _, other) in pairwise(places):
        if shard == next_shard and start < offset + size:
            both = f"`{shown(name[:200])}` and `{shown(other[:200])}`"
            raise damaged(f"{both} share bytes of data file {shard}")


def part_key(name: str, extents: Sequence[Extent]) -> bytes:
    """The key of a part: an ordered code of 0, the name, the number of axes, and each start and length.

    UTF-8 has no 0xff, which would have to be escaped as well.
    """
    axes = bytes([1, len(extents)]) if extents else b"\0"  # a number of bytes, and these
    numbers = b"".join(_ordered(number) for extent in extents for number in extent)
    return b"\0" + name.encode().replace(b"\0", b"\0\xff") + b"\0\1" + axes + numbers


def _ordered(value: int) -> bytes:
    """A number with as many leading ones (zeros if negative) as bytes, most significant byte first."""
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << length) - 1) << 7 * length
    return (value & ((1 << 8 * length) - 1) ^ header).to_bytes(length, "big")
