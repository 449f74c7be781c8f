"""Evaluation of what a plan writes, where NaN and infinity that the computation made are refused.

A block is searched once, as a whole, in one pass with its checksum. Only where something is not finite, it is
computed again with marks for the elements that are made of NaN or infinity of a leaf, and for those that
`allow_nonfinite` permits.
"""

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.tiles import to_c_order
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first
from ckpt_surgery.functions.base import MARK
from ckpt_surgery.functions.dtypes import Rounded
from ckpt_surgery.functions.nonfinite import all_finite, finite, may_be_nonfinite, search_and_digest
from ckpt_surgery.graph.evaluating import Known, Reader, StreamedValues, evaluate_in_any_order, taken_part
from ckpt_surgery.graph.walks import Part, last_uses, parts_of

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
        is_finite, crc = search_and_digest(block, makes_nonfinite(value), digest)
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
        unused = last_uses([[number for number, _ in part.inputs] for part in parts])
        results: dict[int, Marked] = {}
        for number, part in enumerate(parts):
            results[number] = self._of_part(part, parts, results, known)
            for done in unused[number]:
                results.pop(done, None)
        return results[len(parts) - 1]

    def _of_part(
        self, part: Part, parts: Sequence[Part], results: Mapping[int, Marked], known: Known
    ) -> Marked:
        node = part.node
        if isinstance(node, Read):
            return _as_read(self._read(node.source, node.leaf, part.region))
        if node.streamed:
            block = taken_part(known[id(node)], Region.whole(node.spec.shape), part.region)
            bits = self._marks_of_stream(node, known) if may_be_nonfinite(block.dtype) else 0
            return block, np.full(block.shape, bits, MARK) if bits else None
        function, specs = node.function, [child.spec for child in node.inputs]
        blocks, taken = [], []
        for number, region in part.inputs:
            whole, (given, marked) = parts[number].region, results[number]
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


def makes_nonfinite(value: Node) -> bool:
    """Whether elements of a value can be NaN or infinite although all that they are made of is finite."""
    if isinstance(value, Read) or not may_be_nonfinite(value.spec.dtype):
        return False
    return not all(node.function.keeps_finite() for node in inputs_first([value]))


def _as_read(block: np.ndarray) -> Marked:
    if all_finite(block):
        return block, None
    return block, ~finite(block) * MARK.type(FROM_LEAF)
