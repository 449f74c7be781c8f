"""Evaluation of elementwise functions together, in tiles that stay in the processor's cache.

Arithmetic on large blocks is limited by memory: each step of `0.5 * a + 0.5 * b` in bfloat16 (widen,
multiply, add, round) writes a block of its own. With tiles, only inputs and results pass through memory.
For inputs of 64 MiB in bfloat16, on two cores of an AMD EPYC with AVX-512, that is 63 milliseconds of
processor time in place of 83 for `0.5 * a + 0.5 * b`, 21 in place of 36 for `mean(xs)` of four arrays, and 73
in place of 178 for `a.T + b`; but 26 in place of 20 for the first in float32.

So blocks of one width, and a single function of one array, are evaluated whole. XLA is faster for narrow
floats (35 milliseconds for the first), but is not used: it flushes subnormal numbers to zero (`x * 1` of
1e-40 is 0); its `exp` of an element depends on the region around it, so that results would depend on the
chunking; and loading it takes 190 MiB and 0.7 s, as much as it saves on 1.6 GB of input.

Every function gives the same elements for any region, bit for bit, so tiles change no value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.selections import broadcast_needs
from ckpt_surgery.core.tiles import ROWS, contiguous_tile, copy_into, tile_shape
from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.graph.walks import Part, kept_bytes, last_uses, own_bytes, peak

SMALLEST = 2 * ROWS
"""Number of elements below which a block is not divided into tiles."""
MOST_FUSED = 64
"""Limit on the functions that are evaluated together."""


@dataclass(frozen=True)
class Fused:
    """Elementwise functions that are evaluated together, for one region of the last of them."""

    region: Region
    """Region of the last function's result."""
    functions: tuple[Apply, ...]
    """The functions, each after its inputs."""
    members: frozenset[int]
    """The numbers of the parts that are the functions' results."""
    inputs: tuple[int, ...]
    """The numbers of the parts that they are computed from."""
    parts: tuple[Part, ...]
    """Inputs of the part: other functions, and leaves."""

    def apply(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        """The region's elements in C order, from the blocks of `parts`. Raises DataError."""
        result: np.ndarray = np.empty(self.region.shape, self.functions[-1].spec.dtype)
        given = {id(part.node): (part.region, block) for part, block in zip(self.parts, blocks, strict=True)}
        unused = self.unused()
        for tile in chunk_regions(result.shape, tile_shape(result.shape, [result, *blocks])):
            copy_into(result[tile.slices], self._tile(tile.moved(self.region.starts), given, unused))
        return result

    def _tile(
        self, tile: Region, given: Mapping[int, tuple[Region, np.ndarray]], unused: Sequence[Sequence[int]]
    ) -> np.ndarray:
        """One tile of the last function."""
        pieces: dict[int, np.ndarray] = {}
        for node, done in zip(self.functions, unused, strict=True):
            specs = [child.spec for child in node.inputs]
            taken = []
            wanted = broadcast_needs(tile, node.spec.shape)
            for number, region in node.function.needs(wanted, specs):
                child = id(node.inputs[number])
                if child not in pieces:
                    whole, block = given[child]
                    pieces[child] = contiguous_tile(region.taken_from(block, whole))
                taken.append(pieces[child])
            pieces[id(node)] = node.function.apply(wanted, specs, taken)
            del taken
            for child in done:
                del pieces[child]
        return pieces[id(self.functions[-1])]

    def unused(self) -> list[list[int]]:
        """The nodes that no function after each one takes, by their identities."""
        return last_uses([[id(child) for child in node.inputs] for node in self.functions])

    def tile_bytes(self) -> int:
        """Upper bound of the bytes of the pieces of one tile."""
        held = {id(part.node) for part in self.parts}
        most = len(held)
        for node, done in zip(self.functions, self.unused(), strict=True):
            held.add(id(node))
            most = max(most, len(held))
            held -= set(done)
        widths = {node.spec.dtype.itemsize for node in (*self.functions, *(p.node for p in self.parts))}
        return (most + 3) * ROWS * max(4, *widths)


def fused(parts: Sequence[Part]) -> dict[int, Fused]:
    """Parts evaluated together, by the number of the part that is their result.

    Tiles gain nothing for a small region, a single function of one array, or leaves and results of one width.
    Nor are they used where they need more memory than whole blocks. The plan alone decides, not the data.
    """
    if not any(part.region.size >= SMALLEST for part in parts):
        return {}
    users: list[list[int]] = [[] for _ in parts]
    for number, part in enumerate(parts):
        for below, _ in part.inputs:
            users[below].append(number)
    tiles: dict[int, Fused] = {}
    inside: set[int] = set()
    for root in reversed(range(len(parts))):
        if root in inside or not _is_elementwise(parts[root]) or parts[root].region.size < SMALLEST:
            continue
        together = _gathered(root, parts, users)
        # Tiles are not faster for one function of one array, or where all has one width.
        if len(together.functions) == 1 and len(together.functions[0].inputs) == 1:
            continue
        widths = {part.node.spec.dtype.itemsize for part in together.parts}
        widths |= {function.spec.dtype.itemsize for function in together.functions}
        if len(widths) > 1 or not all(isinstance(part.node, Read) for part in together.parts):
            tiles[root] = together
            inside |= together.members
    return tiles if tiles and _peak(parts, tiles) <= _peak(parts, {}) else {}


def _is_elementwise(part: Part) -> bool:
    return isinstance(part.node, Apply) and part.node.function.elementwise


def _gathered(root: int, parts: Sequence[Part], users: Sequence[Sequence[int]]) -> Fused:
    """The functions that can be evaluated with a part, because nothing else needs their results."""
    members = {root}
    inputs: set[int] = set()
    waiting = [-number for number, _ in parts[root].inputs]
    heapify(waiting)
    while waiting:
        number = -heappop(waiting)  # the latest one: all that need it have been looked at
        if number in members or number in inputs:
            continue
        alone = all(user in members for user in users[number])
        if alone and _is_elementwise(parts[number]) and len(members) < MOST_FUSED:
            members.add(number)
            for below, _ in parts[number].inputs:
                heappush(waiting, -below)
        else:
            inputs.add(number)
    functions = tuple(node for n in sorted(members) if isinstance(node := parts[n].node, Apply))
    order = tuple(sorted(inputs))
    return Fused(parts[root].region, functions, frozenset(members), order, tuple(parts[n] for n in order))


def steps_of(parts: Sequence[Part], together: Mapping[int, Fused]) -> list[tuple[int, Sequence[int]]]:
    """The numbers of the parts that are computed, in order, and of those that each is computed from.

    `together`: what is evaluated in tiles, as `fused` gives it.
    """
    inside = {number for tiles in together.values() for number in tiles.members} - together.keys()
    return [
        (number, together[number].inputs if number in together else [below for below, _ in part.inputs])
        for number, part in enumerate(parts)
        if number not in inside
    ]


def _peak(parts: Sequence[Part], together: Mapping[int, Fused]) -> int:
    """Upper bound of the bytes in memory while the parts are evaluated, some of them in tiles."""
    steps = steps_of(parts, together)
    tiles = {number: parts[number].nbytes + fused.tile_bytes() for number, fused in together.items()}
    own = [tiles[n] if n in tiles else own_bytes(parts[n], parts) for n, _ in steps]
    return peak(steps, own, kept_bytes(parts))
