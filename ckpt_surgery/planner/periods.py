"""How often along each axis an output reads other chunks of its sources."""

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.functions.arrays import Apply, Node, Read


def grid_of(node: Node) -> Shape:
    """For each axis of the output, the period after which it reads other chunks of its sources.

    It is found by looking at what one step along the axis changes. Where the step moves what is needed along
    one axis of an input, one for one, forwards or backwards, the period is that of the input's axis. Where it
    leads to another input, the period is 1. Any other function, such as a reshape, has one period over the
    whole axis.
    """
    known: dict[int, Shape] = {}
    leads: dict[int, list[Lead]] = {}
    stack = [node]
    while stack:
        one = stack[-1]
        if isinstance(one, Read):
            known[id(one)] = _stored_grid(one)
        elif id(one) not in known:
            found = leads.get(id(one)) or leads.setdefault(id(one), _leads(one))
            below = [lead[0] for lead in found if not isinstance(lead, int)]
            waiting = [child for child in below if id(child) not in known]
            if waiting:
                stack += waiting
                continue
            known[id(one)] = tuple(
                lead if isinstance(lead, int) else min(known[id(lead[0])][lead[1]], max(1, length))
                for lead, length in zip(found, one.spec.shape, strict=True)
            )
        stack.pop()
    return known[id(node)]


def _stored_grid(node: Read) -> Shape:
    """The periods of a leaf: those of its chunks."""
    shape = tuple(max(1, n) for n in node.spec.shape)
    manifest = node.leaf.manifest
    if manifest is None or manifest.supports_partial_reads:
        return (1,) * node.spec.ndim
    return tuple(min(max(1, c), n) for c, n in zip(manifest.chunk_shape, shape, strict=True))


Lead = int | tuple[Node, int]
"""The period along an axis; or the input and its axis that have the same one."""


def _leads(node: Apply) -> list[Lead]:
    """Where the period along each axis comes from."""
    if node.spec.size == 0:
        return [max(1, length) for length in node.spec.shape]
    return [_lead(node, axis) for axis in range(node.spec.ndim)]


def _lead(node: Apply, axis: int) -> Lead:
    length = node.spec.shape[axis]
    if length < 2:
        return 1
    here, there = (_steps(node, axis, at) for at in (0, 1))
    if not here or not there or here[0][0] != there[0][0]:
        return 1 if here and there else length
    for (index, start), (other, stop) in zip(here, there, strict=False):
        moved = [a for a, (p, q) in enumerate(zip(start, stop, strict=False)) if q != p]
        if index == other and not moved:
            continue  # an input that is the same for all, such as a norm
        if index != other or len(moved) != 1 or abs(stop[moved[0]] - start[moved[0]]) != 1:
            return length
        return node.inputs[index], moved[0]
    return length


def _steps(node: Apply, axis: int, at: int) -> list[tuple[int, Shape]]:
    """What the element with the index `at` on one axis and 0 on all others needs of each input."""
    starts = tuple(at if a == axis else 0 for a in range(node.spec.ndim))
    region = Region(starts, tuple(n + 1 for n in starts))
    return [(i, part.starts) for i, part in node.function.needs(region, [n.spec for n in node.inputs])]
