"""Regions of arrays on eight devices: the right elements, and nothing else on the host."""

import gc
import itertools
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.live import shards
from ckpt_surgery.live.shards import on_host, read_shards
from tests.support.checkpoints import dtype, sharded
from tests.support.strategies import regions

AXES = (None, "x", "y", ("x", "y"), ("y", "x"))
"""What each axis of an array can be divided over: 4, 2 or 8 devices, or none."""
SPECS = [
    axes
    for ndim in range(3)
    for axes in itertools.product(AXES, repeat=ndim)
    if max(map("".join(map("".join, filter(None, axes))).count, "xy")) < 2
]
"""Divisions of arrays of up to two axes, in which each axis of the mesh is once at most."""


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)


def spec_of(array: jax.Array) -> ArraySpec:
    return ArraySpec(array.shape, np.dtype(array.dtype))


Copies = list[tuple[Any, int]]


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    """The device and the number of elements of each part that came to the host."""
    found: Copies = []

    def counted(shard: Any, cut: tuple[slice, ...]) -> np.ndarray:
        part = on_host(shard, cut)
        found.append((next(iter(shard.devices())), part.size))
        return part

    monkeypatch.setattr(shards, "on_host", counted)
    return found


@pytest.fixture(params=["memory of the host", "memory of the device"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where arrays are; the second stands for an accelerator, whose arrays NumPy cannot see."""
    if request.param == "memory of the device":
        monkeypatch.setattr(shards, "_is_host", lambda shard: False)


@pytest.mark.usefixtures("memory")
@settings(max_examples=40)
@given(data=st.data(), axes=st.sampled_from(SPECS))
def test_any_region_of_any_division(data: st.DataObject, axes: tuple[Any, ...]) -> None:
    whole = numbers(*(8,) * len(axes))
    array = sharded(whole, *axes)
    region = data.draw(regions(whole.shape))
    found = read_shards(array, spec_of(array), region)
    assert found is not None
    assert (found.dtype, found.shape) == (whole.dtype, region.shape)
    assert np.array_equal(found, whole[region.slices])


@pytest.mark.parametrize(
    ("axes", "region", "parts"),
    [
        (("x", "y"), Region((0, 0), (8, 8)), [8] * 8),
        (("x", "y"), Region((2, 4), (4, 8)), [8]),  # a shard
        (("x", "y"), Region((3, 3), (5, 5)), [1, 1, 1, 1]),  # a corner of each of four
        (("x", None), Region((0, 0), (8, 8)), [16] * 4),  # one of two replicas
        ((None, None), Region((0, 0), (8, 8)), [64]),  # one of eight
        ((None, None), Region((1, 2), (2, 4)), [2]),
        (("x", "y"), Region((0, 0), (0, 8)), []),
    ],
)
def test_only_the_region_comes_to_the_host_once(
    axes: tuple[Any, ...], region: Region, parts: list[int], copies: Copies
) -> None:
    array = sharded(numbers(8, 8), *axes)
    found = read_shards(array, spec_of(array), region)
    assert np.array_equal(found, numbers(8, 8)[region.slices])
    assert [count for _, count in copies] == parts
    assert len({device for device, _ in copies}) == len(parts)


def test_a_region_of_one_shard_is_a_view() -> None:
    array = sharded(numbers(8, 8), "x", "y")
    found = read_shards(array, spec_of(array), Region((2, 4), (4, 6)))
    assert found is not None
    assert not found.flags.writeable
    shard = next(s.data for s in array.addressable_shards if s.index == (slice(2, 4), slice(4, 8)))
    assert np.shares_memory(found, np.asarray(shard))


@pytest.mark.parametrize("on_device", [False, True])
def test_an_accelerator_hands_out_the_region_alone(on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a part is cut out on the device; here NumPy sees the whole shard, and a part is a view."""
    monkeypatch.setattr(shards, "_is_host", lambda shard: not on_device)
    shard = jnp.asarray(numbers(8, 8))
    found = read_shards(shard, spec_of(shard), Region((2, 4), (4, 6)))
    assert np.array_equal(found, numbers(8, 8)[2:4, 4:6])
    assert np.shares_memory(found, np.asarray(shard)) == (not on_device)


def test_what_is_too_long_to_be_cut_on_the_device_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax counts with 32 bits there."""
    monkeypatch.setattr(shards, "_is_host", lambda shard: False)
    monkeypatch.setattr(shards, "LARGEST_START", 7)
    shard = jnp.asarray(numbers(8))
    found = read_shards(shard, spec_of(shard), Region((2,), (4,)))
    assert np.shares_memory(found, np.asarray(shard))


@pytest.mark.parametrize("divided", [False, True], ids=["one device", "eight devices"])
def test_jax_keeps_no_copy_of_what_was_read(divided: bool) -> None:
    """Arrays of 4 bits are stored otherwise than NumPy has them, so that each reading is a copy."""
    whole = np.zeros(1 << 20, dtype("int4"))
    array = sharded(whole, "x") if divided else jnp.asarray(whole)
    tracemalloc.start()
    try:
        found = read_shards(array, spec_of(array), Region.whole(array.shape))
        assert found is not None
        assert tracemalloc.get_traced_memory()[0] > found.nbytes * 0.9
        del found
        gc.collect()  # jax frees what it held for NumPy then
        assert tracemalloc.get_traced_memory()[0] < 1 << 18
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "name",
    [
        *("bool", "int8", "uint32", "float16", "float32", "complex64", "bfloat16"),
        *("float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float4_e2m1fn"),
    ],
)
def test_every_dtype_keeps_its_bits(name: str) -> None:
    whole = (np.arange(64).reshape(8, 8) % 5).astype(dtype(name))
    array = sharded(whole, "x", "y")
    for region in (Region((0, 0), (8, 8)), Region((2, 4), (4, 6)), Region((1, 1), (7, 6))):
        found = read_shards(array, spec_of(array), region)
        assert found is not None
        assert found.dtype == whole.dtype
        assert found.tobytes() == np.ascontiguousarray(whole[region.slices]).tobytes()


def several_keys() -> jax.Array:
    return jax.random.split(jax.random.key(3, impl="rbg"), 8)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: jax.random.key(3), id="one"),
        pytest.param(several_keys, id="several"),
        pytest.param(lambda: sharded(several_keys(), "x"), id="divided"),
        pytest.param(lambda: sharded(several_keys()), id="replicated"),
    ],
)
def test_random_keys_give_their_numbers(build: Callable[[], jax.Array]) -> None:
    keys = build()
    whole = np.asarray(jax.random.key_data(keys))
    spec = ArraySpec(whole.shape, whole.dtype)
    for region in (
        Region.whole(whole.shape),
        Region((1,) * whole.ndim, whole.shape),
        Region((0,) * whole.ndim, (1,) * whole.ndim),
    ):
        assert np.array_equal(read_shards(keys, spec, region), whole[region.slices])


def test_what_other_processes_hold_cannot_be_read() -> None:
    array = sharded(numbers(8, 8), "x")
    half: Any = SimpleNamespace(addressable_shards=array.addressable_shards[:4], dtype=array.dtype)
    spec = spec_of(array)
    assert np.array_equal(read_shards(half, spec, Region((1, 0), (4, 8))), numbers(8, 8)[1:4])
    assert read_shards(half, spec, Region((1, 0), (5, 8))) is None
    assert read_shards(half, spec, Region((5, 0), (6, 8))) is None
