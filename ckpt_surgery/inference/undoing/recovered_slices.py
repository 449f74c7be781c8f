"""Join slices of a source leaf until they cover it."""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.inference.expressions.holders import concatenated, cut, joined, rows
from ckpt_surgery.inference.undoing.undoing import as_dtype
from ckpt_surgery.inference.undoing.undoing_choices import Held


def merged(shape: Shape, dtype: DType, helds: Sequence[Held]) -> list[Held]:
    """Regions of an array put together where they meet: one that is whole, if there is one.

    Of several that hold the same, the one of the first output is taken. `dtype`: that of the array.
    """
    found = sorted(helds, key=lambda held: held.first)
    whole = Region.whole(shape)
    while True:
        for held in found:
            if held.region == whole:
                return [held]
        before = len(found)
        for axis in reversed(range(len(shape))):
            found = [one for group in _groups(found, axis) for one in _chained(group, axis, dtype)]
        if len(found) == before:
            return found


def _groups(helds: Sequence[Held], axis: int) -> Iterator[list[Held]]:
    """Those that are alike along all other axes."""
    groups: dict[object, list[Held]] = {}
    for held in helds:
        starts, stops = held.region.starts, held.region.stops
        rest = starts[:axis], starts[axis + 1 :], stops[:axis], stops[axis + 1 :]
        groups.setdefault(rest, []).append(held)
    return iter(groups.values())


def _chained(group: Sequence[Held], axis: int, dtype: DType) -> Iterator[Held]:
    """Those that follow each other along an axis as one; what two of them hold is taken from one."""
    if len(group) == 1:
        yield group[0]
        return
    chain: list[Held] = []
    for held in sorted(group, key=lambda held: (held.region.starts[axis], held.first)):
        end = chain[-1].region.stops[axis] if chain else None
        if end is not None and held.region.stops[axis] <= end:
            continue
        if end is not None and held.region.starts[axis] > end:
            yield _one(chain, axis, dtype)
            chain = []
        elif end is not None and held.region.starts[axis] < end:
            held = _from(held, axis, end)
        chain.append(held)
    yield _one(chain, axis, dtype)


def _from(held: Held, axis: int, start: int) -> Held:
    """The part of a region from an index on."""
    origin, shape = held.region.starts, held.region.shape
    inner = rows(shape, axis, start - origin[axis], shape[axis])
    return held.of(inner.moved(origin), cut(inner, held.holder))


def _one(chain: Sequence[Held], axis: int, dtype: DType) -> Held:
    """Regions that follow each other along an axis as one."""
    if len(chain) == 1:
        return chain[0]
    join = concatenated
    if len({held.dtype for held in chain}) > 1:
        chain, join = [as_dtype(held, dtype) for held in chain], joined
    first, last = chain[0].region, chain[-1].region
    stops = tuple(last.stops[i] if i == axis else n for i, n in enumerate(first.stops))
    holder = join([held.holder for held in chain], axis)
    return Held(Region(first.starts, stops), holder, chain[0].dtype, min(held.first for held in chain))


def missing(shape: Shape, helds: Sequence[Held]) -> str:
    """What no region holds, as a subscript: `[:, 3:4]`. Nothing where it is no range along one axis."""
    cut_axes = {
        axis
        for held in helds
        for axis, length in enumerate(shape)
        if (held.region.starts[axis], held.region.stops[axis]) != (0, length)
    }
    if len(cut_axes) != 1:
        return ""
    [axis] = cut_axes
    gaps, end = [], 0
    for start, stop in sorted((held.region.starts[axis], held.region.stops[axis]) for held in helds):
        if start > end:
            gaps.append(f"{end}:{start}")
        end = max(end, stop)
    if end < shape[axis]:
        gaps.append(f"{end}:{shape[axis]}")
    return ", ".join(f"[{':, ' * axis}{gap}]" for gap in gaps)
