"""Trees in memory as sources: the values of every kind of leaf, and what has none."""

import gc
import itertools
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery import apply, inspect
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.live import source
from ckpt_surgery.live.source import TreeSource, read_shards
from ckpt_surgery.live.tree import live_tree
from tests.support import checkpoints
from tests.support.calls import record_calls
from tests.support.checkpoints import dtype, random, sharded
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.strategies import regions


def source_of(tree: Any) -> TreeSource:
    return TreeSource(live_tree(tree), "(tree)")


def read(source: Source, text: str, region: Region | None = None) -> np.ndarray:
    """A region of a leaf; the whole leaf without one."""
    leaf = source.leaves()[text]
    assert leaf.spec is not None
    found = source.read(leaf, region or Region.whole(leaf.spec.shape))
    assert (type(found), found.dtype) == (np.ndarray, leaf.spec.dtype)
    return found


def test_values_of_the_host() -> None:
    rows: list[tuple[Any, np.ndarray]] = [
        (random((6, 4)), random((6, 4))),
        (random((6, 4)).T, random((6, 4)).T),  # not in C order
        (np.ones(3, ml_dtypes.float8_e5m2), np.ones(3, ml_dtypes.float8_e5m2)),
        (random((6, 4)).astype(">f4"), random((6, 4))),  # other byte order
        (np.ma.masked_array([1.0, 2.0]), np.array([1.0, 2.0])),
        (np.zeros((0, 4)), np.zeros((0, 4))),
        (np.array(3), np.array(3)),
        (-3, np.array(-3)),
        (2**63, np.array(2**63, np.uint64)),
        (1.5, np.array(1.5)),
        (True, np.array(True)),
        (1 + 2j, np.array(1 + 2j)),
        (ml_dtypes.bfloat16(1.5), np.array(1.5, ml_dtypes.bfloat16)),
        (np.int8(-1), np.array(-1, np.int8)),
    ]
    for value, expected in rows:
        source = source_of({"x": [value]})
        found = read(source, "x/0")
        assert same(found, expected)
        part = Region(tuple(min(1, length) for length in expected.shape), expected.shape)
        assert np.array_equal(read(source, "x/0", part), expected[part.slices])


def test_a_scalar_of_a_device() -> None:
    assert read(source_of([jnp.float32(2.5)]), "0").tolist() == 2.5
    assert read(source_of([sharded(np.float32(2.5))]), "0").tolist() == 2.5


def test_a_region_of_a_numpy_array_is_a_view() -> None:
    array = random((6, 4))
    found = read(source_of([array]), "0", Region((1, 1), (3, 4)))
    assert np.shares_memory(found, array)
    assert (found.flags.writeable, array.flags.writeable) == (False, True)


def test_leaves_without_a_value() -> None:
    donated = jnp.arange(3.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    for leaf, why in (
        (jax.ShapeDtypeStruct((3,), jnp.float32), "no value"),
        (jax.eval_shape(lambda: jax.random.key(0)), "no value"),
        (donated, "donated"),
    ):
        with pytest.raises(SourceError, match=rf"`p/w` of \(tree\) .*{why}"):
            read(source_of({"p": {"w": leaf}}), "p/w")


def test_an_array_that_is_deleted_later() -> None:
    array = sharded(random((8, 8)), "x")
    source = source_of({"w": array})
    assert read(source, "w", Region((0, 0), (1, 1))) == random((8, 8))[:1, :1]
    array.delete()
    with pytest.raises(SourceError, match=r"^`w` of \(tree\) was deleted: its memory was donated"):
        read(source, "w")


def test_a_tree_has_no_files_and_a_fingerprint_of_its_own() -> None:
    tree = live_tree({"w": 1})
    one, other = TreeSource(tree, "(tree)"), TreeSource(tree, "(target)")
    assert list(one.files()) == []
    assert one.fingerprint() == one.fingerprint() != other.fingerprint()
    assert (one.format, one.path, one.step, one.item, one.metadata) == ("tree", "(tree)", None, None, {})
    assert one.leaves() is tree.leaves


def test_a_tree_is_written_as_orbax_writes_it(tmp_path: Path) -> None:
    """Keys, containers, types, shardings and values, those of empty nodes and strings included."""
    tree = checkpoints.tree(strings=True)
    checkpoints.save_pytree(tmp_path / "orbax", tree)
    apply(None, tree, dst=tmp_path / "ours")
    theirs, ours = inspect(tmp_path / "orbax"), inspect(tmp_path / "ours")
    assert [replace(leaf, manifest=None) for leaf in ours.leaves] == [
        replace(leaf, manifest=None) for leaf in theirs.leaves
    ]
    assert sum(leaf.sharding is not None for leaf in ours.leaves) == 5
    assert {leaf.kind for leaf in ours.leaves} == set(LeafKind) - {LeafKind.OBJECT}
    checkpoints.assert_same(checkpoints.restored(tmp_path / "ours"), checkpoints.expected(strings=True))


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


@pytest.fixture(params=["memory of the host", "memory of the device"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where arrays are; the second stands for an accelerator, whose arrays NumPy cannot see."""
    if request.param == "memory of the device":
        monkeypatch.setattr(source, "_is_host", lambda shard: False)


@pytest.mark.usefixtures("memory")
@examples(40)
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
    axes: tuple[Any, ...], region: Region, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = record_calls(monkeypatch, source, "_on_host", lambda shard, cut: (shard.devices(), cut))
    array = sharded(numbers(8, 8), *axes)
    found = read_shards(array, spec_of(array), region)
    assert np.array_equal(found, numbers(8, 8)[region.slices])
    assert [math.prod(c.stop - c.start for c in cut) for _, cut in copies] == parts
    assert len(set[Any]().union(*(devices for devices, _ in copies))) == len(parts)


@pytest.mark.parametrize(("on_device", "largest"), [(False, 1 << 30), (True, 7), (True, 1 << 30)])
def test_an_accelerator_hands_out_the_region_alone(
    on_device: bool, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a part is cut out on the device, unless the shard is too long for the 32 bits of jax.

    Here NumPy sees the whole shard, and a part is a view.
    """
    monkeypatch.setattr(source, "_is_host", lambda shard: not on_device)
    monkeypatch.setattr(source, "LARGEST_START", largest)
    shard = jnp.asarray(numbers(8, 8))
    found = read_shards(shard, spec_of(shard), Region((2, 4), (4, 6)))
    assert np.array_equal(found, numbers(8, 8)[2:4, 4:6])
    assert np.shares_memory(found, np.asarray(shard)) == (not on_device or largest < 8)


@pytest.mark.parametrize("divided", [False, True], ids=["one device", "eight devices"])
def test_jax_keeps_no_copy_of_what_was_read(divided: bool) -> None:
    """Arrays of 4 bits are stored otherwise than NumPy has them, so that most readings are a copy."""
    whole = np.zeros(1 << 20, dtype("int4"))
    array = sharded(whole, "x") if divided else jnp.asarray(whole)
    tracemalloc.start()
    try:
        found = read_shards(array, spec_of(array), Region.whole(array.shape))
        assert found is not None
        np.testing.assert_array_equal(found, whole)
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


def test_random_keys_give_their_numbers() -> None:
    several = jax.random.split(jax.random.key(3, impl="rbg"), 8)
    for keys in (jax.random.key(3), several, sharded(several, "x"), sharded(several)):
        whole = np.asarray(jax.random.key_data(keys))
        spec, ndim = ArraySpec(whole.shape, whole.dtype), whole.ndim
        for starts, stops in (
            ((0,) * ndim, whole.shape),
            ((1,) * ndim, whole.shape),
            ((0,) * ndim, (1,) * ndim),
        ):
            region = Region(starts, stops)
            assert np.array_equal(read_shards(keys, spec, region), whole[region.slices])


def test_what_other_processes_hold_cannot_be_read() -> None:
    array = sharded(numbers(8, 8), "x")
    half: Any = SimpleNamespace(addressable_shards=array.addressable_shards[:4], dtype=array.dtype)
    spec = spec_of(array)
    assert np.array_equal(read_shards(half, spec, Region((1, 0), (4, 8))), numbers(8, 8)[1:4])
    assert read_shards(half, spec, Region((1, 0), (5, 8))) is None
    assert read_shards(half, spec, Region((5, 0), (6, 8))) is None
