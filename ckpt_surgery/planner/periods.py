"""How often along each axis an output reads other chunks of its sources."""

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.functions.arrays import Apply, Node


def grid_of(node: Node) -> Shape:
    """For each axis of the output, the period after which it reads other chunks of its sources.

    It is found by looking at what one step along the axis changes. Where the step moves what is needed along
    one axis of an input, one for one, forwards or backwards, the period is that of the input's axis. Where it
    leads to another input, the period is 1. Any other function, such as a reshape, has one period over the
    whole axis.
    """
    return tuple(_period(node, axis) for axis in range(node.spec.ndim))


def _period(node: Node, axis: int) -> int:
    """The period along one axis, no longer than any of the axes that lead to it."""
    period = node.spec.shape[axis]
    while isinstance(node, Apply):
        lead = _lead(node, axis)
        if isinstance(lead, int):
            return max(1, min(period, lead))
        node, axis = lead
        period = min(period, node.spec.shape[axis])
    manifest = node.leaf.manifest
    if manifest is None or manifest.supports_partial_reads:
        return 1
    return max(1, min(period, manifest.chunk_shape[axis]))


def _lead(node: Apply, axis: int) -> int | tuple[Node, int]:
    """The period along an axis; or the input and its axis that have the same one."""
    length = node.spec.shape[axis]
    if length < 2:
        return 1
    if node.spec.size == 0:
        return length
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
