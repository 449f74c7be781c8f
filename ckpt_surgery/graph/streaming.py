"""A value that is computed in a stream, once, by all threads that need it together."""

import math
import threading
from collections.abc import Callable, Iterator

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grid_counts
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.functions.arrays import Apply
from ckpt_surgery.functions.streams import Pass, blocks_of

POLL = 0.2
"""Seconds after which a thread that waits for the others looks whether its work was cancelled."""

Evaluated = Callable[[Region], np.ndarray]
"""Gives the elements of a region of a stream's input. Raises SurgeryError."""


class Streaming:
    """The passes of one function over its input, as far as they are. Safe to use from several threads."""

    def __init__(self, node: Apply, piece: Shape):
        """`piece`: the shape of what a thread evaluates at once, whole blocks. The result does not depend
        on it.
        """
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
