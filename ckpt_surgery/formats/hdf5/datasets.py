"""Describe a dataset of an HDF5 file: its shape and dtype, where its bytes lie, and what its gaps hold.

Everything is checked against the size of the file. Nothing is read through libhdf5 but this description, and
the elements of compact datasets, which are a part of it.

Sources: the HDF5 1.14 specification, section IV.A.2.d; what h5py 3.14 writes for NumPy's bool (an
enumeration) and complex types (a compound of `r` and `i`); what Keras 3.15 writes for bfloat16: two opaque
bytes, and an attribute `dtype` of the dataset.
"""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.dtypes import DTYPES, NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, contiguous, encoding_of
from ckpt_surgery.formats.chunk_reading import Fetch, assembled, elements_in
from ckpt_surgery.formats.hdf5.library import FileView, value_of
from ckpt_surgery.formats.shared.limits import check_shape
from ckpt_surgery.storage.failures import damaged

DType = np.dtype[Any]

OPAQUE_NAMES = tuple(name for name in DTYPES if name.startswith(("bfloat16", "float8")))
"""Types of ml_dtypes that are stored as opaque bytes, with their name in an attribute. Types of fewer than
8 bits are left out: not every byte is a value of theirs."""
HELD: Mapping[DType, str] = {DTYPES[name]: name for name in (*NUMPY_NAMES, *OPAQUE_NAMES)}
"""The dtypes that a file can hold, and their names."""
DTYPE_ATTRIBUTE = "dtype"
"""Attribute of a dataset of opaque bytes that names their type."""
MOST_OPAQUE_BYTES = 1 << 20
"""Size of elements that cannot be read up to which they are listed with their size."""


@dataclass(frozen=True)
class Hdf5Type:
    """The type of a dataset's elements."""

    dtype: DType
    """In native byte order. What cannot be read has bytes of no type, or objects where the size differs."""
    big: bool = False
    """Whether the elements are stored big endian."""
    unreadable: Unreadable | None = None
    """Reason why they cannot be used, as a predicate, and what to do; None if they can be read."""


@lru_cache(maxsize=1024)
def _element_type(encoded: bytes, name: str | None) -> Hdf5Type:
    """The type by HDF5's description of it. `name`: the attribute `dtype` of the dataset, if a text."""
    from h5py import h5t

    stored = h5t.decode(encoded)
    kind, size = stored.get_class(), stored.get_size()
    number = _number(stored)
    if number is not None:
        return number
    if name in OPAQUE_NAMES and DTYPES[name].itemsize == size:
        return Hdf5Type(DTYPES[name])
    if kind == h5t.OPAQUE and name is None and size == 2:
        return Hdf5Type(DTYPES["bfloat16"])  # in earlier Keras files it has no name
    kinds = {
        h5t.COMPOUND: "records",
        h5t.STRING: "strings",
        h5t.REFERENCE: "references",
        h5t.TIME: "dates",
        h5t.VLEN: "lists of different lengths",
        h5t.ARRAY: "arrays",
        h5t.BITFIELD: "bit fields",
        h5t.OPAQUE: "untyped bytes",
    }
    why = f"is an array of {kinds.get(kind, 'numbers of an unusual width or form')}"
    hint = "Save it as arrays of numbers in a common type, or leave it out."
    varies = stored.detect_class(h5t.VLEN) or stored.detect_class(h5t.REFERENCE)
    if isinstance(stored, h5t.TypeStringID):
        varies = varies or stored.is_variable_str()
    dtype = np.dtype("O") if varies or not 0 < size <= MOST_OPAQUE_BYTES else np.dtype(f"V{size}")
    return Hdf5Type(dtype, unreadable=Unreadable(why, hint))


def _number(stored: Any) -> Hdf5Type | None:
    """Numbers, truths and complex numbers, where the type is bit for bit as h5py stores a dtype."""
    from h5py import h5t

    kind = stored.get_class()
    if kind == h5t.ENUM:  # h5py's booleans; the numbers of other enumerations
        number = _number(stored.get_super())
        truths = number is not None and number.dtype.itemsize == 1 and stored.dtype == np.bool_
        return Hdf5Type(DTYPES["bool"]) if truths else number
    if kind not in (h5t.INTEGER, h5t.FLOAT, h5t.COMPOUND):
        return None
    for half, big in ((h5t.IEEE_F16LE.copy(), False), (h5t.IEEE_F16BE.copy(), True)):
        half.set_fields(15, 7, 8, 0, 7)  # bfloat16: 8 bits of exponent and 7 of mantissa
        half.set_ebias(127)
        if stored.equal(half):
            return Hdf5Type(DTYPES["bfloat16"], big)
    if kind == h5t.INTEGER and stored.get_size() == 1:
        stored = stored.copy()
        stored.set_order(h5t.ORDER_LE)  # of no account, and NumPy has none
    try:
        dtype = stored.dtype
    except (TypeError, ValueError):  # NumPy has no such type
        return None
    native = dtype.newbyteorder("=")
    if native not in HELD or not h5t.py_create(dtype, logical=True).equal(stored):
        return None
    return Hdf5Type(native, dtype.byteorder == ">")


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
    """The leaf of h5py's `DatasetID`, checked against the file's size. Raises what h5py raises, too."""
    from h5py import Dataset, h5a, h5d, h5s, h5t

    type, name = dataset.get_type(), None
    if type.get_class() == h5t.OPAQUE and DTYPE_ATTRIBUTE in Dataset(dataset).attrs:
        name = value_of(h5a.open(dataset, DTYPE_ATTRIBUTE.encode()), dataset, view)
    element = _element_type(type.encode(), name if isinstance(name, str) else None)
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
    chunked = layout == h5d.CHUNKED and spec.size
    filters = element.unreadable or (_filters(creation) if chunked else [])
    if isinstance(filters, Unreadable):
        return Leaf(key, LeafKind.ARRAY, spec, unreadable=filters)
    chain = [bytes_codec("big" if element.big else "little"), *filters]
    filter_name = min((step["hdf5"] for step in filters), default="raw")  # gzip, or else shuffle
    codec = Codec(filter_name, tuple(range(spec.ndim)), encoding_of(chain))
    if chunked:
        grid = tuple(creation.get_chunk())
        manifest = Manifest(spec, grid, codec, chunks_of(dataset, spec, grid, filters, view))
    elif layout == h5d.COMPACT and spec.size:  # at most 64 KiB
        block = np.zeros(spec.shape, f"V{spec.dtype.itemsize}")
        dataset.read(h5s.ALL, h5s.ALL, block, dataset.get_type())
        inline = {(0,) * spec.ndim: Chunk("", 0, spec.nbytes, block.tobytes())}
        manifest = replace(contiguous(spec, "", 0, codec), chunks=inline)
    else:
        offset = dataset.get_offset() if spec.size else None
        if offset is not None and offset + spec.nbytes > view.size:
            what = f"its {spec.nbytes} bytes begin at byte {offset} of {view.size}"
            raise damaged(f"{what}: they are not all there")
        manifest = contiguous(spec, view.path, view.start + (offset or 0), codec)
        if offset is None:
            manifest = replace(manifest, chunks={})
    if not manifest.complete:
        manifest = replace(manifest, fill=_fill_value(dataset, creation, element))
    return Leaf(key, LeafKind.ARRAY, spec, manifest)


def _filters(creation: Any) -> list[Filter] | Unreadable:
    """The filters in the order in which they were applied; or why they cannot be undone."""
    applied = [creation.get_filter(i) for i in range(creation.get_nfilters())]
    hint = UNFILTERED if all(number in BUILT_IN for number, *_ in applied) else REWRITE
    filters: list[Filter] = []
    for number, _, settings, name in applied:
        if number not in NAMES:
            called = name.decode("utf-8", "replace")[:100] or f"number {number}"
            return Unreadable(f"has the filter {called}, which is not read", hint)
        gzip = NAMES[number] == GZIP
        filters.append({"hdf5": GZIP} if gzip else {"hdf5": SHUFFLE, "size": max([1, *settings[:1]])})
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
        places = [divmod(at, n) for at, n in zip(info.chunk_offset, grid, strict=True)]
        index = tuple(i for i, _ in places)
        if any(rest or i >= n for (i, rest), n in zip(places, counts, strict=True)):
            raise damaged(f"it has a chunk outside of its grid: {info.chunk_offset}")
        if index in chunks:
            raise damaged(f"it has two chunks at {info.chunk_offset}")
        total += info.size
        if info.byte_offset + info.size > view.size or total > view.size:
            what = f"a chunk of {info.size} bytes begins at byte {info.byte_offset} of {view.size}"
            raise damaged(f"{what}: they are not all there, or several chunks share them")
        if info.filter_mask:
            raise SourceError("it has chunks that are stored without its filters", hint=UNFILTERED)
        if (info.size * MOST_GAIN < nbytes) if compressed else (info.size != nbytes):
            raise damaged(f"a chunk of {nbytes} bytes is stored in {info.size} bytes")
        chunks[index] = Chunk(view.path, view.start + info.byte_offset, info.size)

    dataset.chunk_iter(add)
    return chunks


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


def decode_region(manifest: Manifest, region: Region, fetch: Fetch) -> np.ndarray:
    """A region, which is not empty.

    Memory: the region, and one chunk, stored and decoded; all stored ones if they are in an object store.
    """
    filters = json.loads(manifest.codec.encoding)[1:]  # after the codec `bytes`
    spec = ArraySpec(manifest.chunk_shape, manifest.spec.dtype)

    def read(index: Shape, inner: Region, stored: bytes) -> np.ndarray:
        plain = decoded(stored, filters, manifest.chunk_nbytes)
        return elements_in(plain, spec, manifest.codec, inner).copy()  # lets go of the chunk

    return assembled(manifest, region, read, fetch)


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
        ends = "ends" if stream.eof else "does not end"
        raise damaged(f"a chunk inflates to {len(inflated)} bytes and {ends} there; {nbytes} belong there")
    return inflated


def _unshuffled(data: bytes, element_bytes: int) -> bytes:
    """The first bytes of all elements come first, then all second ones; what is no whole element is last."""
    count = len(data) // element_bytes
    whole = np.frombuffer(data, np.uint8, count * element_bytes).reshape(element_bytes, count)
    return whole.T.tobytes() + data[count * element_bytes :]
