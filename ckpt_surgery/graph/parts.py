"""The parts that a region of a value is evaluated from: regions of nodes, each of them computed once.

A node that several others need is one part where they need the same region of it. So the number of parts
grows with the number of nodes, not with that of paths through the graph.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.functions.arrays import Apply, Node

MOST_REGIONS = 64
"""Limit on the regions of one function's result that are computed apart. Where more are needed, such as by
`x[1:] + x[:-1]` in each of many passes, the smallest region that contains them all is computed."""

Wanted = tuple[int, Region]
"""What a part takes of another: its number, and the region of its node, which the other part contains."""


@frozen(eq=False)
class Part:
    """A region of a node that is evaluated at once."""

    node: Node
    region: Region
    inputs: tuple[Wanted, ...]
    """What a function takes, in the order of `Function.needs`; nothing if it is computed in a stream."""

    @property
    def nbytes(self) -> int:
        return self.region.size * self.node.spec.dtype.itemsize


def parts_of(node: Node, region: Region) -> list[Part]:
    """All parts that a region is evaluated from, each after its inputs; the last is the region itself.

    The order is that of a walk depth first, so that few results are waiting to be used at any time.
    """
    if not isinstance(node, Apply) or node.streamed:
        return [Part(node, region, ())]
    needs = _needs(node, region)
    return _ordered(node, region, needs)


@dataclass(frozen=True, eq=False)
class _Needs:
    """The regions of one node, and what they need of its inputs."""

    regions: list[Region]
    of_inputs: list[list[Wanted]]
    """For each region what it needs, by the number of the function's input."""

    def containing(self, region: Region) -> int:
        """The number of the region that a wanted one is part of: itself, or the one for all."""
        return 0 if len(self.regions) == 1 else self.regions.index(region)


def _needs(root: Apply, region: Region) -> dict[int, _Needs]:
    """The regions of every function that are needed, by its identity.

    The highest functions come first: everything that needs one of them is higher, and so is known by then.
    """
    found: dict[int, _Needs] = {}
    wanted: dict[int, dict[Region, None]] = {id(root): {region: None}}
    waiting: list[tuple[int, int, Apply]] = [(-root.height, id(root), root)]
    while waiting:
        node = heappop(waiting)[2]
        regions = list(wanted[id(node)])
        if len(regions) > MOST_REGIONS:
            regions = [Region.around(regions)]
        specs = [child.spec for child in node.inputs]
        of_inputs = [node.function.needs(one, specs) for one in regions]
        found[id(node)] = _Needs(regions, of_inputs)
        for needs in of_inputs:
            for number, part in needs:
                child = node.inputs[number]
                if isinstance(child, Apply) and not child.streamed:
                    if id(child) not in wanted:
                        wanted[id(child)] = {}
                        heappush(waiting, (-child.height, id(child), child))
                    wanted[id(child)][part] = None
    return found


def _ordered(root: Apply, region: Region, needs: dict[int, _Needs]) -> list[Part]:
    """The parts in the order of evaluation."""
    parts: list[Part] = []
    numbers: dict[tuple[int, Region], int] = {}
    """The numbers of the parts that have theirs, by node and region."""
    stack: list[tuple[Node, Region]] = [(root, region)]
    while stack:
        node, wanted = stack[-1]
        if (id(node), wanted) in numbers:
            stack.pop()
            continue
        if not isinstance(node, Apply) or node.streamed:
            stack.pop()
            numbers[id(node), wanted] = len(parts)
            parts.append(Part(node, wanted, ()))
            continue
        of_node = needs[id(node)]
        found = of_node.of_inputs[of_node.containing(wanted)]
        below = [_whole_part(node.inputs[number], part, needs) for number, part in found]
        waiting = [one for one in below if (id(one[0]), one[1]) not in numbers]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        inputs = [(numbers[id(one[0]), one[1]], part) for one, (_, part) in zip(below, found, strict=True)]
        numbers[id(node), wanted] = len(parts)
        parts.append(Part(node, wanted, tuple(inputs)))
    return parts


def _whole_part(node: Node, region: Region, needs: dict[int, _Needs]) -> tuple[Node, Region]:
    """The part that contains a wanted region of a node."""
    if not isinstance(node, Apply) or node.streamed:
        return node, region
    of_node = needs[id(node)]
    return node, of_node.regions[of_node.containing(region)]


def last_uses(inputs: Sequence[Iterable[int]]) -> list[list[int]]:
    """For each step of an evaluation, the results that no later one needs. `inputs`: what each takes."""
    ends: list[list[int]] = [[] for _ in inputs]
    seen: set[int] = set()
    for step in reversed(range(len(inputs))):
        for number in inputs[step]:
            if number not in seen:
                seen.add(number)
                ends[step].append(number)
    return ends
