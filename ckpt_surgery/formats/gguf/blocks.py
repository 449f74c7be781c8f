"""The types of tensors in GGUF files, plain numbers and quantized blocks; chunks of blocks, and reading them.

The package `gguf` decodes blocks to float32; it is imported only then, as it is an optional dependency. Types
are those of the enumeration `ggml_type` and the structures `block_…` of ggml, as gguf 0.19 lists them.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, grid_counts
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.leaves import Unreadable
from ckpt_surgery.core.libraries import how_to_install, report_missing
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.formats.chunk_reading import Fetch, assembled

LIBRARY = "gguf"
CHUNK = 2**21
"""Elements of a chunk at most: arrays are planned and read in pieces of 8 MiB."""
PIECE = 2**16
"""Elements that are decoded at once, which bounds the memory that decoding takes besides its result."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Storage of the elements of a tensor."""

    name: str
    """Its name in ggml: `F16`, `Q4_K`."""
    dtype: np.dtype[Any]
    """Dtype of the decoded elements; float32 for all quantized types."""
    length: int = 1
    """Number of elements in a block, which are neighbours along the last axis."""
    nbytes: int = 0
    """Number of bytes of a block."""

    @property
    def quantized(self) -> bool:
        """Whether the elements are stored in blocks, from which float32 is computed."""
        return self.length > 1


_PLAIN = {
    0: ("F32", "float32"),
    1: ("F16", "float16"),
    24: ("I8", "int8"),
    25: ("I16", "int16"),
    26: ("I32", "int32"),
    27: ("I64", "int64"),
    28: ("F64", "float64"),
    30: ("BF16", "bfloat16"),
}

_QUANTIZED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

TYPES: Mapping[int, TensorType] = {
    **{n: TensorType(name, DTYPES[of], 1, DTYPES[of].itemsize) for n, (name, of) in _PLAIN.items()},
    **{number: TensorType(name, DTYPES["float32"], *block) for number, (name, *block) in _QUANTIZED.items()},
}
"""Every type by its number in files. The numbers that are missing were never in use, or are not any more."""
BLOCKS: Mapping[str, TensorType] = {type.name: type for type in TYPES.values() if type.quantized}
"""The quantized types by name."""
UNDECODED = frozenset({"Q8_1", "Q8_K", "Q1_0"})
"""Quantized types that gguf 0.19 has no decoder for."""


def grid_of(shape: Shape, length: int) -> Shape:
    """The shape of chunks of whole blocks of `length`, contiguous in the file, of CHUNK elements at most."""
    grid, room = [1] * len(shape), CHUNK
    for axis in reversed(range(len(shape))):
        unit = length if axis == len(shape) - 1 else 1
        whole = max(1, shape[axis])
        grid[axis] = whole if whole <= room else max(unit, room // unit * unit)
        if grid[axis] < whole:
            break
        room //= whole
    return tuple(grid)


@dataclass(frozen=True, eq=False)
class BlockChunks(Mapping[Shape, Chunk]):
    """The chunks of an array by their indices, each made when it is asked for: there can be very many.

    None is missing, and only indices of the grid are asked for.
    """

    file: str
    offset: int
    """Offset of the array's first byte."""
    shape: Shape
    """Shape of the array."""
    grid: Shape
    """Shape of the chunks, by `grid_of`."""
    type: TensorType
    """Type of the blocks."""

    def __len__(self) -> int:
        return prod(grid_counts(self.shape, self.grid))

    def __iter__(self) -> Iterator[Shape]:
        return itertools.product(*map(range, grid_counts(self.shape, self.grid)))

    def __getitem__(self, index: Shape) -> Chunk:
        begin, size = 0, 1
        for i, chunk, whole in zip(index, self.grid, self.shape, strict=True):
            begin = begin * whole + i * chunk
            size *= min(chunk, whole - i * chunk)
        length, nbytes = self.type.length, self.type.nbytes
        return Chunk(self.file, self.offset + begin // length * nbytes, size // length * nbytes)


def unreadable(name: str) -> Unreadable | None:
    """Reason why arrays of a block type cannot be read here; None if they can."""
    if name in UNDECODED:
        hint = "Take the model that it was made from, or a file in another type, such as Q8_0."
        return Unreadable(f"is stored as {name}, which cannot be read", hint)
    if find_spec(LIBRARY) is None:
        return Unreadable(f"is stored as {name}, which needs the package {LIBRARY}", how_to_install(LIBRARY))
    return None


def read_blocks(manifest: Manifest, region: Region, fetch: Fetch) -> np.ndarray:
    """A region, not empty, of an array of blocks, float32[…]. Decodes only blocks with elements of it.

    Memory: the region, and one chunk, stored and decoded; all stored ones if they are in an object store.
    """
    name = manifest.codec.name
    type = BLOCKS[name]
    grid = [*manifest.chunk_shape[:-1], manifest.chunk_shape[-1] // type.length]
    outermost = next((axis for axis, n in enumerate(grid) if n > 1), -1)
    grid[outermost] = -1  # chunks at the edge are shorter along it

    def read(index: Shape, inner: Region, data: bytes) -> np.ndarray:
        stored = np.frombuffer(data, np.uint8).reshape(*grid, type.nbytes)
        first, last = inner.starts[-1] // type.length, -(-inner.stops[-1] // type.length)
        elements = dequantized(name, stored[(*inner.slices[:-1], slice(first, last))])
        begin = inner.starts[-1] - first * type.length
        return elements.reshape(*inner.shape[:-1], -1)[..., begin : begin + inner.shape[-1]]

    return assembled(manifest, region, read, fetch)


def dequantized(name: str, blocks: np.ndarray) -> np.ndarray:
    """The elements of blocks, uint8[…, bytes of a block], as float32[blocks, elements of a block].

    Scales that are NaN or infinite give what multiplication gives. Raises MissingLibraryError.
    """
    with report_missing(LIBRARY, f"{name} needs the package {LIBRARY}"):
        from gguf import quants
    type, decoder = BLOCKS[name], getattr(quants, name)
    decoder.init_grid()  # tables of some types, once
    flat = blocks.reshape(-1, type.nbytes)
    elements = np.empty((len(flat), type.length), np.float32)
    step = PIECE // type.length
    with np.errstate(all="ignore"):
        for at in range(0, len(flat), step):
            # Not by `quants.dequantize`, which copies everything twice more.
            elements[at : at + step] = decoder.dequantize_blocks(flat[at : at + step])
    return elements
