"""Elementwise functions of an expression are evaluated together, in tiles that stay in the processor's cache.

Arithmetic on large blocks waits for memory: of `0.5 * a + 0.5 * b` in bfloat16 every step (widened,
multiplied, added, rounded) writes a block of its own. In tiles only the inputs and the result pass through
memory. Milliseconds of processor time for inputs of 64 MiB together (32 MiB where there is one), two cores of
an AMD EPYC with AVX-512; XLA on the CPU with its copy into aligned memory, handed over without another:

| | whole blocks | tiles | XLA |
|---|---|---|---|
| `0.5 * a + 0.5 * b`, bfloat16 | 83 | 63 | 35 |
| `mean(xs)` of 4, bfloat16 | 36 | 21 | 10 |
| `x * 2`, bfloat16 | 35 | 29 | 24 |
| `a.T + b`, bfloat16 | 178 | 73 | 131 |
| `0.5 * a + 0.5 * b`, float32 | 20 | 26 | 33 |
| `x * 2`, float32 | 6 | | 9 |
| `cast(x, 'bfloat16')`, float32 | 7 | | 9 |
| `cast(x.T, 'bfloat16')`, float32 | 54 | 21 (turned by `to_c_order`) | 14 |

So blocks of one width, and one function of one array, are left whole. XLA is the faster for narrow
floats, and still is not used: it flushes subnormal numbers to zero (`x * 1` of 1e-40 is 0), its `exp` of an
element depends on the region that it is in, so results would not be the same for any chunking; and loading
it takes 190 MiB, and 0.7 s, which is what it saves on 1.6 GB of input.

Every function gives the same elements for any region, bit for bit, so tiles change no value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.tiles import ROWS, copy_into, gathered, tile_shape
from ckpt_surgery.functions.elementwise import broadcast_needs
from ckpt_surgery.graph.costs import working_set
from ckpt_surgery.graph.nodes import Apply, Node, Read

SMALLEST = 2 * ROWS
"""Elements below which a block is its own tile."""


@dataclass(frozen=True)
class Fused:
    """Elementwise functions of one another, for one region."""

    node: Apply
    """The last of them."""
    region: Region
    parts: tuple[tuple[Node, Region], ...]
    """What has to be evaluated before: other functions and leaves, each once, and where."""

    def apply(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        """The region's elements, in C order, from the blocks of `parts`. Raises DataError as functions do."""
        result: np.ndarray = np.empty(self.region.shape, self.node.spec.dtype)
        placed = {id(node): (part, block) for (node, part), block in zip(self.parts, blocks, strict=True)}
        for tile in chunk_regions(result.shape, tile_shape(result.shape, [result, *blocks])):
            copy_into(result[tile.slices], _piece(self.node, _moved(tile, self.region.starts), placed))
        return result


def _moved(tile: Region, by: Shape) -> Region:
    starts, stops = (
        tuple(i + n for i, n in zip(bounds, by, strict=True)) for bounds in (tile.starts, tile.stops)
    )
    return Region(starts, stops)


def _piece(node: Node, region: Region, placed: Mapping[int, tuple[Region, np.ndarray]]) -> np.ndarray:
    """One tile of a node; `placed` has the blocks of the parts, and which regions they are, by `id`."""
    if id(node) in placed:
        part, block = placed[id(node)]
        cut: tuple[EllipsisType | slice, ...] = (..., *region.within(part))  # an array even of no axes
        return gathered(block[cut])
    assert isinstance(node, Apply)
    specs = [n.spec for n in node.inputs]
    pieces = [_piece(node.inputs[i], part, placed) for i, part in node.function.needs(region, specs)]
    return node.function.apply(region, specs, pieces)


def fused(node: Node, region: Region) -> Fused | None:
    """How to evaluate the region in tiles.

    None where nothing is won: a small region, one function of one array, leaves and results of one width;
    and where it takes more memory than `working_set` says. What decides is known from the plan alone.
    """
    if region.size < SMALLEST or not (isinstance(node, Apply) and node.function.elementwise):
        return None
    functions = [n for n in _walk(node) if _is_elementwise(n)]
    if len(functions) == 1 and len(node.inputs) == 1:
        return None
    inputs = {id(n): n for n in _walk(node) if not _is_elementwise(n)}.values()
    parts = tuple((n, broadcast_needs(region, n.spec.shape)) for n in inputs)
    widths = {n.spec.dtype.itemsize for n in (*functions, *inputs)}
    if len(widths) == 1 and all(isinstance(n, Read) for n in inputs):
        return None
    tiles = (len(functions) + len(parts) + 2) * ROWS * max(4, *widths)
    if _held(parts, region.size * node.spec.dtype.itemsize + tiles) > working_set(node, region):
        return None
    return Fused(node, region, parts)


def _is_elementwise(node: Node) -> bool:
    return isinstance(node, Apply) and node.function.elementwise


def _walk(node: Node) -> Iterator[Node]:
    """Elementwise functions from the last one back, up to and with what they are computed from."""
    yield node
    if isinstance(node, Apply) and node.function.elementwise:
        for child in node.inputs:
            yield from _walk(child)


def _held(parts: Sequence[tuple[Node, Region]], more: int) -> int:
    """Bytes held at most: while one of the parts is evaluated, or by all of them and `more`."""
    held = peak = 0
    for node, part in parts:
        peak = max(peak, held + working_set(node, part))
        held += part.size * node.spec.dtype.itemsize
    return max(peak, held + more)
