"""Evaluation of one region of a value, and of what it has to know about whole arrays."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grid_counts
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.streams import Pass, block_shape, blocks_of
from ckpt_surgery.graph.fusion import Fused, fused, steps_of
from ckpt_surgery.graph.walks import Part, last_uses, parts_of, streams_of

POLL = 0.2
"""Seconds after which a thread that waits for the others looks whether its work was cancelled."""
Reader = Callable[[str, Leaf, Region], np.ndarray]
"""Reads the elements of a region: (source name, leaf, region) → array."""
Evaluated = Callable[[Region], np.ndarray]
"""Gives the elements of a region of a stream's input. Raises SurgeryError."""
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
        self._state: Pass | np.ndarray = first
        self._changed = threading.Condition()
        self._pieces: Iterator[Region] = iter(())
        self._left = 0
        """Number of pieces of this pass that are not done."""
        self._failure: BaseException | None = None
        self._begin_pass()

    def result(self, evaluated: Evaluated) -> np.ndarray:
        """The whole result. While it is not there, the caller's thread works on it.

        Raises what `evaluated` and the passes raise, in every thread.
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
                self._done()
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

    def _done(self) -> None:
        """A piece is done; after the last one of a pass comes the next pass, or the result."""
        with self._changed:
            self._left -= 1
            if not self._left:
                assert isinstance(self._state, Pass)
                self._state = self._state.finish()
                self._begin_pass()
                self._changed.notify_all()

    def _begin_pass(self) -> None:
        while isinstance(self._state, Pass):
            self._left = math.prod(grid_counts(self._shape, self.piece))
            self._pieces = chunk_regions(self._shape, self.piece)
            if self._left:
                break
            self._state = self._state.finish()  # there are no elements


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
    steps = steps_of(parts, together)
    blocks: dict[int, np.ndarray] = {}
    for (number, below), unused in zip(steps, last_uses([below for _, below in steps]), strict=True):
        part = parts[number]
        if number in together:
            blocks[number] = together[number].apply([blocks[n] for n in below])
        elif isinstance(part.node, Read):
            blocks[number] = read(part.node.source, part.node.leaf, part.region)
        elif part.node.streamed:
            whole = Region.whole(part.node.spec.shape)
            blocks[number] = taken_part(known[id(part.node)], whole, part.region)
        else:
            specs = [child.spec for child in part.node.inputs]
            taken = [taken_part(blocks[n], parts[n].region, region) for n, region in part.inputs]
            blocks[number] = part.node.function.apply(part.region, specs, taken)
            del taken
        for done in unused:
            del blocks[done]
    return blocks[len(parts) - 1]


def taken_part(block: np.ndarray, whole: Region, region: Region) -> np.ndarray:
    """A region of a block; all of it, usually."""
    return block if region == whole else region.taken_from(block, whole)
