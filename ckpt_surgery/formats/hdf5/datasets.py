"""Describe a dataset of an HDF5 file: its shape and dtype, where its bytes lie, and what its gaps hold.

Everything is checked against the size of the file. Nothing is read through libhdf5 but this description, and
the elements of compact datasets, which are a part of it.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts
from ckpt_surgery.core.dtypes import NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, contiguous, encoding_of
from ckpt_surgery.formats.hdf5.attributes import dtype_name
from ckpt_surgery.formats.hdf5.element_types import Hdf5Type, element_type
from ckpt_surgery.formats.hdf5.library import FileView
from ckpt_surgery.formats.shared.limits import check_shape
from ckpt_surgery.storage.failures import damaged

GZIP, SHUFFLE = "gzip", "shuffle"
NAMES = {1: GZIP, 2: SHUFFLE}
"""The filters that are decoded here, by their registered numbers."""
BUILT_IN = range(1, 7)
"""Numbers of the filters that belong to libhdf5 itself."""
MOST_GAIN = 1032
"""Largest number of bytes that one compressed byte can become: by deflate, 258 for every two bits."""

Filter = Mapping[str, Any]
"""A codec of an encoding: `hdf5` is the filter's name; of shuffle, `size` is the number of bytes of an
element. It has no `name`, because zarr has no such codec."""

REPACK = (
    "Write the file again: `h5repack {} old.h5 new.h5`. If h5repack warns that it cannot read a dataset, it "
    "leaves that one out: then use h5py, as the page on formats shows."
)
UNFILTERED, INLINE, MERGE = (REPACK.format(options) for options in ("-f NONE", "-l CONTI", "--merge"))
"""Remove filters; copy elements from other files; copy what links to other files lead to."""
REWRITE = (
    'Write the file again with h5py, as the page on formats shows in "HDF5 and Keras"; '
    "h5repack would leave this dataset out."
)


def describe_dataset(dataset: Any, key: Key, view: FileView) -> Leaf:
    """The leaf of h5py's `DatasetID`: shape, dtype and chunk locations, checked against the file's size.

    Raises SourceError, and what h5py raises.
    """
    from h5py import h5d, h5s

    element = element_type(dataset.get_type(), dtype_name(dataset, view))
    if dataset.get_space().get_simple_extent_type() == h5s.NULL:
        return Leaf(key, LeafKind.EMPTY, empty="None")
    shape = tuple(dataset.shape)
    check_shape(shape, element.dtype.itemsize)
    creation = dataset.get_create_plist()
    layout = creation.get_layout()
    if layout == h5d.VIRTUAL:
        raise SourceError("it is a virtual dataset, which refers to other files", hint=INLINE)
    if creation.get_external_count():
        raise SourceError("its elements are in other files", hint=INLINE)
    spec = ArraySpec(shape, element.dtype)
    content: Manifest | Unreadable
    if element.unreadable is not None:
        content = element.unreadable
    elif layout == h5d.CHUNKED and spec.size:
        content = _chunked(dataset, creation, spec, element, view)
    else:
        content = _in_one_piece(dataset, creation, spec, element, view)
    if isinstance(content, Unreadable):
        return Leaf(key, LeafKind.ARRAY, spec, unreadable=content)
    return Leaf(key, LeafKind.ARRAY, spec, content)


def _in_one_piece(
    dataset: Any, creation: Any, spec: ArraySpec, element: Hdf5Type, view: FileView
) -> Manifest:
    """A dataset whose elements are one range of the file, or a part of its description, or nowhere."""
    from h5py import h5d, h5s

    codec = _codec(element, spec, ())
    whole = contiguous(spec, "", 0, codec)
    if not spec.size:
        return whole
    if creation.get_layout() == h5d.COMPACT:  # at most 64 KiB
        block = np.zeros(spec.shape, f"V{spec.dtype.itemsize}")
        dataset.read(h5s.ALL, h5s.ALL, block, dataset.get_type())
        return replace(whole, chunks={(0,) * spec.ndim: Chunk("", 0, spec.nbytes, block.tobytes())})
    offset = dataset.get_offset()
    if offset is None:
        return replace(whole, chunks={}, fill=_fill_value(dataset, creation, element))
    if offset + spec.nbytes > view.size:
        raise damaged(
            f"its {spec.nbytes} bytes begin at byte {offset} of {view.size}: they are not all there"
        )
    return contiguous(spec, view.path, view.start + offset, codec)


# --- chunks -----------------------------------------------------------------------------------------------


def _chunked(
    dataset: Any, creation: Any, spec: ArraySpec, element: Hdf5Type, view: FileView
) -> Manifest | Unreadable:
    filters = _filters(creation)
    if isinstance(filters, Unreadable):
        return filters
    grid = tuple(creation.get_chunk())
    chunks = chunks_of(dataset, spec, grid, filters, view)
    manifest = Manifest(spec, grid, _codec(element, spec, filters), chunks)
    if not manifest.complete:
        manifest = replace(manifest, fill=_fill_value(dataset, creation, element))
    return manifest


def _filters(creation: Any) -> list[Filter] | Unreadable:
    """The filters in the order in which they were applied; or why they cannot be undone."""
    applied = [creation.get_filter(i) for i in range(creation.get_nfilters())]
    hint = UNFILTERED if all(number in BUILT_IN for number, *_ in applied) else REWRITE
    for number, _, _, name in applied:
        if number not in NAMES:
            called = name.decode("utf-8", "replace")[:100] or f"number {number}"
            return Unreadable(f"has the filter {called}, which is not read", hint)
    filters: list[Filter] = [
        {"hdf5": GZIP} if NAMES[number] == GZIP else {"hdf5": SHUFFLE, "size": max([1, *settings[:1]])}
        for number, _, settings, _ in applied
    ]
    return Unreadable("is compressed twice", hint) if filters.count({"hdf5": GZIP}) > 1 else filters


def chunks_of(
    dataset: Any, spec: ArraySpec, grid: Shape, filters: Sequence[Filter], view: FileView
) -> dict[Shape, Chunk]:
    """The chunks of a dataset, each checked as the library tells of it."""
    chunks: dict[Shape, Chunk] = {}
    counts, nbytes = grid_counts(spec.shape, grid), math.prod(grid) * spec.dtype.itemsize
    compressed = any(step["hdf5"] == GZIP for step in filters)
    total = 0

    def add(info: Any) -> None:
        """Take in what h5py's `StoreInfo` says."""
        nonlocal total
        index = tuple(at // n for at, n in zip(info.chunk_offset, grid, strict=True))
        begins = all(at % n == 0 for at, n in zip(info.chunk_offset, grid, strict=True))
        if not begins or any(i >= n for i, n in zip(index, counts, strict=True)):
            raise damaged(f"it has a chunk outside of its grid: {info.chunk_offset}")
        if index in chunks:
            raise damaged(f"it has two chunks at {info.chunk_offset}")
        total += info.size
        if info.byte_offset + info.size > view.size or total > view.size:
            raise damaged(
                f"a chunk of {info.size} bytes begins at byte {info.byte_offset} of {view.size}: "
                "they are not all there, or several chunks share them"
            )
        if info.filter_mask:
            raise SourceError("it has chunks that are stored without its filters", hint=UNFILTERED)
        if (info.size * MOST_GAIN < nbytes) if compressed else (info.size != nbytes):
            raise damaged(f"a chunk of {nbytes} bytes is stored in {info.size} bytes")
        chunks[index] = Chunk(view.path, view.start + info.byte_offset, info.size)

    dataset.chunk_iter(add)
    return chunks


def _codec(element: Hdf5Type, spec: ArraySpec, filters: Sequence[Filter]) -> Codec:
    """The codec of the chunks."""
    chain = [bytes_codec("big" if element.big else "little"), *filters]
    name = min((step["hdf5"] for step in filters), default="raw")  # gzip, or else shuffle
    return Codec(name, tuple(range(spec.ndim)), encoding_of(chain))


def _fill_value(dataset: Any, creation: Any, element: Hdf5Type) -> bytes:
    """The bytes of elements that were never written; 0 where the file does not say."""
    from h5py import h5d, h5t

    dtype, opaque = element.dtype, dataset.get_type().get_class() == h5t.OPAQUE
    narrow = f"V{dtype.itemsize}" if opaque else np.float32
    fill: np.ndarray = np.zeros((), dtype if dtype.name in NUMPY_NAMES else narrow)
    if creation.fill_value_defined() != h5d.FILL_VALUE_UNDEFINED:
        creation.get_fill_value(fill)
    return (fill if opaque else fill.astype(dtype)).tobytes()


# --- filters ----------------------------------------------------------------------------------------------
#
# They are not left to libhdf5: for a stream that ends too early it returns whatever lies in its memory behind
# the end. Source: the HDF5 1.14 specification, section IV.A.2.l.


def decode_chunk(manifest: Manifest, stored: bytes) -> bytes:
    """The plain bytes of a chunk."""
    return decoded(stored, _filters_of(manifest.codec.encoding), manifest.chunk_nbytes)


@cache
def _filters_of(encoding: str) -> Sequence[Filter]:
    """The filters of an encoding, which begins with the codec `bytes`."""
    return tuple(json.loads(encoding)[1:])


def decoded(data: bytes, filters: Sequence[Filter], nbytes: int) -> bytes:
    """Decode a chunk's `nbytes` bytes. Raises SourceError where they decode to another number of bytes."""
    for step in reversed(filters):
        data = _inflated(data, nbytes) if step["hdf5"] == GZIP else _unshuffled(data, step["size"])
    if len(data) != nbytes:
        raise damaged(f"a chunk decodes to {len(data)} bytes instead of {nbytes}")
    return data


def _inflated(data: bytes, nbytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, nbytes + 1)
    except zlib.error as error:
        raise damaged(f"a chunk cannot be inflated: {error}") from error
    if len(inflated) != nbytes or not stream.eof:
        more = "more than " if len(inflated) > nbytes else ""
        raise damaged(
            f"a chunk inflates to {more}{min(len(inflated), nbytes)} bytes, and its stream "
            f"{'ends' if stream.eof else 'does not end'} there; {nbytes} belong there"
        )
    return inflated


def _unshuffled(data: bytes, element_bytes: int) -> bytes:
    """The first bytes of all elements come first, then all second ones; what is no whole element is last."""
    count = len(data) // element_bytes
    whole = np.frombuffer(data, np.uint8, count * element_bytes).reshape(element_bytes, count)
    return whole.T.tobytes() + data[count * element_bytes :]
