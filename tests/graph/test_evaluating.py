"""Evaluation of regions: only what is needed is read, and the elements are those of the whole."""

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
from ckpt_surgery.functions.base import Function, Specs
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.joining import Concat
from ckpt_surgery.functions.masks import KthMagnitude
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.functions.streams import Folded, Pass
from ckpt_surgery.graph.evaluating import StreamedValues, Streaming, evaluate, evaluate_in_any_order

VALUES = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(8, dtype=np.float32).reshape(2, 4) + 100,
}


def leaf(name: str) -> Read:
    spec = ArraySpec(VALUES[name].shape, VALUES[name].dtype)
    return Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, spec))


class Reader:
    """Reads from `VALUES`, and notes what."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str, Region]] = []

    def __call__(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        self.read.append((source, leaf.key.text, region))
        return VALUES[leaf.key.text][region.slices]


def test_only_what_a_region_needs_is_read() -> None:
    reader, region = Reader(), Region((1, 0), (3, 2))
    assert np.array_equal(evaluate(leaf("a"), region, reader), VALUES["a"][1:3, :2])
    joined = Apply(Concat(0), (leaf("a"), leaf("b")))
    assert np.array_equal(evaluate(joined, Region((3, 1), (5, 3)), reader), VALUES["b"][:, 1:3])
    assert reader.read == [("source", "a", region), ("source", "b", Region((0, 1), (2, 3)))]


def test_a_statistic_is_computed_once_from_all_elements() -> None:
    reader = Reader()
    value = Apply(Binary("/"), (leaf("a"), Apply(Norm(), (leaf("a"),))))
    statistics = StreamedValues(reader)
    rows = [
        evaluate_in_any_order(value, Region((i, 0), (i + 1, 4)), reader, statistics.of(value, [(3, 4)]))
        for i in range(3)
    ]
    expected = VALUES["a"] / np.float32(np.linalg.norm(VALUES["a"].astype(np.float64)))
    assert np.array_equal(np.concatenate(rows), expected)
    whole = [region for _, _, region in reader.read if region == Region((0, 0), (3, 4))]
    assert len(whole) == 1
    assert len(reader.read) == 4


def test_statistics_of_what_uses_statistics_come_one_after_the_other() -> None:
    """A dot product of vectors that are divided by their norms, and a norm of a norm."""
    a, b = leaf("a"), Apply(Index(((None, 2, None),)), (leaf("b"),))
    b = Apply(Concat(0), (b, Apply(Index(((0, 1, None),)), (leaf("b"),))))
    units = [Apply(Binary("/"), (one, Apply(Norm(), (one,)))) for one in (a, b)]
    cosine = Apply(Sum(), (Apply(Binary("*"), tuple(units)),))
    reader = Reader()
    found = evaluate(Apply(Norm(), (cosine,)), Region((), ()), reader)
    x, y = VALUES["a"], np.concatenate([VALUES["b"], VALUES["b"][:1]])
    expected = np.sum(x / np.linalg.norm(x) * (y / np.linalg.norm(y)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32


ARRAY = np.random.default_rng(3).normal(size=(1500, 1000)).astype(np.float32)
VALUES["array"] = ARRAY
PIECE = (1024, 1024)


def part(region: Region) -> np.ndarray:
    return ARRAY[region.slices]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("function", [Norm(), Sum(), KthMagnitude(1000)], ids=str)
def test_threads_share_the_pieces_and_have_one_result(function: Function, threads: int) -> None:
    taken: list[Region] = []

    def evaluated(region: Region) -> np.ndarray:
        taken.append(region)
        return part(region)

    streaming = Streaming(Apply(function, (leaf("array"),)), PIECE)
    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(lambda _: streaming.result(evaluated), range(threads)))
    ins = [leaf("array").spec]
    whole = function.apply(Region.whole(function.infer(ins).shape), ins, [ARRAY])
    assert all(np.array_equal(result, whole) for result in results)
    passes = len(taken) // 2
    assert (passes > 1) == isinstance(function, KthMagnitude)
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

    streaming = Streaming(Apply(Norm(), (leaf("array"),)), PIECE)
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

    streaming = Streaming(Apply(Norm(), (leaf("array"),)), (2048, 1024))

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
    empty = Apply(Index(((0, 0, None),)), (leaf("a"),))
    streaming = Streaming(Apply(Norm(), (empty,)), (1, 3))

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

    streaming = Streaming(Apply(Refused(), (leaf("array"),)), PIECE)
    with pytest.raises(DataError, match="1500000 is too much"):
        streaming.result(part)
    with pytest.raises(DataError, match="1500000 is too much"):
        streaming.result(part)
