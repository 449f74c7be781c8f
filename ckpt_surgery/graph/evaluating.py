"""Evaluation of one region of a value, and of what it has to know about whole arrays."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.streams import block_shape
from ckpt_surgery.graph.fusion import Fused, fused, steps_of
from ckpt_surgery.graph.parts import Part, last_uses, parts_of
from ckpt_surgery.graph.streaming import Streaming
from ckpt_surgery.graph.walks import streams_of

Reader = Callable[[str, Leaf, Region], np.ndarray]
"""Reads the elements of a region: (source name, leaf, region) → array."""


Known = Mapping[int, np.ndarray]
"""The whole values of what is computed in streams, by the identities of the nodes."""


class StreamedValues:
    """What is computed in streams, for values of which several regions are evaluated: each once.

    Safe to use from several threads: those that need the same one compute it together.
    """

    def __init__(self, read: Reader):
        self._read = read
        self._streams: dict[int, tuple[Apply, ...]] = {}
        """Those of each value, by the identity of its node."""
        self._running: dict[int, Streaming] = {}
        self._known: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def of(self, value: Node, pieces: Sequence[Shape] = ()) -> Known:
        """All that a value is computed from, for `evaluate`. Raises SurgeryError, as reading and passes do.

        `pieces`: for each of `streams_of(value)`, the shape of what one thread evaluates at once, whole
        blocks; by default single blocks. A value must be kept as long as this object, which knows identities.
        """
        streams = self._streams_of(value)
        for number, node in enumerate(streams):
            if id(node) not in self._known:
                shape = node.inputs[0].spec.shape
                running = self._begun(node, pieces[number] if pieces else block_shape(shape))
                self._known[id(node)] = running.result(partial(self._evaluated, node.inputs[0]))
        return self._known

    def piece_of(self, stream: Apply) -> Shape:
        """The shape of what one thread evaluates at once, for a value that was computed in a stream."""
        return self._running[id(stream)].piece

    def _streams_of(self, value: Node) -> tuple[Apply, ...]:
        if isinstance(value, Read):
            return ()
        if id(value) not in self._streams:
            self._streams[id(value)] = streams_of(value)
        return self._streams[id(value)]

    def _begun(self, node: Apply, piece: Shape) -> Streaming:
        with self._lock:
            if id(node) not in self._running:
                self._running[id(node)] = Streaming(node, piece)
            return self._running[id(node)]

    def _evaluated(self, node: Node, region: Region) -> np.ndarray:
        return evaluate_in_any_order(node, region, self._read, self._known)


def evaluate(node: Node, region: Region, read: Reader, known: Known | None = None) -> np.ndarray:
    """The elements of one region of a node, large ones in C order. Raises DataError as functions do.

    `known`: what `StreamedValues` gives for the node, by default computed here.
    """
    return to_c_order(evaluate_in_any_order(node, region, read, known))


def evaluate_in_any_order(node: Node, region: Region, read: Reader, known: Known | None = None) -> np.ndarray:
    """The same, for a caller that copies the elements anyway: they are in the order that takes least.

    Every part is computed once, and held until no other needs it.
    """
    if isinstance(node, Read):
        return read(node.source, node.leaf, region)
    known = StreamedValues(read).of(node) if known is None else known
    parts = parts_of(node, region)
    together = fused(parts)
    try:
        return _block(parts, together, read, known)
    except _FailedInTiles:
        # Evaluated as a whole, so that the message names the largest value of the region.
        return _block(parts, {}, read, known)


class _FailedInTiles(Exception):
    """One tile has a value without a result."""


def _block(parts: Sequence[Part], together: Mapping[int, Fused], read: Reader, known: Known) -> np.ndarray:
    """The result of the last part. Raises _FailedInTiles, or DataError if a part is evaluated as a whole."""
    steps = steps_of(parts, together)
    blocks: dict[int, np.ndarray] = {}
    for (number, below), unused in zip(steps, last_uses([below for _, below in steps]), strict=True):
        if number in together:
            try:
                blocks[number] = together[number].apply([blocks[n] for n in below])
            except DataError as error:
                raise _FailedInTiles from error
        else:
            blocks[number] = _computed(parts[number], parts, blocks, read, known)
        for done in unused:
            del blocks[done]
    return blocks[len(parts) - 1]


def _computed(
    part: Part, parts: Sequence[Part], blocks: Mapping[int, np.ndarray], read: Reader, known: Known
) -> np.ndarray:
    if not isinstance(part.node, Apply):
        return read(part.node.source, part.node.leaf, part.region)
    if part.node.streamed:
        return taken_part(known[id(part.node)], Region.whole(part.node.spec.shape), part.region)
    specs = [child.spec for child in part.node.inputs]
    taken = [taken_part(blocks[number], parts[number].region, region) for number, region in part.inputs]
    return part.node.function.apply(part.region, specs, taken)


def taken_part(block: np.ndarray, whole: Region, region: Region) -> np.ndarray:
    """A region of a block; all of it, usually."""
    return block if region == whole else region.taken_from(block, whole)
