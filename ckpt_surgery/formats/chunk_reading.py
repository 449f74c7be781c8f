"""Regions of stored arrays: the bytes of chunks that they take, and how these become elements.

Chunks of plain bytes are read in ranges. For every other encoding, a format brings a decoder.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import BIG, RAW, Chunk, Codec, Manifest, parts_of_chunks
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import NONE_LISTED, OpenFile, opened, read_ranges, read_region

Fetch = Callable[[Sequence[Chunk]], Iterator[bytes]]
"""Reads the bytes of ranges of files, which need not be whole chunks, one after another; those in an object
store together."""
Check = Callable[[Chunk, np.ndarray], None]
"""Compares all bytes of a chunk, uint8[length], with a checksum. Raises SourceError where they differ."""
Decoder = Callable[[Manifest, Region, Fetch], np.ndarray]
"""Reads a region, which is not empty, of an array whose chunks are encoded in a way of the format's own.
Elements of missing chunks are `manifest.fill`. Raises SourceError."""

PARALLEL_BYTES = 8 << 20
"""Regions from this size on are decoded in several threads."""
AT_A_TIME = 8
"""Largest number of chunks that are decoded at a time for one region."""
NO_CHECKS: Mapping[Chunk, Check] = MappingProxyType({})


def read_stored(
    manifest: Manifest,
    region: Region,
    files: Mapping[str, FileStat] = NONE_LISTED,
    decode: Decoder | None = None,
    checks: Mapping[Chunk, Check] = NO_CHECKS,
) -> np.ndarray:
    """The elements of a region of a stored array. Of chunks of plain bytes, only what is needed is read.

    `files`: size and time of files when they were listed, by path. `decode`: reads chunks of other encodings.
    `checks`: what is compared where all bytes of a plain chunk were read.
    """
    if not region.size:
        return np.empty(region.shape, manifest.spec.dtype)
    if decode is not None and manifest.codec.encoding not in (RAW, BIG):
        return decode(manifest, region, partial(read_ranges, expected=files))
    held = _fetched_together(manifest, region, files)
    spec = ArraySpec(manifest.chunk_shape, manifest.spec.dtype)

    def read(index: Shape, inner: Region, _: bytes) -> np.ndarray:
        chunk = manifest.chunks[index]
        if chunk.inline is not None:
            return elements_in(chunk.inline[chunk.offset :], spec, manifest.codec, inner)
        check = partial(checks[chunk], chunk) if chunk in checks else None
        if index in held:
            return elements_in(held[index], spec, manifest.codec, inner, check)
        with opened(chunk.file, files.get(chunk.file)) as file:
            return read_elements(file, chunk.offset, spec, manifest.codec, inner, check)

    return assembled(manifest, region, read)


def assembled(
    manifest: Manifest,
    region: Region,
    read: Callable[[Shape, Region, bytes], np.ndarray],
    fetch: Fetch | None = None,
    at_a_time: int = 1,
) -> np.ndarray:
    """A region, which is not empty, put together from its parts in the chunks that it touches.

    `read`: (index of a chunk that is there, region counted from the chunk's beginning, the chunk's bytes) →
    elements. The bytes are those that `fetch` gives; without it they are empty. It is called in C order, for
    `at_a_time` chunks at the same time if the region is large. Missing chunks are filled.
    """
    parts = list(parts_of_chunks(manifest, region))
    stored = [manifest.chunks[index] for index, _ in parts if index in manifest.chunks]
    fetched = repeat(b"") if fetch is None else fetch(stored)

    def part_of(index: Shape, part: Region) -> Callable[[], np.ndarray]:
        if index not in manifest.chunks:
            return partial(filled, manifest, index, part.shape)
        origin = tuple(i * length for i, length in zip(index, manifest.chunk_shape, strict=True))
        return partial(read, index, part.relative_to(origin), next(fetched))

    if len(parts) == 1:
        return np.ascontiguousarray(part_of(*parts[0])()).reshape(region.shape)
    block = np.empty(region.shape, manifest.spec.dtype)

    def place(part: Region, made: Callable[[], np.ndarray]) -> None:
        block[part.within(region)] = made()

    if at_a_time == 1 or block.nbytes < PARALLEL_BYTES:
        for index, part in parts:
            place(part, part_of(index, part))
        return block
    with ThreadPoolExecutor(at_a_time, thread_name_prefix="decode") as pool:
        begun = [pool.submit(place, part, part_of(index, part)) for index, part in parts]
        for placed in begun:
            placed.result()
    return block


def filled(manifest: Manifest, index: Shape, shape: Shape) -> np.ndarray:
    """Elements of a missing chunk. Raises SourceError where the array has no fill value."""
    if manifest.fill is None:
        raise damaged(f"its chunk {index} is missing")
    return np.broadcast_to(np.frombuffer(manifest.fill, manifest.spec.dtype)[0], shape)


def _fetched_together(
    manifest: Manifest, region: Region, files: Mapping[str, FileStat]
) -> Mapping[Shape, bytes]:
    """A region's chunks by index, if several of an object store are wanted almost whole; else nothing."""
    first = next(iter(manifest.chunks.values()), None)
    if first is None or not urls.is_url(first.file):
        return {}
    indices = [index for index, _ in parts_of_chunks(manifest, region) if index in manifest.chunks]
    chunks = [manifest.chunks[index] for index in indices]
    wanted = region.size * manifest.spec.dtype.itemsize
    if len(chunks) < 2 or sum(chunk.length for chunk in chunks) > 2 * wanted:
        return {}
    return dict(zip(indices, read_ranges(chunks, files), strict=True))


def read_elements(
    file: OpenFile,
    offset: int,
    spec: ArraySpec,
    codec: Codec,
    region: Region,
    check: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """A region of an array that begins at `offset` as plain bytes, in any order of axes and of bytes.

    Reads forwards only. `check` is given the stored bytes where the region is the whole array.
    """
    laid, box = _as_stored(spec, codec, region)
    stored = read_region(file, offset, laid, box)
    return _in_memory(stored, box == Region.whole(laid.shape), spec.dtype, codec, check)


def elements_in(
    data: bytes | memoryview,
    spec: ArraySpec,
    codec: Codec,
    region: Region,
    check: Callable[[np.ndarray], None] | None = None,
) -> np.ndarray:
    """The same of an array that is plain bytes in memory, which the result may share."""
    laid, box = _as_stored(spec, codec, region)
    if len(data) < laid.nbytes:
        raise damaged(f"a chunk has {len(data)} bytes, where {laid.nbytes} belong")
    stored: np.ndarray = np.frombuffer(data, laid.dtype, laid.size).reshape(laid.shape)
    return _in_memory(stored[box.slices], box == Region.whole(laid.shape), spec.dtype, codec, check)


def _as_stored(spec: ArraySpec, codec: Codec, region: Region) -> tuple[ArraySpec, Region]:
    """An array and a region of it with the axes in the order in which they are stored."""
    order = codec.permutation
    shape = tuple(spec.shape[axis] for axis in order)
    starts, stops = tuple(region.starts[axis] for axis in order), tuple(region.stops[axis] for axis in order)
    return ArraySpec(shape, stored_dtype(spec.dtype)), Region(starts, stops)


def _in_memory(
    stored: np.ndarray,
    whole: bool,
    dtype: np.dtype[Any],
    codec: Codec,
    check: Callable[[np.ndarray], None] | None,
) -> np.ndarray:
    """Elements in this machine's byte order and with their axes in order, checked if they are the whole."""
    if check is not None and whole:
        check(stored.reshape(-1).view(np.uint8))
    if codec.big and dtype.kind == "c":
        stored = stored.view(stored.dtype.newbyteorder()).astype(stored.dtype)
    elif codec.big:  # types of ml_dtypes cannot express another byte order, so their bits are swapped
        stored = stored.view(f"u{stored.dtype.itemsize}").byteswap().view(stored.dtype)
    return checked(stored, dtype).transpose(np.argsort(codec.permutation))


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype to read elements with: bytes for booleans, since not every byte is a boolean."""
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def checked(block: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Elements read with `stored_dtype`, as `dtype`. Raises SourceError for bytes that are not booleans."""
    if dtype == np.bool_ and block.size and block.max() > 1:
        raise damaged(f"one of its booleans has the byte {block.max()}")
    return block.view(dtype)
