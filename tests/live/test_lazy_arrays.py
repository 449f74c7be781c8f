"""Lazy arrays: what reads them, what does not, and in which dtype."""

import asyncio
import copy
import operator
import threading
from collections.abc import Callable
from typing import Any

import dask.array
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery import LazyArray
from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import DataError, UsageError

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


class Counted(LazyArray):
    """An array in memory that counts how often it is read."""

    def __init__(self, array: np.ndarray, chunks: Shape | None = None):
        super().__init__(ArraySpec(array.shape, array.dtype), key="params/w", chunks=chunks)
        self.array = array
        self.regions: list[Region] = []

    def _read(self, region: Region) -> np.ndarray:
        self.regions.append(region)
        part: np.ndarray = self.array[(*region.slices, ...)].view()
        part.flags.writeable = False
        return part


def constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def test_what_it_is_needs_no_reading() -> None:
    lazy = Counted(WHOLE, chunks=(2, 6))
    assert (lazy.key, lazy.shape, lazy.ndim, lazy.size, lazy.nbytes) == ("params/w", (4, 6), 2, 24, 96)
    assert (lazy.dtype, lazy.chunks, lazy.sharding, lazy.prng_impl) == (np.float32, (2, 6), None, None)
    assert len(lazy) == 4
    assert repr(lazy) == "<LazyArray 'params/w' float32[4,6] 96 B>"
    assert lazy == lazy
    assert lazy != Counted(WHOLE)
    assert {lazy: 1}[lazy] == 1
    assert copy.deepcopy({"w": lazy})["w"] is lazy is copy.copy(lazy)
    assert jax.tree.leaves({"a": [lazy]}) == [lazy]
    assert lazy.regions == []


def test_two_gets_read_twice_into_memory_of_their_own() -> None:
    lazy = Counted(WHOLE)
    first, second = lazy.get(), lazy.get()
    assert len(lazy.regions) == 2
    first[0] = -1
    np.testing.assert_array_equal(second, WHOLE, strict=True)
    assert WHOLE[0, 1] == 1


def test_a_slice_reads_its_region() -> None:
    lazy = Counted(WHOLE)
    np.testing.assert_array_equal(lazy[1:3, -1], WHOLE[1:3, -1], strict=True)
    assert lazy.regions == [Region((1, 5), (3, 6))]
    element = lazy[0, 1]
    assert (type(element), element.shape, element.dtype, element) == (np.ndarray, (), np.float32, 1)
    with pytest.raises(IndexError):
        lazy[[0], [1]]
    assert len(lazy.regions) == 2


def test_iterating_reads_row_by_row() -> None:
    lazy = Counted(WHOLE)
    rows = iter(lazy)
    np.testing.assert_array_equal(next(rows), WHOLE[0])
    assert lazy.regions == [Region((0, 0), (1, 6))]
    assert len([*rows]) == 3
    for fails in (iter, len):
        with pytest.raises(TypeError):
            fails(Counted(np.array(1.0)))  # type: ignore[operator]


def test_numpy_and_jax_read_it() -> None:
    lazy = Counted(WHOLE)
    np.testing.assert_array_equal(np.add(lazy, 1), WHOLE + 1, strict=True)
    np.testing.assert_array_equal(np.asarray(lazy, np.float64), WHOLE.astype(np.float64), strict=True)
    assert np.asarray(lazy, object)[0, 1] == 1
    assert isinstance(jnp.asarray(lazy), jax.Array)
    pair: list[Any] = [lazy, lazy]
    np.testing.assert_array_equal(jnp.stack(pair), np.stack([WHOLE, WHOLE]))
    assert jnp.sum(jnp.asarray(lazy)) == WHOLE.sum()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(lazy, copy=False)


def test_arithmetic_is_not_defined() -> None:
    lazy: Any = Counted(WHOLE)
    computations: list[Callable[[], Any]] = [
        *(lambda: lazy + 1, lambda: 2 * lazy, lambda: lazy * WHOLE, lambda: WHOLE + lazy),
        *(lambda: np.float32(1) - lazy, lambda: lazy @ lazy, lambda: -lazy, lambda: lazy < WHOLE),
        lambda: abs(lazy),
    ]
    for compute in computations:
        with pytest.raises(TypeError):
            compute()
    assert lazy.regions == []


def test_one_element_is_a_number() -> None:
    assert (int(Counted(np.array([7.5]))), float(Counted(np.array(7.5)))) == (7, 7.5)
    assert bool(Counted(np.array(2)))
    assert [10, 11, 12][Counted(np.array(2))] == 12
    for convert, wrong in (
        (int, TypeError),
        (float, TypeError),
        (bool, ValueError),
        (operator.index, TypeError),
    ):
        lazy = Counted(WHOLE)
        with pytest.raises(wrong):
            convert(lazy)
        assert lazy.regions == []
    for element in (np.array(1.0), np.array(True)):
        with pytest.raises(TypeError):
            operator.index(Counted(element))


def test_astype_casts_when_it_is_read_as_recipes_do() -> None:
    lazy = Counted(WHOLE, chunks=(2, 6))
    narrow = lazy.astype(jnp.bfloat16)
    assert (narrow.shape, narrow.dtype, narrow.key, narrow.nbytes) == (
        (4, 6),
        ml_dtypes.bfloat16,
        "params/w",
        48,
    )
    assert lazy.regions == []
    np.testing.assert_array_equal(narrow[1], WHOLE[1].astype(ml_dtypes.bfloat16), strict=True)
    assert lazy.regions == [Region((1, 0), (2, 6))]
    assert lazy.astype("float32") is lazy
    np.testing.assert_array_equal(narrow.astype(int).get(), WHOLE.astype(int), strict=True)


def test_what_a_dtype_cannot_hold_is_refused_with_the_key() -> None:
    large = Counted(np.array([1.0, 1e6], np.float32))
    half = large.astype(np.float16)
    np.testing.assert_array_equal(half[:1], np.ones(1, np.float16), strict=True)
    for read in (
        half.get,
        lambda: half[1],
        lambda: np.asarray(large, np.float16),
        lambda: half.astype(int).get(),
    ):
        with pytest.raises(DataError, match=r"`params/w` as float16: 1000000\.0 is out of range"):
            read()
    with pytest.raises(UsageError, match="imaginary"):
        Counted(np.ones(1, np.complex64)).astype(float)
    with pytest.raises(UsageError, match="not a dtype"):
        large.astype("float33")


def test_view_reinterprets_bytes_of_equal_width() -> None:
    stored = Counted(np.array([0x3F80, 0x4000], np.uint16))
    seen = stored.view("bfloat16")
    np.testing.assert_array_equal(seen.get(), np.array([1, 2], ml_dtypes.bfloat16), strict=True)
    assert seen.view(np.uint16)[1] == 0x4000
    with pytest.raises(UsageError, match="2 bytes"):
        stored.view(np.float32)


def test_a_function_gives_the_elements() -> None:
    lazy = LazyArray.of((2, 3), "bfloat16", lambda: np.arange(6.0).reshape(2, 3))
    assert (lazy.shape, lazy.dtype, lazy.key, lazy.chunks) == ((2, 3), ml_dtypes.bfloat16, "", None)
    expected = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(lazy.get(), expected, strict=True)
    np.testing.assert_array_equal(lazy[1, ::-1], expected[1, ::-1], strict=True)
    assert LazyArray.of((), int, constant(3)).get() == 3
    np.testing.assert_array_equal(LazyArray.of((2,), int, constant(jnp.arange(2))).get(), [0, 1])


def test_what_the_function_keeps_is_not_changed() -> None:
    kept = np.zeros(3, np.float32)
    lazy = LazyArray.of((3,), np.float32, lambda: kept)
    lazy.get()[:] = 1
    lazy[:2][:] = 1
    asyncio.run(lazy.get_async())[:] = 1
    assert not kept.any()
    kept[0] = 1
    assert kept.flags.writeable


def test_another_shape_and_values_that_do_not_fit_are_refused() -> None:
    lazy = LazyArray.of((3,), np.float32, lambda: np.zeros(4, np.float32), key="w")
    with pytest.raises(DataError, match=r"'w'.*\[3\].*\[4\]"):
        lazy.get()
    with pytest.raises(DataError):
        lazy[:1]
    with pytest.raises(DataError, match="300 is out of range"):
        LazyArray.of((1,), np.int8, lambda: [300]).get()
    with pytest.raises(ZeroDivisionError):  # what the function raises is passed on
        LazyArray.of((1,), np.int8, lambda: 1 // 0).get()


def test_a_coroutine_function_is_awaited() -> None:
    async def elements() -> Any:
        await asyncio.sleep(0)
        return [1, 2]

    lazy = LazyArray.of((2,), np.int32, elements)
    expected = np.array([1, 2], np.int32)
    np.testing.assert_array_equal(lazy.get(), expected, strict=True)
    np.testing.assert_array_equal(asyncio.run(lazy.get_async()), expected, strict=True)
    np.testing.assert_array_equal(
        LazyArray.of((2,), np.int32, lambda: elements())[1:], expected[1:], strict=True
    )

    async def inside() -> np.ndarray:
        return lazy.get()

    np.testing.assert_array_equal(asyncio.run(inside()), expected, strict=True)


def test_a_coroutine_function_runs_in_the_thread_of_the_caller() -> None:
    """Settings of JAX, and context variables, are those of a thread."""

    async def elements() -> Any:
        return [threading.get_ident()]

    assert LazyArray.of((1,), np.int64, elements).get()[0] == threading.get_ident()


def test_a_coroutine_function_runs_in_the_loop_of_the_caller() -> None:
    loops = []

    async def elements() -> Any:
        loops.append(asyncio.get_running_loop())
        return [1]

    async def both() -> Any:
        await LazyArray.of((1,), np.int32, elements).astype(np.int8).get_async()
        return asyncio.get_running_loop()

    assert asyncio.run(both()) is loops[0]


def test_twenty_gathered_reads_run_side_by_side() -> None:
    together = threading.Barrier(20)

    def elements(i: int) -> np.ndarray:
        together.wait(timeout=60)
        return np.array([i])

    arrays = [LazyArray.of((1,), int, lambda i=i: elements(i)) for i in range(20)]

    async def gathered() -> list[np.ndarray]:
        return await asyncio.gather(*(lazy.get_async() for lazy in arrays))

    assert [int(found[0]) for found in asyncio.run(gathered())] == [*range(20)]


def test_dask_reads_blocks_of_it() -> None:
    lazy = Counted(WHOLE, chunks=(2, 6))
    blocks = dask.array.from_array(lazy, chunks=(2, 3))
    assert lazy.regions == []
    np.testing.assert_array_equal((blocks + 1).compute(scheduler="threads"), WHOLE + 1, strict=True)
    assert len(lazy.regions) == 4
    assert dask.array.from_array(lazy).name == dask.array.from_array(lazy).name
    assert dask.array.from_array(lazy).name != dask.array.from_array(Counted(WHOLE)).name
