"""The parts that a region of a value is evaluated from: regions of nodes, each of them computed once.

A node that several others need is one part where they need the same region of it. So the number of parts
grows with the number of nodes, not with that of paths through the graph.
"""

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TypeGuard, TypeVar

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.functions.arrays import Apply, Node, below_first

MOST_REGIONS = 64
"""Limit on the regions of one function's result that are computed apart. Where more are needed, such as by
`x[1:] + x[:-1]` in each of many passes, the smallest region that contains them all is computed."""

Place = tuple[Node, Region]
"""The node of a part, and its region."""
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
    if not _is_computed(node):
        return [Part(node, region, ())]
    taken = _taken(node, region)
    root: Place = (node, region)
    order = below_first([root], lambda place: [below for below, _ in taken.get(place, ())])
    numbers = {place: number for number, place in enumerate(order)}
    return [
        Part(*place, tuple([(numbers[below], wanted) for below, wanted in taken.get(place, ())]))
        for place in numbers
    ]


def _is_computed(node: Node) -> TypeGuard[Apply]:
    """Whether regions of a node are computed from those of its inputs."""
    return isinstance(node, Apply) and not node.streamed


def _taken(root: Apply, region: Region) -> dict[Place, list[tuple[Place, Region]]]:
    """What each part that is computed takes: other parts, and the region that it takes of each.

    The highest functions come first: everything that needs one of them is higher, and so is known by then.
    Nodes that the region does not need are not visited, such as all but a few of the arrays of a stack.
    """
    needs: dict[Place, list[Place]] = {}
    whole: dict[Node, Region] = {}
    """The one region of each node of which too many are wanted."""
    wanted: dict[Node, dict[Region, None]] = {root: {region: None}}
    waiting: list[tuple[int, int, Apply]] = [(-root.height, id(root), root)]
    while waiting:
        node = heappop(waiting)[2]
        regions: Iterable[Region] = wanted[node]
        if len(wanted[node]) > MOST_REGIONS:
            whole[node] = Region.around(list(regions))
            regions = [whole[node]]
        specs = [child.spec for child in node.inputs]
        for one in regions:
            needs[node, one] = [
                (node.inputs[number], part) for number, part in node.function.needs(one, specs)
            ]
            for child, part in needs[node, one]:
                if child not in wanted:
                    wanted[child] = {}
                    if _is_computed(child):
                        heappush(waiting, (-child.height, id(child), child))
                wanted[child][part] = None
    return {
        place: [((child, whole.get(child, part)), part) for child, part in below]
        for place, below in needs.items()
    }


T = TypeVar("T", bound=Hashable)


def last_uses(inputs: Sequence[Iterable[T]]) -> list[list[T]]:
    """For each step of an evaluation, the results that no later one needs. `inputs`: what each takes."""
    ends: list[list[T]] = [[] for _ in inputs]
    seen: set[T] = set()
    for step in reversed(range(len(inputs))):
        for used in inputs[step]:
            if used not in seen:
                seen.add(used)
                ends[step].append(used)
    return ends
