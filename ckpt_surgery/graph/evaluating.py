"""Evaluation of one region of a value, and of what it has to know about whole arrays.

NaN and infinity that the computation made are refused in what a plan writes. A block is searched for them
once, as a whole, in one pass with its checksum. Only where something is not finite, it is computed again with
marks for the elements that are made of NaN or infinity of a leaf, and for those that `allow_nonfinite`
permits.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grid_counts
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first
from ckpt_surgery.functions.base import MARK
from ckpt_surgery.functions.dtypes import Rounded
from ckpt_surgery.functions.nonfinite import all_finite, finite, may_be_nonfinite, search_and_digest
from ckpt_surgery.functions.streams import Pass, block_shape, blocks_of
from ckpt_surgery.graph.fusion import Fused, fused, steps_of
from ckpt_surgery.graph.walks import Part, last_uses, parts_of, streams_of

T = TypeVar("T")
POLL = 0.2
"""Seconds after which a thread that waits for the others looks whether its work was cancelled."""
Reader = Callable[[str, Leaf, Region], np.ndarray]
"""Reads the elements of a region: (source name, leaf, region) → array."""
Known = Mapping[int, np.ndarray]
"""The whole values of what is computed in streams, by the identities of the nodes."""


class Streaming:
    """The passes of one function over its input, as far as they are. Safe to use from several threads."""

    def __init__(self, node: Apply, piece: Shape):
        """`piece`: the shape of what a thread evaluates at once, whole blocks, on which no result depends."""
        specs = [child.spec for child in node.inputs]
        first = node.function.stream(specs)
        assert first is not None, "the function is not computed in a stream"
        self._shape = specs[0].shape
        self.piece = piece
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._go_on(first)

    def result(self, evaluated: Callable[[Region], np.ndarray]) -> np.ndarray:
        """The whole result. While it is not there, the caller's thread works on it.

        `evaluated` gives the elements of a region of the input. Raises what it and the passes raise, in every
        thread.
        """
        while (taken := self._next()) is not None:
            one, region = taken
            try:
                block = evaluated(region)
                for number, part, elements in blocks_of(block, region, self._shape):
                    seen = one.seen(elements, part)
                    with self._changed:
                        one.note(number, seen)
                    raise_if_cancelled()
                del block
                with self._changed:
                    self._left -= 1
                    if not self._left:
                        self._go_on(one.finish())
                        self._changed.notify_all()
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                raise
        assert isinstance(self._state, np.ndarray)
        return self._state

    def _next(self) -> tuple[Pass, Region] | None:
        """A piece that nobody has taken, and its pass; None once the result is there."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if not isinstance(self._state, Pass):
                    return None
                for region in self._pieces:
                    return self._state, region
                self._changed.wait(POLL)
                raise_if_cancelled()

    def _go_on(self, state: Pass | np.ndarray) -> None:
        """Begin the next pass, or end with the result."""
        self._left = math.prod(grid_counts(self._shape, self.piece))  # pieces that are not done
        while isinstance(state, Pass) and not self._left:
            state = state.finish()  # there are no elements
        self._state, self._pieces = state, chunk_regions(self._shape, self.piece)


class StreamedValues:
    """Results of streams, for values of which several regions are evaluated: each is computed once.

    Safe to use from several threads: those that need the same one compute it together.
    """

    def __init__(self, read: Reader):
        self._read = read
        self._streams: dict[int, tuple[Apply, ...]] = {}
        """Results of each value, by the identity of its node."""
        self._running: dict[int, Streaming] = {}
        self._known: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def of(self, value: Node, pieces: Sequence[Shape] = ()) -> Known:
        """All that a value is computed from, for `evaluate`. Raises SurgeryError, as reading and passes do.

        `pieces`: for each of `streams_of(value)`, the shape of what one thread evaluates at once, whole
        blocks; by default single blocks. A value must be kept as long as this object, which knows identities.
        """
        if id(value) not in self._streams:
            self._streams[id(value)] = streams_of(value)
        for number, node in enumerate(self._streams[id(value)]):
            if id(node) not in self._known:
                [child] = node.inputs
                with self._lock:
                    if id(node) not in self._running:
                        piece = pieces[number] if pieces else block_shape(child.spec.shape)
                        self._running[id(node)] = Streaming(node, piece)
                evaluated = partial(evaluate_in_any_order, child, read=self._read, known=self._known)
                self._known[id(node)] = self._running[id(node)].result(evaluated)
        return self._known

    def piece_of(self, stream: Apply) -> Shape:
        """The shape of what one thread evaluates at once, for a value that was computed in a stream."""
        return self._running[id(stream)].piece


def evaluate(node: Node, region: Region, read: Reader) -> np.ndarray:
    """The elements of one region of a node, large ones in C order. Raises DataError as functions do."""
    return to_c_order(evaluate_in_any_order(node, region, read))


def evaluate_in_any_order(node: Node, region: Region, read: Reader, known: Known | None = None) -> np.ndarray:
    """The same, for a caller that copies the elements anyway: they are in the order that takes least.

    Every part is computed once, and held until no other needs it. `known`: what `StreamedValues` gives for
    the node, by default computed here.
    """
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    known = StreamedValues(read).of(node) if known is None else known
    parts = parts_of(node, region)
    together = fused(parts)
    try:
        return _block(parts, together, read, known)
    except DataError:
        if not together:
            raise
        # Evaluated as a whole, so that the message names the largest value of the region.
        return _block(parts, {}, read, known)


def _block(parts: Sequence[Part], together: Mapping[int, Fused], read: Reader, known: Known) -> np.ndarray:
    """The result of the last part. Raises DataError; that of functions in tiles is about one tile."""

    def compute(number: int, blocks: Mapping[int, np.ndarray]) -> np.ndarray:
        part = parts[number]
        if number in together:
            return together[number].apply([blocks[n] for n in together[number].inputs])
        if isinstance(part.node, Read):
            return read(part.node.source, part.node.leaf, part.region)
        if part.node.streamed:
            return taken_part(known[id(part.node)], Region.whole(part.node.spec.shape), part.region)
        specs = [child.spec for child in part.node.inputs]
        taken = [taken_part(blocks[n], parts[n].region, region) for n, region in part.inputs]
        return part.node.function.apply(part.region, specs, taken)

    return _last_result(steps_of(parts, together), compute)


def _last_result(
    steps: Sequence[tuple[int, Sequence[int]]], compute: Callable[[int, Mapping[int, T]], T]
) -> T:
    """The result of the last step. Each is held until no later one takes it. `steps`: see `steps_of`."""
    results: dict[int, T] = {}
    for (number, _), unused in zip(steps, last_uses([below for _, below in steps]), strict=True):
        results[number] = compute(number, results)
        for done in unused:
            del results[done]
    return results[steps[-1][0]]


def taken_part(block: np.ndarray, whole: Region, region: Region) -> np.ndarray:
    """A region of a block; all of it, usually."""
    return block if region == whole else region.taken_from(block, whole)


FROM_LEAF = 1
"""Mark of an element that is made of a leaf's NaN or infinity."""
PERMITTED = 2
"""Mark of an element that is made of one that `allow_nonfinite` permits not to be finite."""
PIECES = 4
"""Number of pieces in which a block is computed again, so that marks need no memory that was not planned."""

Marked = tuple[np.ndarray, np.ndarray | None]
"""Elements, and their marks; None where no element is marked."""


@frozen(eq=False)
class Computed:
    """A region of a value."""

    block: np.ndarray
    overflowed: np.ndarray | None = None
    """Mask of the elements that are not finite by permission; None where there are none."""
    crc: int | None = None
    """CRC-32C of the elements in C order; None if it was not asked for."""


class Evaluator:
    """Computes regions of values, and refuses NaN and infinity that are not made of a leaf's.

    Safe to use from several threads. Values must be kept as long as this object, which knows identities.
    """

    def __init__(self, read: Reader):
        self._read = read
        self._statistics = StreamedValues(read)
        self._stream_marks: dict[int, int] = {}
        self._lock = threading.RLock()

    def compute(
        self, value: Node, region: Region, pieces: Sequence[Shape] = (), digest: bool = False
    ) -> Computed:
        """The elements of a region, in the order that takes least. `pieces` are those of `StreamedValues.of`.

        With `digest` they come with their checksum, and large blocks in C order.

        Raises DataError for values that have no result, and where elements are not finite although all that
        they are made of is; SurgeryError as reading does.
        """
        if isinstance(value, Read):
            block = self._read(value.source, value.leaf, region)
        else:
            known = self._statistics.of(value, pieces)
            block = evaluate_in_any_order(value, region, self._read, known)
        block = to_c_order(block) if digest else block
        # Whether elements can be NaN or infinite although all that they are made of is finite.
        search = may_be_nonfinite(value.spec.dtype)
        search = search and not all(node.function.keeps_finite() for node in inputs_first([value]))
        is_finite, crc = search_and_digest(block, search, digest)
        if is_finite or isinstance(value, Read):
            return Computed(block, crc=crc)
        return Computed(block, self._permitted(value, region, known), crc)

    def _permitted(self, value: Apply, region: Region, known: Known) -> np.ndarray | None:
        """The mask of what is permitted in a region that is not all finite. Raises DataError for the rest."""
        found: np.ndarray = np.zeros(region.shape, np.uint8)  # 1 where it is permitted, 2 where it is refused
        longest = max(range(len(region.starts)), key=lambda axis: region.shape[axis], default=0)
        lengths = tuple(-(-n // PIECES) if axis == longest else n for axis, n in enumerate(region.shape))
        for piece in (cell.moved(region.starts) for cell in chunk_regions(region.shape, lengths)):
            block, marks = self._marked(value, piece, known)
            spoiled = ~finite(block)
            reasons = np.zeros(piece.shape, MARK) if marks is None else marks
            here = (reasons == PERMITTED) + np.uint8(2) * (reasons == 0)
            piece.taken_from(found, region)[...] = spoiled * here
        if found.max(initial=0) == 2:
            index = np.unravel_index(int(np.argmax(found)), region.shape)
            starts = tuple(start + int(i) for start, i in zip(region.starts, index, strict=True))
            first = Region(starts, tuple(start + 1 for start in starts))
            where = f"{np.count_nonzero(found == 2):,} of {region.size:,} values here"
            raise self._refusal(value, first, where, known)
        return found.view(np.bool_) if found.any() else None

    def _refusal(self, value: Apply, element: Region, where: str, known: Known) -> DataError:
        """Problem of one element, and the number of such elements."""
        at = f", at {list(element.starts)}" if element.starts else ""
        if isinstance(value.function, Rounded):
            wide = evaluate_in_any_order(value.inputs[0], element, self._read, known)
            if finite(wide).all():
                return value.function.out_of_range(wide, f"{where}{at}")
        number = evaluate_in_any_order(value, element, self._read, known).item()
        hint = "Cast what it is made of to a wider dtype first, replace such elements (`where`), or permit "
        hint += "them: allow_nonfinite(…) around the value."
        message = f"the result is {number!r} where everything that it is made of is finite ({where}{at})"
        return DataError(message, hint=hint)

    def _marked(self, value: Node, region: Region, known: Known) -> Marked:
        """The elements of a region with their marks."""
        parts = parts_of(value, region)
        compute: Callable[[int, Mapping[int, Marked]], Marked] = partial(self._of_part, parts, known)
        return _last_result(steps_of(parts, {}), compute)

    def _of_part(
        self, parts: Sequence[Part], known: Known, number: int, results: Mapping[int, Marked]
    ) -> Marked:
        part, node = parts[number], parts[number].node
        if isinstance(node, Read):
            return _as_read(self._read(node.source, node.leaf, part.region))
        if node.streamed:
            block = taken_part(known[id(node)], Region.whole(node.spec.shape), part.region)
            bits = self._marks_of_stream(node, known) if may_be_nonfinite(block.dtype) else 0
            return block, np.full(block.shape, bits, MARK) if bits else None
        function, specs = node.function, [child.spec for child in node.inputs]
        blocks, taken = [], []
        for below, region in part.inputs:
            whole, (given, marked) = parts[below].region, results[below]
            blocks.append(taken_part(given, whole, region))
            taken.append(None if marked is None else taken_part(marked, whole, region))
        block = function.apply(part.region, specs, blocks)
        if not may_be_nonfinite(block.dtype):
            return block, None
        if function.reinterprets:
            return _as_read(block)
        marks = None
        if any(m is not None for m in taken):
            pairs = zip(blocks, taken, strict=True)
            filled = [np.zeros(block.shape, MARK) if m is None else m for block, m in pairs]
            marks = function.marks(part.region, specs, blocks, filled)
        permitted = function.permits(block)
        if permitted is not None and permitted.any():
            marks = permitted * MARK.type(PERMITTED) | (MARK.type(0) if marks is None else marks)
        return block, marks

    def _marks_of_stream(self, node: Apply, known: Known) -> int:
        """The marks of all elements of the input of what is computed in a stream."""
        [child] = node.inputs
        with self._lock:
            if id(node) not in self._stream_marks:
                joined = 0
                for piece in chunk_regions(child.spec.shape, self._statistics.piece_of(node)):
                    marks = self._marked(child, piece, known)[1]
                    joined |= 0 if marks is None else int(np.bitwise_or.reduce(marks, axis=None))
                    if joined & FROM_LEAF:
                        break
                self._stream_marks[id(node)] = joined
            return self._stream_marks[id(node)]


def _as_read(block: np.ndarray) -> Marked:
    if all_finite(block):
        return block, None
    return block, ~finite(block) * MARK.type(FROM_LEAF)
