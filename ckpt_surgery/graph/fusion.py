"""Evaluation of elementwise functions together, in tiles that stay in the processor's cache.

Arithmetic on large blocks is limited by memory: each step of `0.5 * a + 0.5 * b` in bfloat16 (widen,
multiply, add, round) writes a block of its own. With tiles, only inputs and results pass through memory.
The table shows milliseconds of processor time for inputs of 64 MiB in total (32 MiB for a single one) on
two cores of an AMD EPYC with AVX-512. XLA runs on the CPU, with one copy into aligned memory:

| | whole blocks | tiles | XLA |
|---|---|---|---|
| `0.5 * a + 0.5 * b`, bfloat16 | 83 | 63 | 35 |
| `mean(xs)` of 4, bfloat16 | 36 | 21 | 10 |
| `x * 2`, bfloat16 | 35 | 29 | 24 |
| `a.T + b`, bfloat16 | 178 | 73 | 131 |
| `0.5 * a + 0.5 * b`, float32 | 20 | 26 | 33 |
| `x * 2`, float32 | 6 | | 9 |
| `cast(x, 'bfloat16')`, float32 | 7 | | 9 |
| `cast(x.T, 'bfloat16')`, float32 | 54 | 21 (copied by `to_c_order`) | 14 |

So blocks of one width, and a single function of one array, are evaluated whole. XLA is faster for narrow
floats, but is not used: it flushes subnormal numbers to zero (`x * 1` of 1e-40 is 0); its `exp` of an element
depends on the region around it, so that results would depend on the chunking; and loading it takes 190 MiB
and 0.7 s, as much as it saves on 1.6 GB of input.

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
"""Number of elements below which a block is not divided into tiles."""


@dataclass(frozen=True)
class Fused:
    """A tree of elementwise functions, for one region."""

    node: Apply
    """Root of the tree: the function that is applied last."""
    region: Region
    """Region of the root's result."""
    parts: tuple[tuple[Node, Region], ...]
    """Inputs of the tree, each once, with the regions to evaluate: other functions, and leaves."""

    def apply(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        """The region's elements in C order, from the blocks of `parts`. Raises DataError."""
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
    """One tile of a node. `placed` has the region and the block of each part, by `id`."""
    if id(node) in placed:
        part, block = placed[id(node)]
        cut: tuple[EllipsisType | slice, ...] = (..., *region.within(part))  # an array even of no axes
        return gathered(block[cut])
    assert isinstance(node, Apply)
    specs = [n.spec for n in node.inputs]
    pieces = [_piece(node.inputs[i], part, placed) for i, part in node.function.needs(region, specs)]
    return node.function.apply(region, specs, pieces)


def fused(node: Node, region: Region) -> Fused | None:
    """The functions that are evaluated together for a region, or None to evaluate it whole.

    Tiles gain nothing for a small region, a single function of one array, or leaves and results of one width.
    They are also not used where they need more memory than `working_set`. The decision depends on the plan
    alone, not on the data.
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
    """The elementwise functions of the tree from its root, and the nodes that they are computed from."""
    yield node
    if isinstance(node, Apply) and node.function.elementwise:
        for child in node.inputs:
            yield from _walk(child)


def _held(parts: Sequence[tuple[Node, Region]], more: int) -> int:
    """Upper bound of the bytes in memory: while one part is evaluated, or for all parts and `more`."""
    held = peak = 0
    for node, part in parts:
        peak = max(peak, held + working_set(node, part))
        held += part.size * node.spec.dtype.itemsize
    return max(peak, held + more)
