"""Cut an output into chunks and tasks, so that each task stays within the memory budget."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.errors import Code, PlanError
from ckpt_surgery.core.text import bytes_text
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first
from ckpt_surgery.functions.streams import block_shape, seeing_bytes
from ckpt_surgery.graph.walks import (
    READ_SPAN,
    chunk_shape_of,
    decoded_bytes,
    needed,
    streams_of,
    task_bytes,
    working_set,
)

MAX_CHUNK = 32 << 20
"""Bytes of an output chunk at most: small enough to stream, large enough to keep files and indexes few."""
SMALL_CHUNK = 1 << 20
"""Source chunks with fewer bytes are not imitated: many tiny chunks make many requests."""
LARGE_PIECE = 64 << 20
"""Bytes that one thread holds at most of what is computed in a stream, so that all threads get work."""
WRITE_BUFFER = 64 << 20
"""Bytes that a writer may buffer before it flushes them."""
MOST_FOLLOWED = 64
"""Limit on the functions through which the place of a slice is followed; beyond, its start alone counts."""


@dataclass(frozen=True)
class Cut:
    """Chunks and tasks of one output."""

    chunks: Shape
    """Shape of the chunks that it is stored in."""
    block: Shape
    """Shape of what one task computes: whole chunks."""
    working_set: int
    """Upper bound of the bytes that a task holds while it runs."""
    read: int
    """Decoded bytes that all tasks read together, with what is computed in streams before them."""
    pieces: tuple[Shape, ...] = ()
    """For each of `streams_of` the value, the shape of what a thread evaluates of its input at once."""


def signature(value: Node) -> Hashable:
    """Equal for values that are cut alike: what counts are shapes, dtypes, grids and functions, not names.

    A slice counts by its extent and by where it begins within chunks, so that the thousands of slices of a
    stack have one signature. Each node is listed once: what is used twice differs from two of one form.
    """
    if isinstance(value, Read):
        return _form(value)
    places: dict[int, int] = {}
    forms: list[Hashable] = []
    for node in inputs_first([value]):
        for one in (*node.inputs, node):  # functions come before those that they are inputs of
            if id(one) not in places:
                places[id(one)] = len(forms)
                below = one.inputs if isinstance(one, Apply) else ()
                forms.append((_form(one), *[places[id(child)] for child in below]))
    return tuple(forms)


def _form(node: Node) -> Hashable:
    """Properties of a value that decide how it is cut: of chunks read in parts, also the axes' order."""
    if isinstance(node, Read):
        manifest = node.leaf.manifest
        if manifest is None:
            return node.spec, None
        axes = manifest.long_axes if manifest.supports_partial_reads else None
        return node.spec, manifest.chunk_shape, axes
    window = node.function.window([n.spec for n in node.inputs])
    if window is None:
        return node.function
    function, region = window
    bounds = enumerate(zip(region.starts, region.stops, strict=True))
    return function, region.shape, tuple(_place(node.inputs[0], axis, *bound) for axis, bound in bounds)


def _place(node: Node, axis: int, start: int, stop: int) -> Hashable:
    """The part of a range start:stop along an axis that decides what reading some of it costs."""
    for _ in range(MOST_FOLLOWED):
        if (start, stop) == (0, node.spec.shape[axis]):
            return "everywhere"
        if isinstance(node, Read):
            manifest = node.leaf.manifest
            if manifest is None or manifest.supports_partial_reads:
                return "anywhere"
            chunk = chunk_shape_of(manifest)[axis]
            in_whole_chunks = stop <= node.spec.shape[axis] // chunk * chunk  # the last one may be shorter
            return ("in a chunk at", start % chunk) if in_whole_chunks else ("at", start)
        below = node.function.input_axis(axis, [n.spec for n in node.inputs])
        if below is None:
            break
        axis, begin = below
        node, start, stop = node.inputs[0], begin + start, begin + stop
    return "at", start


def room_of(budget: int, staged: bool = False) -> int:
    """Bytes of a budget that are for computing. The rest is for what writers buffer.

    `staged`: whether results are put together in memory, which takes half of the budget.
    """
    return budget // 2 if staged else max(budget - WRITE_BUFFER, budget // 2)


def cut(
    value: Node, budget: int, grid: Callable[[Shape], Shape] = lambda wanted: wanted, staged: bool = False
) -> Cut:
    """Choose chunks and tasks for one output within a budget in bytes.

    `grid` gives the chunk shape of the destination's format that is nearest to a wanted one; `staged`:
    outputs are put together in memory. Raises PlanError where not even the smallest task fits.
    """
    spec = value.spec
    room = room_of(budget, staged)
    periods = source_grid(value)
    # At least a quarter of the room, so that several tasks run at once; never less than the smallest block.
    least = min(room, task_bytes(value, _first_block(spec.shape, periods)))
    block = _shrink([value], spec.shape, periods, max(room // 4, least + (room - least) // 4))
    block = _shrink([value], block, (1,) * spec.ndim, room)
    pieces = tuple(piece_of(node, room, budget) for node in streams_of(value))
    chunks = grid(output_chunks(spec, block, periods, min(MAX_CHUNK, max(1, room // 8))))
    pairs = zip(block, chunks, spec.shape, strict=True)
    block = tuple(max(-(-b // c) if b >= n else b // c, 1) * c for b, c, n in pairs)
    chosen = measured(value, chunks, block, pieces)
    if chosen.working_set > room:
        what = f"one element needs {bytes_text(chosen.working_set)} of memory ({_why_so_much(value)})"
        raise too_little(what, budget, room, budget_for(chosen.working_set, staged))
    return chosen


def too_little(what: str, budget: int, room: int, enough: str, otherwise: str = "") -> PlanError:
    """The error where `what` needs more than the `room` of a budget, for which `enough` would do."""
    message = f"{what}; the budget of {bytes_text(budget)} leaves {bytes_text(room)} for computing"
    return PlanError(message, hint=f'Give it more: `memory="{enough}"`{otherwise}.', code=Code.BUDGET)


def measured(value: Node, chunks: Shape, block: Shape, pieces: Sequence[Shape] = ()) -> Cut:
    """The cut into given chunks and blocks, and pieces of what is computed in streams, with what it costs."""
    worst = task_bytes(value, _first_block(value.spec.shape, block))
    read = _reading(value, value.spec.shape, block)
    for node, piece in zip(streams_of(value), pieces, strict=True):
        [child] = node.inputs
        worst = max(worst, _piece_bytes(node, _first_block(child.spec.shape, piece)))
        read += node.function.passes([child.spec]) * _reading(child, child.spec.shape, piece)
    return Cut(chunks, block, worst, read, tuple(pieces))


def finer(value: Node, known: Cut, share: int) -> Cut:
    """The same output in tasks of at most `share` bytes, or about the smallest that reads whole chunks.

    For destinations that are not stored in chunks. All tasks together read no more than they did.
    """
    if known.working_set <= share:
        return known
    periods = source_grid(value)
    least = task_bytes(value, _first_block(value.spec.shape, periods))
    if least > share:
        share = least + max(0, known.working_set - least) // 4
    block = _shrink([value], known.block, periods, share)
    smaller = measured(value, block, block, known.pieces)
    return smaller if smaller.read <= known.read else known


def piece_of(node: Apply, room: int, budget: int) -> Shape:
    """The shape of what a thread evaluates at once of a stream's input: whole blocks, and chunks if they fit.

    Raises PlanError where `room` bytes are not enough for one block; `budget` is for the message.
    """
    [child] = node.inputs
    shape = child.spec.shape
    blocks = block_shape(shape)
    pairs = zip(blocks, source_grid(child), shape, strict=True)
    periods = tuple(min(math.lcm(b, n), -(-max(1, length) // b) * b) for b, n, length in pairs)
    held = partial(_piece_bytes, node)
    least = held(_first_block(shape, periods))
    whole = tuple(-(-max(1, length) // n) * n for length, n in zip(shape, periods, strict=True))
    piece = _shrink([child], whole, periods, max(least, min(room // 4, LARGE_PIECE)), held)
    piece = _shrink([child], piece, blocks, room, held)
    needed = held(_first_block(shape, piece))
    if needed > room:
        what = f"`{node.function.called()}` needs {bytes_text(needed)} of memory for a block of {child.spec}"
        raise too_little(what, budget, room, budget_for(needed))
    return piece


def _piece_bytes(node: Apply, region: Region) -> int:
    """Upper bound of the bytes in memory while a stream takes in a region of its input."""
    [child] = node.inputs
    spec = child.spec
    return working_set(child, region) + seeing_bytes(spec.shape, spec.dtype.itemsize) + node.function.scratch


def _why_so_much(value: Node) -> str:
    if any(part.function.full_copies > 0 for part in inputs_first([value])):
        return "a part of it is computed as a whole"
    reads = list(needed(value, Region.whole((1,) * value.spec.ndim)))
    if any(region.size == read.spec.size > 1 for read, region in reads):
        return "all of what it reads is needed at once"
    if any(decoded_bytes(read, region) > READ_SPAN // 2 for read, region in reads):
        return "the chunks of its sources are that large"
    return "reading a file takes that much"


def budget_for(room: int, staged: bool = False) -> str:
    """The smallest budget that leaves `room` bytes for computing, as callers write it: `512MiB`."""
    least = 2 * room if staged else min(room + WRITE_BUFFER, 2 * room)
    return f"{math.ceil(least / 2**20)}MiB" if least < 2**30 else f"{math.ceil(least / 2**30)}GiB"


def side_by_side(values: Sequence[Node], budget: int) -> Shape:
    """The shape of the regions in which values of one shape are evaluated at the same time.

    They need at most `budget` bytes or, where single elements need more, a quarter more than these: so chunks
    that exceed the budget are decoded a few times, not once for each element.
    """
    shape = values[0].spec.shape
    if _held(values, Region.whole(shape)) <= budget:
        return shape
    share = max(budget, _held(values, _first_block(shape, (1,) * len(shape))) * 5 // 4)
    periods = tuple(map(math.lcm, *(source_grid(value) for value in values)))
    block = tuple(-(-n // p) * p for n, p in zip(shape, periods, strict=True))
    return _shrink(values, _shrink(values, block, periods, share), (1,) * len(shape), share)


def output_chunks(spec: ArraySpec, block: Shape, near: Shape, limit: int) -> Shape:
    """The chunk shape of an output: that of the source, `near`, where it is of a good size, else whole rows.

    Rows are whole while one fits into `limit` bytes, because sharded readers cut the leading axes. Chunks
    divide `block`, which is what one task computes, on every axis that it does not cover.
    """
    fits = all(b % n == 0 or b >= s for n, b, s in zip(near, block, spec.shape, strict=True))
    good = fits and math.prod(near) * spec.dtype.itemsize >= SMALL_CHUNK
    chunks = [max(1, n) for n in (near if good else block)]
    for axis, length in enumerate(chunks):
        rest = math.prod(chunks[:axis] + chunks[axis + 1 :]) * spec.dtype.itemsize
        if rest * length > limit:
            # As equal as possible; the last may be short where it is covered.
            pieces = -(-length // max(1, limit // rest))
            covered = block[axis] >= spec.shape[axis] and not good
            chunks[axis] = -(-length // pieces) if covered else max(1, length // pieces)
    return tuple(chunks)


def _first_block(shape: Shape, block: Shape) -> Region:
    return Region((0,) * len(shape), tuple(min(b, n) for b, n in zip(block, shape, strict=True)))


def _shrink(
    values: Sequence[Node],
    block: Shape,
    periods: Shape,
    share: int,
    held: Callable[[Region], int] | None = None,
) -> Shape:
    """Halve the block, in whole periods, until `share` bytes are enough for it, of all values of one shape.

    It is halved along the axis for which all blocks together read least. `held`: bytes for the first block.
    """
    shape = values[0].spec.shape
    held = held or partial(_held, values)
    while held(_first_block(shape, block)) > share:
        counts = enumerate(zip(grid_counts(block, periods), periods, strict=True))
        halves = [(*block[:a], -(-n // 2) * period, *block[a + 1 :]) for a, (n, period) in counts if n > 1]
        if not halves:
            break
        block = min(halves, key=lambda b: sum(_reading(value, shape, b) for value in values))
    return block


def _held(values: Sequence[Node], region: Region) -> int:
    return sum(task_bytes(value, region) for value in values)


def _reading(value: Node, shape: Shape, block: Shape) -> int:
    """Decoded bytes that all tasks of this block shape read, if each reads as much as the first."""
    regions = needed(value, _first_block(shape, block))
    return math.prod(grid_counts(shape, block)) * sum(decoded_bytes(*one) for one in regions)


def source_grid(node: Node) -> Shape:
    """Chunk grid of the sources along an output's axes: the period after which it reads other chunks.

    Where one step along the axis moves what is needed along one axis of an input, one for one, the period is
    that axis's; where it leads to another input, 1; otherwise, as for reshapes, the whole axis.
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
    """Regions of each input needed by the element with the index `at` on one axis and 0 on all others."""
    starts = tuple(at if a == axis else 0 for a in range(node.spec.ndim))
    region = Region(starts, tuple(n + 1 for n in starts))
    return [(i, part.starts) for i, part in node.function.needs(region, [n.spec for n in node.inputs])]
