"""Tensor bundles for tests: by TensorFlow, which is imported once and quietly, and by hand."""

import functools
import itertools
import os
import struct
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from ckpt_surgery.formats.tensorflow.table import table_entries
from ckpt_surgery.storage.reading import opened

Arrays = Mapping[str, np.ndarray]
MAGIC = bytes.fromhex("57fb808b247547db")


# --- TensorFlow -------------------------------------------------------------------------------------------


@functools.cache
def tensorflow() -> Any:
    """The library, without its messages."""
    if sys.version_info >= (3, 14):  # no wheels yet, so the test extra leaves it out
        pytest.importorskip("tensorflow")
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        import tensorflow

    return tensorflow


@dataclass(frozen=True)
class Piece:
    """An array, or a part of one."""

    name: str
    value: np.ndarray
    slices: str = ""
    """Extent of a part: the shape of the whole, then start and length or `-` for each axis: `4 6 0,2:-`."""


def save_pieces(prefix: Path, pieces: Sequence[Piece]) -> Path:
    """One bundle with one data file."""
    tf = tensorflow()
    tf.raw_ops.SaveV2(
        prefix=os.fspath(prefix),
        tensor_names=[piece.name for piece in pieces],
        shape_and_slices=[piece.slices for piece in pieces],
        tensors=[tf.constant(piece.value) for piece in pieces],
    )
    return prefix


def save_shards(prefix: Path, shards: Sequence[Sequence[Piece]]) -> Path:
    """One bundle with a data file for each shard, as several hosts write it."""
    parts = [save_pieces(prefix.with_name(f"part{i}"), shard) for i, shard in enumerate(shards)]
    tensorflow().raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[os.fspath(part) for part in parts],
        destination_prefix=os.fspath(prefix),
        delete_old_dirs=False,
    )
    return prefix


def parts_of(name: str, value: np.ndarray, cuts: Sequence[Sequence[int]]) -> list[Piece]:
    """An array in the cells of a grid; `cuts`: along each axis where cells begin, then its length."""
    cells = itertools.product(*(itertools.pairwise(axis) for axis in cuts))
    return [
        Piece(
            name,
            value[tuple(slice(a, b) for a, b in cell)],
            f"{' '.join(map(str, value.shape))} {':'.join(f'{a},{b - a}' for a, b in cell)}",
        )
        for cell in cells
    ]


def note_state(directory: Path, latest: Path, others: Sequence[Path] = ()) -> Path:
    """The file `checkpoint`."""
    tensorflow().compat.v1.train.update_checkpoint_state(
        os.fspath(directory), os.fspath(latest), [os.fspath(path) for path in (*others, latest)]
    )
    return directory


def load(prefix: Path) -> dict[str, np.ndarray]:
    """What TensorFlow reads."""
    reader = tensorflow().train.load_checkpoint(os.fspath(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def compressed(data: bytes) -> bytes:
    """Snappy, by the library inside TensorFlow."""
    tf = tensorflow()
    from tensorflow.core.framework import dataset_pb2, tensor_pb2

    element = tf.raw_ops.CompressElement(components=[tf.constant(np.frombuffer(data, np.uint8))])
    content = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(element).numpy()).tensor_content
    start = next(i for i, byte in enumerate(content) if byte < 128) + 1  # behind the variant's own length
    variant = tensor_pb2.VariantTensorDataProto.FromString(content[start:])
    return bytes(dataset_pb2.CompressedElement.FromString(variant.metadata).data)


# --- by hand ----------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    """A field of a message."""
    return varint(field << 3) + varint(value)


def nested(field: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(data)) + data


def fixed(field: int, value: int) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<I", value)


def crc(data: bytes) -> int:
    value = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) % 2**32


def header(shards: int = 1, endianness: int = 0, needed: int = 0) -> bytes:
    return number(1, shards) + number(2, endianness) + nested(3, number(1, 1), number(2, needed))


def shape(*axes: int) -> bytes:
    return b"".join(nested(2, number(1, n)) for n in axes)


def slices(*extents: tuple[int, int] | None) -> bytes:
    """Field 7 of an entry: a part, by start and length along each axis; None: the whole axis."""
    return nested(7, *(nested(1, number(1, e[0]), number(2, e[1])) if e else nested(1) for e in extents))


def entry(
    axes: Sequence[int] = (2,),
    type: int = 4,
    shard: int = 0,
    offset: int = 0,
    size: int = 2,
    checksum: int = 0,
    more: bytes = b"",
) -> bytes:
    """By default two bytes of type uint8."""
    numbers = [number(i, value) for i, value in ((1, type), (3, shard), (4, offset), (5, size))]
    return b"".join([*numbers, nested(2, shape(*axes)), fixed(6, checksum), more])


def block(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Entries that share nothing, and one restart."""
    entries = (b"\0" + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs)
    return b"".join(entries) + struct.pack("<II", 0, 1)


def stored(contents: bytes, compression: int = 0) -> bytes:
    """A block with its trailer."""
    data = contents + bytes([compression])
    return data + struct.pack("<I", crc(data))


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def footer(index: bytes) -> bytes:
    return (handle(0, 0) + index).ljust(40, b"\0") + MAGIC


def table(
    blocks: Sequence[tuple[bytes, int]],
    handles: Sequence[bytes] | None = None,
    keys: Sequence[bytes] | None = None,
) -> bytes:
    """Of blocks as they are stored, with their compression; where they lie can be said wrongly.

    `keys`: the last of each block, which only who searches for a key looks at.
    """
    data, places = b"", []
    for contents, compression in blocks:
        places.append(handle(len(data), len(contents)))
        data += stored(contents, compression)
    told = places if handles is None else handles
    index = block(zip(keys or [b"\xff" * (i + 1) for i in range(len(told))], told, strict=True))
    return data + stored(index) + footer(handle(len(data), len(index)))


def compress_index(prefix: Path) -> Path:
    """Put the index of a bundle into several of Snappy's blocks, as old versions of TensorFlow wrote it."""
    index = prefix.with_name(f"{prefix.name}.index")
    with opened(os.fspath(index)) as file:
        pairs = list(table_entries(file))
    parts = [pairs[i : i + 50] for i in range(0, len(pairs), 50)]
    packed = [(compressed(block(part)), 1) for part in parts]
    index.write_bytes(table(packed, None, [part[-1][0] for part in parts]))
    return prefix


def bundle(
    directory: Path, pairs: Sequence[tuple[bytes, bytes]], data: bytes = b"ab", head: bytes | None = None
) -> Path:
    """A bundle of such entries, in the order given; what to open."""
    entries = [(b"", header() if head is None else head), *pairs]
    (directory / "x.index").write_bytes(table([(block(entries), 0)]))
    (directory / "x.data-00000-of-00001").write_bytes(data)
    return directory
