"""Streams that several threads compute together: every block once, and one result or one failure for all."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.cancellation import Cancelled, cancelled_by
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.functions.streams import Folded, Pass, streamed
from ckpt_surgery.graph.streaming import Streaming

ARRAY = np.random.default_rng(3).normal(size=(1500, 1000)).astype(np.float32)
PIECE = (1024, 1024)


def leaf(array: np.ndarray = ARRAY) -> Read:
    return Read("source", Leaf(Key.parse("a"), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype)))


def part(region: Region) -> np.ndarray:
    return ARRAY[region.slices]


class _Above(Pass):
    """Counts the elements above a number, and in a second pass those above their share."""

    def __init__(self, limit: float, passes: int) -> None:
        self.limit, self.passes, self.count = limit, passes, 0

    def seen(self, block: np.ndarray, region: Region) -> int:
        return int((block > self.limit).sum())

    def note(self, number: int, seen: int) -> None:
        self.count += seen

    def finish(self) -> Pass | np.ndarray:
        share = self.count / ARRAY.size
        return np.array(self.count) if self.passes == 1 else _Above(share, self.passes - 1)


@dataclass(frozen=True)
class Above(Function):
    name: ClassVar[str] = "above_for_a_test"

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec((), np.dtype(np.int64))

    def stream(self, ins: Specs) -> Pass:
        return _Above(0, 3)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return streamed(self.stream(ins), blocks[0])


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("function", [Norm(), Sum(), Above()], ids=str)
def test_threads_share_the_pieces_and_have_one_result(function: Function, threads: int) -> None:
    taken: list[Region] = []

    def evaluated(region: Region) -> np.ndarray:
        taken.append(region)
        return part(region)

    streaming = Streaming(Apply(function, (leaf(),)), PIECE)
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(lambda _: streaming.result(evaluated), range(threads)))
    whole = function.apply(Region((), ()), [leaf().spec], [ARRAY])
    assert all(np.array_equal(result, whole) for result in results)
    passes = 3 if isinstance(function, Above) else 1
    assert sorted(taken, key=str) == sorted(
        passes * [Region((0, 0), (1024, 1000)), Region((1024, 0), (1500, 1000))], key=str
    )


def test_a_failure_is_that_of_every_thread() -> None:
    met = threading.Barrier(2, timeout=60)

    def evaluated(region: Region) -> np.ndarray:
        met.wait()  # both threads have a piece
        if region.starts[0]:
            raise DataError("this block is bad")
        return part(region)

    streaming = Streaming(Apply(Norm(), (leaf(),)), PIECE)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(streaming.result, evaluated) for _ in range(2)]
        failed = [one.exception() for one in running]
        later = pool.submit(streaming.result, part).exception()
    assert [type(error) for error in (*failed, later)] == [DataError] * 3


def test_a_thread_that_waits_stops_when_its_work_is_cancelled() -> None:
    stop, began, go = threading.Event(), threading.Event(), threading.Event()

    def slow(region: Region) -> np.ndarray:
        began.set()
        go.wait(60)
        return part(region)

    streaming = Streaming(Apply(Norm(), (leaf(),)), (2048, 1024))

    def waiting() -> None:
        with cancelled_by(stop):
            streaming.result(part)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(streaming.result, slow)
        began.wait(60)
        second = pool.submit(waiting)
        stop.set()
        assert isinstance(second.exception(), Cancelled)
        go.set()
        assert first.exception() is None


def test_no_elements_are_no_pieces() -> None:
    empty = np.zeros((0, 3), np.float32)
    streaming = Streaming(Apply(Norm(), (leaf(empty),)), (1, 3))

    def never(region: Region) -> np.ndarray:
        raise AssertionError(region)

    assert streaming.result(never) == 0


def test_a_result_out_of_range_is_refused_in_the_last_step() -> None:
    def total(value: int | None) -> np.ndarray:
        raise DataError(f"{value} is too much")

    @dataclass(frozen=True)
    class Refused(Norm):
        name: ClassVar[str] = "refused_for_a_test"

        def stream(self, ins: Specs) -> Pass:
            return Folded(len, int.__add__, total)

    streaming = Streaming(Apply(Refused(), (leaf(),)), PIECE)
    with pytest.raises(DataError, match="1500000 is too much"):
        streaming.result(part)
    with pytest.raises(DataError, match="1500000 is too much"):
        streaming.result(part)
