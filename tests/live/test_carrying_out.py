"""Plans carried out into arrays on eight devices: exact values, what is read, what stays where it is."""

import gc
import signal
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import Interrupted, OutOfMemoryError, SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.live import carrying_out, computing, results
from ckpt_surgery.live.carrying_out import Restoration, make_arrays
from ckpt_surgery.live.encoder import LiveEncoder
from ckpt_surgery.live.shardings import resolved_shardings
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree, live_tree
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.target import TARGET, Target
from ckpt_surgery.system.signals import interruptible
from tests.support.effort import examples
from tests.support.memory import MemorySource
from tests.support.plans import COMPUTED
from tests.support.strategies import chunk_shapes, shapes

MEMORY = 1 << 28
RNG = np.random.default_rng(0)
PLAIN = "version: 1\n"


def mesh(shape: Shape, names: str = "xyz") -> Mesh:
    devices = np.array(jax.devices()[: int(np.prod(shape))])
    return Mesh(devices.reshape(shape), tuple(names[: len(shape)]))


def sharded(shape: Shape, *axes: Any) -> NamedSharding:
    """Over a mesh of this shape with the axes x, y, z."""
    return NamedSharding(mesh(shape), PartitionSpec(*axes))


def planned(
    recipe: str, sources: Mapping[str, Source], tree: LiveTree | None, places: Mapping[str, Any], memory: int
) -> Plan:
    loaded = parse_recipe(recipe, "recipe.yaml")
    target = None
    if tree is not None:
        abstract = {text for text, value in tree.values.items() if isinstance(value, jax.ShapeDtypeStruct)}
        target = Target(tree.leaves, loaded.recipe.target or TargetPolicy(), abstract)
    destination = replace(COMPUTED, encoder=LiveEncoder(tree))
    listings = {name: source.leaves() for name, source in sources.items() if name != TARGET}
    return make_plan(loaded, listings, target, [], {}, destination, memory, 2)


def carried_out(
    recipe: str,
    source: Source,
    target: Any = None,
    places: Mapping[str, Any] | None = None,
    memory: int = MEMORY,
    donate: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Mapping[str, Any]:
    """The values by key; `places`: shardings instead of the target's own."""
    tree = None if target is None else live_tree(target)
    places = {**({} if tree is None else resolved_shardings(tree, None)), **(places or {})}
    sources = {"source": source} | ({} if tree is None else {TARGET: TreeSource(tree, "(target)")})
    plan = planned(recipe, sources, tree, places, memory)
    return make_arrays(Restoration(plan, sources, tree, places, memory, 3), donate, progress)[0]


def random_array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def assert_holds(array: Any, expected: np.ndarray, sharding: Any) -> None:
    """Equal bit for bit, on every device."""
    assert array.sharding == sharding
    assert array.dtype == expected.dtype
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])


def pointers(array: Any) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}


# --- values and shardings ---------------------------------------------------------------------------------

PLACES = [
    sharded((8,), "x"),
    sharded((8,), None, "x"),
    sharded((4, 2), "x", "y"),
    sharded((4, 2), ("x", "y")),
    sharded((4, 2), None, "y"),
    sharded((2, 2, 2), ("x", "z"), "y"),
    sharded((2, 4), "x"),
    sharded((4,), "x"),
    sharded((3,), None, "x"),
    sharded((8,)),
    SingleDeviceSharding(jax.devices()[5]),
]


@examples(40)
@given(data=st.data())
def test_any_shape_any_chunks_and_any_mesh_give_the_whole_array(data: st.DataObject) -> None:
    counts = data.draw(st.sampled_from([(8,), (4, 2), (2, 2), (3,), (2, 3), (2, 2, 2)]))
    names = "xyz"[: len(counts)]
    per_axis = data.draw(shapes(5, 0, 1, 3))
    chosen = data.draw(st.permutations([*names, *[None] * len(per_axis)]))[: len(per_axis)]
    lengths: dict[Any, int] = dict(zip(names, counts, strict=True))
    shape = tuple(n * lengths.get(axis, 1) for n, axis in zip(per_axis, chosen, strict=True))
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    source = MemorySource(
        {"a": array}, {"a": data.draw(chunk_shapes(shape))}, codec=data.draw(st.sampled_from(["raw", "zstd"]))
    )
    sharding = NamedSharding(mesh(counts), PartitionSpec(*chosen))
    target = {
        "b": jax.ShapeDtypeStruct(
            shape[::-1], jnp.int32, sharding=NamedSharding(mesh(counts), PartitionSpec(*chosen[::-1]))
        )
    }
    found = carried_out("version: 1\nrules:\n- {match: a, to: b, value: x.T * 1}\n", source, target)
    assert_holds(found["b"], array.T, target["b"].sharding)
    assert sharding.mesh.size == len(found["b"].addressable_shards)
    assert_read_once(source.regions, shape)


def assert_read_once(regions: Sequence[Region], shape: Shape) -> None:
    count = np.zeros(shape, int)
    for region in regions:
        count[region.slices] += 1
    assert (count == 1).all()


# --- what is read -----------------------------------------------------------------------------------------


def test_arrays_are_freed_once_nothing_uses_them() -> None:
    """Not only when garbage is collected: they take memory of devices."""
    source = MemorySource({"a": random_array(8, 4), "b": random_array(4, 4)})
    recipe = PLAIN + "rules: [{match: a, value: x.T}]"

    def restored() -> weakref.ref[Any]:
        return weakref.ref(carried_out(recipe, source, {"a": jax.ShapeDtypeStruct((4, 8), "float32")})["a"])

    restored()  # what is made once only, such as caches
    gc.collect()
    gc.disable()
    try:
        assert restored()() is None
    finally:
        gc.enable()


class OfOneProcess:
    """A sharding of which this process has some of the devices only, as among several processes."""

    memory_kind = None

    def __init__(self, sharding: NamedSharding, devices: Sequence[Any]):
        self._sharding, self._devices = sharding, devices

    def addressable_devices_indices_map(self, shape: Shape) -> Mapping[Any, Any]:
        found = self._sharding.devices_indices_map(shape)
        return {device: found[device] for device in self._devices}


OWN = {Region((0, 0), (2, 8)), Region((2, 8), (4, 16))}
"""Regions of two devices in the corners of a mesh, which together are no box."""


@pytest.mark.parametrize(
    ("chunks", "own", "read"),
    [
        (None, OWN, OWN),  # where any region can be read, nothing else is
        ((8, 16), OWN, {Region((0, 0), (4, 16))}),  # both are in one chunk that is decoded as a whole
        ((2, 8), OWN, OWN),  # each has chunks of its own
        ((2, 8), set(), set()),  # this process has none of the devices
    ],
)
def test_what_other_processes_hold_is_not_read(
    chunks: Shape | None, own: set[Region], read: set[Region], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemorySource({"a": random_array(8, 16)}, {"a": chunks or ()}, codec="zstd")
    if chunks is None:
        listing = {"a": replace(source.leaves()["a"], manifest=None)}
        source.leaves = lambda: listing  # type: ignore[method-assign]
    whole = sharded((4, 2), "x", "y")
    mine = [whole.mesh.devices[0, 0], whole.mesh.devices[1, 1]] if own else []
    monkeypatch.setattr(results.DeviceArray, "value", lambda result: result._shards)
    plan = planned(PLAIN, {"source": source}, None, {}, MEMORY)
    places = {"a": OfOneProcess(whole, mine)}
    found = make_arrays(Restoration(plan, {"source": source}, None, places, MEMORY, 2))[0]["a"]
    assert set(source.regions) == read
    assert {region: np.asarray(shards[0]).tolist() for region, shards in found.items()} == {
        region: source.arrays["a"][region.slices].tolist() for region in own
    }


@pytest.mark.parametrize(
    ("on_host", "memory", "times"),
    [(True, 1 << 18, 1), *((False, *c) for c in [(1 << 21, 1), (1 << 20, 2), (1 << 19, 4), (1 << 18, 8)])],
)
def test_shards_that_fit_together_are_read_together(
    on_host: bool, memory: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decoded as a whole is read once for each group of shards, a quarter of the budget.

    Shards that stay on the host need no groups.
    """
    # A leaf of a few KiB is made as those of many MiB are, in small blocks; shards go to devices with memory.
    monkeypatch.setattr(computing, "SIDE_BY_SIDE", 0)
    monkeypatch.setattr(carrying_out, "BLOCK", 1)
    monkeypatch.setattr(results, "_is_host", lambda sharding, regions: on_host)
    source = MemorySource({"a": random_array(256, 512)}, {"a": (16, 512)}, codec="zstd")
    target = {"a": jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=sharded((8,), None, "x"))}
    found = carried_out(PLAIN, source, target, memory=memory)
    assert_holds(found["a"], source.arrays["a"], target["a"].sharding)
    assert len(source.regions) == 16 * times
    assert sum(region.size for region in source.regions) == 256 * 512


# --- moved, not computed ----------------------------------------------------------------------------------


class NotRead(TreeSource):
    """A tree of which nothing may come to the host."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        raise AssertionError(f"{leaf.key} came to the host")


def test_what_only_moves_never_comes_to_the_host() -> None:
    old, new = sharded((8,), "x"), sharded((4, 2), "y")
    arrays = {
        "same": jax.device_put(random_array(8, 4), old),
        "other": jax.device_put(random_array(8, 4), old),
        "free": jnp.arange(3),
    }
    target = {
        "renamed": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=sharded((8,), "x", None)),
        "other": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=new),
        "free": jax.ShapeDtypeStruct((3,), jnp.int32),
    }
    recipe = "version: 1\nrules:\n- {match: same, to: renamed}\n"
    found = carried_out(recipe, NotRead(live_tree(arrays), "(tree)"), target, {"free": None})
    assert found["renamed"] is arrays["same"]
    assert found["free"] is arrays["free"]
    assert_holds(found["other"], np.asarray(arrays["other"]), new)


def test_an_array_that_is_bound_to_a_device_becomes_unbound_through_the_host() -> None:
    array = jax.device_put(random_array(4), jax.devices()[3])
    target = {"a": jax.ShapeDtypeStruct((4,), jnp.float32)}
    found = carried_out(PLAIN, TreeSource(live_tree({"a": array}), "(tree)"), target, {"a": None})["a"]
    assert not found.committed
    assert found.tolist() == array.tolist()
    assert found.devices() == {jax.devices()[0]}


@pytest.mark.parametrize("large", [False, True])
def test_the_settings_of_the_caller_hold_in_all_threads(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:
        monkeypatch.setattr(computing, "SIDE_BY_SIDE", 0)
    with jax.enable_x64(True), jax.default_device(jax.devices()[3]):
        found = carried_out(PLAIN, MemorySource({"a": np.array([0.1])}))["a"]
    assert found.dtype == np.float64
    assert float(found[0]) == 0.1
    assert found.devices() == {jax.devices()[3]}
    assert not found.committed


def test_an_array_on_the_callers_default_device_stays_there() -> None:
    with jax.default_device(jax.devices()[3]):
        tree = {"a": jnp.arange(3)}
        found = carried_out(PLAIN, NotRead(live_tree(tree), "(tree)"))
    assert found["a"] is tree["a"]


def test_values_of_the_target_stay_the_objects_that_they_are() -> None:
    target = {
        "a": jax.device_put(random_array(8, 4), sharded((8,), "x")),
        "free": jnp.arange(3),
        "numpy": np.arange(3),
        "number": 3,
        "text": "as it is",
        "none": None,
    }
    recipe = "version: 1\ntarget: {missing: fallback}\n"
    found = carried_out(recipe, MemorySource({}), target)
    assert {key: value is target[key] for key, value in found.items()} == dict.fromkeys(target, True)


@pytest.mark.parametrize("sharding", [None, sharded((8,), "x"), sharded((4, 2), "y")], ids=str)
def test_an_array_that_is_wanted_twice_is_copied_once(sharding: Any) -> None:
    array = (
        jnp.arange(16.0) if sharding is None else jax.device_put(np.arange(16.0, dtype=np.float32), sharding)
    )
    recipe = (
        "version: 1\nrules:\n- {match: a, to: a}\n"
        "- {add: b, value: \"source['a']\"}\n- {add: c, value: \"source['a']\"}\n"
    )
    found = carried_out(recipe, NotRead(live_tree({"a": array}), "(tree)"), dict.fromkeys("abc", array))
    assert found["a"] is array
    for copy in (found["b"], found["c"]):
        assert copy.sharding == array.sharding
        assert copy.committed is array.committed
        assert copy.tolist() == array.tolist()
    assert pointers(found["b"]).isdisjoint(pointers(found["c"]) | pointers(array))


# --- donation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharding", PLACES, ids=str)
@pytest.mark.parametrize("moved", [False, True])
def test_the_result_has_any_sharding_and_can_be_donated_to_a_step(sharding: Any, moved: bool) -> None:
    layers = {f"layer_{i}": random_array(24, 16) for i in range(3)}
    expected = np.stack(list(layers.values())).transpose(2, 0, 1).reshape(16, 72).astype(ml_dtypes.bfloat16)
    target = {"w": jax.ShapeDtypeStruct((16, 72), jnp.bfloat16, sharding=sharding)}
    if moved:
        arrays = {"w": jax.device_put(expected, sharded((2, 4), "y"))}
        state = dict(carried_out(PLAIN, TreeSource(live_tree(arrays), "(tree)"), target))
    else:
        recipe = (
            "version: 1\nrules:\n"
            "- match: 'layer_(\\d+)'\n  to: w\n"
            '  value: \'cast(rearrange(stack(xs), "l a b -> b (l a)"), "bfloat16")\'\n'
        )
        state = dict(carried_out(recipe, MemorySource(layers), target))
    assert_holds(state["w"], expected, sharding)
    before = pointers(state["w"])
    assert len(before) == len(sharding.device_set)
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that donated buffers were not usable
        after = step(state)
    assert state["w"].is_deleted()
    assert pointers(after["w"]) == before


def test_arrays_of_the_target_are_deleted_once_they_are_replaced() -> None:
    target: dict[str, Any] = {
        "replaced": jnp.zeros(3),
        "kept": jnp.ones(3),
        "read": jnp.full(3, 2.0),
        "by": jnp.zeros(3),
        "numpy": np.zeros(3, np.float32),
    }
    recipe = (
        "version: 1\nrules:\n"
        "- {fill: by, value: \"target['read'] * 2\"}\n"
        "- {fill: kept, fallback: true}\n- {fill: read, value: \"target['read'] + 1\"}\n"
    )
    arrays = {name: np.full(3, 7, np.float32) for name in ("replaced", "numpy")}
    found = carried_out(recipe, MemorySource(arrays), target, donate=True)
    of_jax = target.keys() - {"numpy"}
    assert {name for name in of_jax if target[name].is_deleted()} == {"replaced", "read", "by"}
    expected = {"replaced": 7, "kept": 1, "read": 3, "by": 4, "numpy": 7}
    assert {name: value.tolist() for name, value in found.items()} == {
        k: [n] * 3 for k, n in expected.items()
    }


def test_an_array_is_deleted_only_after_the_last_step_that_reads_it() -> None:
    """The same array stands in the source and in the target."""
    shared = jnp.arange(4.0)
    deleted: list[bool] = []

    class Watching(TreeSource):
        def read(self, leaf: Leaf, region: Region) -> np.ndarray:
            deleted.append(shared.is_deleted())
            return super().read(leaf, region)

    recipe = "version: 1\nrules:\n- {match: a, to: a, value: x * 2}\n- {add: b, value: \"source['a'] * 3\"}\n"
    target = {"a": shared, "b": jnp.zeros(4)}
    found = carried_out(recipe, Watching(live_tree({"a": shared}), "(tree)"), target, donate=True)
    assert shared.is_deleted()
    assert deleted == [False, False]
    assert found["a"].tolist() == [0, 2, 4, 6]
    assert found["b"].tolist() == [0, 3, 6, 9]


def test_moved_arrays_outlive_those_that_they_come_from() -> None:
    array = jax.device_put(random_array(8, 8), sharded((8,)))
    expected, target = np.asarray(array).copy(), {"a": array}
    new = sharded((4,))
    recipe = "version: 1\ntarget: {missing: fallback}\n"
    found = carried_out(recipe, MemorySource({}), target, {"a": new}, donate=True)["a"]
    assert array.is_deleted()
    assert_holds(found, expected, new)


# --- kinds of leaves --------------------------------------------------------------------------------------


def test_leaves_have_the_types_of_the_target() -> None:
    pairs: dict[str, tuple[np.ndarray, Any]] = {
        "array": (np.arange(3, dtype=np.float32), jnp.zeros(3)),
        "numpy": (np.arange(3), np.zeros(3, int)),
        "generic": (np.array(2.5), np.float64(0)),
        "int": (np.array(3), 0),
        "float": (np.array(2.5), 0.0),
        "bool": (np.array(True), False),
    }
    arrays = {name: array for name, (array, _) in pairs.items()}
    target = {name: like for name, (_, like) in pairs.items()}
    found = carried_out(PLAIN, MemorySource(arrays), target)
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in target.items()
    }
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    assert found["numpy"].flags.owndata
    assert found["numpy"].flags.writeable


def test_without_a_target_scalars_are_numbers_and_arrays_are_of_jax() -> None:
    others = {"n": 3, "f": 2.5, "b": True, "s": "text", "e": {}, "l": [], "none": None}
    tree = {"a": np.arange(3, dtype=np.int32), **others}
    found = dict(carried_out(PLAIN, TreeSource(live_tree(tree), "(tree)")))
    array = found.pop("a")
    assert isinstance(array, jax.Array)
    assert not array.committed
    assert array.tolist() == [0, 1, 2]
    assert found == others
    assert {name: type(value) for name, value in found.items()} == {n: type(v) for n, v in others.items()}


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_come_back_on_their_sharding(impl: str) -> None:
    keys = jax.random.split(jax.random.key(3, impl=impl), 8)
    raw = np.asarray(jax.random.key_data(keys))
    target = {"keys": jax.device_put(keys, sharded((4, 2), "x"))}
    source = MemorySource({"keys": raw})
    leaf = replace(source.leaves()["keys"], kind=LeafKind.PRNG_KEY, prng_impl=impl)
    source.leaves = lambda: {"keys": leaf}  # type: ignore[method-assign]
    found = carried_out(PLAIN, source, target)["keys"]
    assert found.sharding == target["keys"].sharding
    assert jax.random.key_impl(found) == jax.random.key_impl(keys)
    np.testing.assert_array_equal(np.asarray(jax.random.key_data(found)), raw)


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_the_kind_of_memory_is_that_of_the_sharding(kind: str) -> None:
    sharding = sharded((8,), "x").with_memory_kind(kind)
    target = {"a": jax.ShapeDtypeStruct((8, 2), jnp.float32, sharding=sharding)}
    source = MemorySource({"a": random_array(8, 2)})
    assert_holds(carried_out(PLAIN, source, target)["a"], source.arrays["a"], sharding)


# --- errors, signals, progress ----------------------------------------------------------------------------


class Failing(MemorySource):
    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        raise self.error

    error: BaseException


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (SourceError("it is damaged"), SourceError, "`a`: it is damaged"),
        (MemoryError("too much"), OutOfMemoryError, "`a`: there is not enough memory to make it"),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_what_fails_is_told_with_the_key(
    error: Exception, kind: type[Exception], says: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(computing, "SIDE_BY_SIDE", 0)
    source = Failing({"a": random_array(4)})
    source.error = error
    with pytest.raises(kind, match=says):
        carried_out(PLAIN, source)


def test_devices_without_room_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 64 bytes.")

    monkeypatch.setattr(jax, "device_put", full)
    sources = {"source": MemorySource({"a": random_array(4)})}
    monkeypatch.setattr(LiveEncoder, "unsupported", lambda encoder, leaves: [])
    with pytest.raises(OutOfMemoryError, match=r"`a`: the devices have no room for 16 B of it"):
        carried_out(PLAIN, sources["source"])


def test_a_signal_ends_it() -> None:
    begun = threading.Event()

    class Slow(MemorySource):
        def read(self, leaf: Leaf, region: Region) -> np.ndarray:
            if not begun.is_set():
                begun.set()
                signal.raise_signal(signal.SIGINT)
            return super().read(leaf, region)

    source = Slow({f"a{i}": random_array(64, 64) for i in range(400)})
    with interruptible(), pytest.raises(Interrupted):
        carried_out(PLAIN, source)
    assert len(source.regions) < 400


@pytest.mark.parametrize("large", [False, True])
def test_progress_counts_the_bytes_of_this_process_up_to_all(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(computing, "SIDE_BY_SIDE", 0)
    seen: list[Progress] = []
    tree = {"a": np.zeros((100, 100), np.float32), "b": jnp.zeros(10), "n": 3}
    carried_out(
        PLAIN, TreeSource(live_tree(tree), "(tree)"), tree | {"b": jnp.ones(10)}, progress=seen.append
    )
    assert seen[-1] == Progress(40_048, 40_048, "reading")
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)
