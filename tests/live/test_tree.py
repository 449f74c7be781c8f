"""Pytrees as checkpoints list them: compared with what Orbax writes for the same trees."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ckpt_surgery import apply, inspect
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.core.keys import Key, nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.live.tree import is_abstract, live_tree, recorded_sharding
from tests.support import checkpoints, pytrees
from tests.support.checkpoints import sharded
from tests.support.effort import examples
from tests.support.pytrees import EMPTY, KINDS, ones, state

WRITERS: dict[str, Callable[[Path, Any], None]] = {
    "PyTreeSave": checkpoints.save_pytree,
    "StandardSave": checkpoints.save_standard,
    "v1": checkpoints.save_v1,
}

Tree = Any


def saved(path: Path, tree: Tree, writer: str) -> list[Leaf]:
    """What our reader lists of what Orbax writes, without where it is stored."""
    WRITERS[writer](path, tree)
    return [replace(leaf, manifest=None) for leaf in inspect(path).leaves]


def listed(tree: Tree) -> list[Leaf]:
    return list(live_tree(tree).leaves.values())


# --- keys -------------------------------------------------------------------------------------------------


def test_keys_of_containers() -> None:
    found = {
        name: {
            leaf.key.text: "".join("dl"[index] for index in leaf.key.sequences)
            for leaf in listed(kind.build())
        }
        for name, kind in KINDS.items()
    }
    assert found == {name: kind.keys for name, kind in KINDS.items()}


@pytest.mark.parametrize("writer", WRITERS)
def test_leaves_are_those_that_orbax_saves(writer: str, tmp_path: Path) -> None:
    """Of every kind of container, of empty node and of leaf: keys, types and shardings."""
    everything = {
        "kinds": {name: kind.build() for name, kind in KINDS.items()},
        "empty": {name: build() for name, (build, _) in EMPTY.items()},
        "leaves": {name: build() for name, build in LEAVES.items()},
    }
    assert listed(everything) == saved(tmp_path / "checkpoint", everything, writer)


@pytest.mark.parametrize("writer", ["PyTreeSave", "v1"])
@pytest.mark.parametrize(
    "tree", [ones(), np.arange(3), 3, "text", (ones(), {"x": 1})], ids=["jax", "numpy", "int", "str", "tuple"]
)
def test_the_root_may_be_a_leaf_or_a_list(tree: Tree, writer: str, tmp_path: Path) -> None:
    assert listed(tree) == saved(tmp_path / "checkpoint", tree, writer)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_module_of_nnx_is_listed_as_orbax_saves_its_state(writer: str, tmp_path: Path) -> None:
    """Orbax saves a module itself with empty nodes that depend on the version of flax."""
    module = pytrees.Blocks()
    assert listed(module) == saved(tmp_path / "checkpoint", nnx.state(module), writer)
    assert isinstance(live_tree(module).rebuilt({}), pytrees.Blocks)


def test_a_slash_in_a_name_stays_in_one_component() -> None:
    (leaf,) = listed({"a/b": {"c.d": 1}})
    assert leaf.key == Key(("a/b", "c.d"), (False, False))
    assert list(live_tree({None: 1}).leaves) == ["None"]


def test_entries_of_other_kinds_are_named_as_they_print() -> None:
    """Such as a library may define for its own nodes; Orbax saves no such tree."""

    class Cell:
        def __init__(self, value: Any):
            self.value = value

    class Slot:
        def __str__(self) -> str:
            return "slot"

    jax.tree_util.register_pytree_with_keys(
        Cell, lambda cell: (((Slot(), cell.value),), None), lambda _, children: Cell(*children)
    )
    assert list(live_tree({"x": Cell(1)}).leaves) == ["x/slot"]


def test_trees_without_keys() -> None:
    for tree, message in (
        (
            {"a/b": 1, "a": {"b": 2}},
            "Two leaves would be called `a/b`: ('a', 'b') and ('a/b',)\n"
            "  Rename a container whose name has a slash.",
        ),
        ({1: 1, "a": 2}, "jax cannot flatten the tree: Comparator raised exception while sorting"),
    ):
        with pytest.raises(UsageError) as raised:
            live_tree(tree)
        assert str(raised.value).startswith(message)


def test_traced_values_have_no_value() -> None:
    with pytest.raises(UsageError, match=r"^`x/0` has no value yet: jax traces it\n"):
        jax.jit(lambda x: live_tree({"x": [x]}))(1.0)


# --- leaves -----------------------------------------------------------------------------------------------

WIDTHS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4", "int2")

LEAVES: dict[str, Callable[[], Any]] = {
    "bool": lambda: True,
    "int": lambda: 3,
    "int of 64 bits": lambda: 2**63 - 1,
    "int beyond 64 bits with a sign": lambda: 2**63,
    "float": lambda: 1.5,
    "enum": lambda: HTTPStatus.OK,
    "array": lambda: np.arange(6.0).reshape(2, 3),
    "array without axes": lambda: np.array(3),
    "array of another byte order": lambda: np.arange(3, dtype=">i4"),
    "masked array": lambda: np.ma.masked_array([1.0, 2.0]),
    **{name: lambda name=name: np.ones(3, getattr(ml_dtypes, name)) for name in WIDTHS},
    **{f"{name} of jax": lambda name=name: jnp.ones(3, name) for name in WIDTHS},
    "uncommitted": lambda: jax.jit(lambda: jnp.ones(3))(),
    "on a device": lambda: jax.device_put(ones(), jax.devices()[2]),
    "PRNG key": lambda: jax.random.key(0),
    "PRNG keys": lambda: jax.random.split(jax.random.key(0, impl="rbg"), 3),
    "unsafe PRNG key": lambda: jax.random.key(0, impl="unsafe_rbg"),
    "raw PRNG key": lambda: jax.random.PRNGKey(0),
    "divided PRNG keys": lambda: sharded(jax.random.split(jax.random.key(0), 8), "x"),
    "replicated PRNG keys": lambda: sharded(jax.random.split(jax.random.key(0), 8)),
    "replicated PRNG key": lambda: sharded(jax.random.key(0)),
    "PRNG key on a device": lambda: jax.device_put(jax.random.key(0), jax.devices()[3]),
    **{
        f"divided by {axes}": lambda axes=axes: sharded(np.ones((8, 8)), *axes)
        for axes in [(), ("x",), (None, "y"), ("y", "x"), (("x", "y"),), (None, ("x",))]
    },
    "divided over some devices": lambda: jax.device_put(
        np.ones(8), NamedSharding(Mesh(np.array(jax.devices())[[7, 5]], "p"), PartitionSpec("p"))
    ),
    "divided over explicit axes": lambda: jax.device_put(
        np.ones(8), NamedSharding(jax.make_mesh((8,), ("z",), (AxisType.Explicit,)), PartitionSpec("z"))
    ),
}


@pytest.mark.parametrize("writer", ["PyTreeSave", "v1"])
def test_strings_are_those_that_orbax_saves(writer: str, tmp_path: Path) -> None:
    tree = state(s="hello", numpy=np.str_("w/örld"), empty="")
    leaves = listed(tree)
    assert leaves == saved(tmp_path / "checkpoint", tree, writer)
    assert {leaf.key.text: leaf.string for leaf in leaves} == {
        "array": None,
        "empty": "",
        "numpy": "w/örld",
        "s": "hello",
    }


def test_numpy_scalars_are_scalars_of_their_dtype(tmp_path: Path) -> None:
    """As PyTreeSave lists them; StandardSave makes arrays of them, and v1 refuses them."""
    tree = {"i": np.int32(3), "h": np.float16(1.5), "d": np.float64(2), "u": np.uint64(2**63)}
    assert listed(tree) == saved(tmp_path / "checkpoint", tree, "PyTreeSave")
    others = saved(tmp_path / "standard", tree, "StandardSave")
    assert [replace(leaf, kind=LeafKind.SCALAR) for leaf in others] == listed(tree)
    assert {leaf.kind for leaf in others} == {LeafKind.ARRAY}


def test_numbers_that_orbax_refuses_are_scalars_and_arrays_without_elements_are_arrays() -> None:
    for value, kind, shape, dtype in (
        (np.bool_(True), LeafKind.SCALAR, (), "bool"),
        (ml_dtypes.bfloat16(1.5), LeafKind.SCALAR, (), "bfloat16"),
        (1 + 2j, LeafKind.SCALAR, (), "complex128"),
        (np.zeros((0, 4), np.int8), LeafKind.ARRAY, (0, 4), "int8"),
    ):
        (leaf,) = listed([value])
        assert (leaf.kind, leaf.spec) == (kind, ArraySpec(shape, checkpoints.dtype(dtype)))


def test_what_no_checkpoint_can_hold_is_a_leaf_all_the_same(tmp_path: Path) -> None:
    """Otherwise it would be left out without a word."""
    for value in (
        np.array(["a"]),
        np.array(["a"], np.dtypes.StringDType()),
        np.array([None]),
        np.array(["2020-01-01"], "datetime64[s]"),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2, jax.dtypes.float0),
        2**70,
    ):
        (leaf,) = listed([value])
        assert leaf.spec == ArraySpec(np.shape(value), np.asarray(value).dtype)
        with pytest.raises(PlanError, match=r"^`x` is [\w\[\]]+, which Orbax cannot store; "):
            apply(None, state(x=value), dst=tmp_path / "checkpoint")


def test_nodes_without_children_are_empty_leaves() -> None:
    for build, kind in EMPTY.values():
        assert listed(build()) == [Leaf(Key((), ()), LeafKind.EMPTY, empty=kind)]


def test_functions_are_no_leaves_and_other_objects_have_a_type() -> None:
    module = pytrees.equinox_module()
    tree: Tree = {"module": module, "function": len, "bytes": b"x", "type": int, "object": object()}
    live = live_tree(tree)
    assert {text: leaf.type for text, leaf in live.leaves.items()} == {
        "bytes": "bytes",
        "module/layers/0/weight": None,
        "module/layers/0/bias": None,
        "object": "object",
    }
    assert live.rebuilt({}) == tree


def test_descriptions_have_no_value() -> None:
    sharding = NamedSharding(checkpoints.mesh(), PartitionSpec("x"))
    arrays = {
        "array": jnp.ones((4, 2), jnp.bfloat16),
        "key": jax.random.key(0, impl="rbg"),
        "keys": jax.random.split(jax.random.key(0), 4),
        "sharded": jax.device_put(ones(8, 2), sharding),
        "sharded keys": jax.device_put(jax.random.split(jax.random.key(0), 4), sharding),
    }
    described = {
        name: jax.ShapeDtypeStruct(
            value.shape, value.dtype, sharding=sharding if name.startswith("sharded") else None
        )
        for name, value in arrays.items()
    }
    ours, theirs = live_tree(described), live_tree(arrays)
    assert [is_abstract(value) for value in ours.values.values()] == [True] * 5
    assert [is_abstract(value) for value in theirs.values.values()] == [False] * 5
    for name, leaf in ours.leaves.items():
        expected = (
            theirs.leaves[name] if name.startswith("sharded") else replace(theirs.leaves[name], sharding=None)
        )
        assert leaf == expected


def test_arrays_that_were_donated_are_described_and_have_no_value() -> None:
    given = {"w": sharded(np.ones((8, 8)), "x"), "key": jax.random.split(jax.random.key(0), 3)}
    before = listed(given)
    for value in given.values():
        value.delete()
    after = live_tree(given)
    assert list(after.leaves.values()) == [before[0], replace(before[1], sharding=before[1].sharding)]
    assert all(is_abstract(value) for value in after.values.values())


# --- rebuilding -------------------------------------------------------------------------------------------


def structure(tree: Tree) -> Any:
    return jax.tree.structure(tree)


def same(one: Tree, other: Tree) -> bool:
    """Whether two trees have the same structure, and at each position the same object."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return structure(one) == structure(other) and all(x is y for x, y in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_rebuilt_has_the_structure_and_objects_of_the_tree_and_the_new_values(kind: str) -> None:
    tree = KINDS[kind].build()
    live = live_tree(tree)
    assert same(live.rebuilt({}), tree)
    new = {text: np.array(i) for i, (text, leaf) in enumerate(live.leaves.items()) if leaf.empty is None}
    rebuilt = live.rebuilt(new)
    assert structure(rebuilt) == structure(tree)
    assert {text: value for text, value in live_tree(rebuilt).values.items() if text in new} == new


def test_rebuilt_keeps_functions_and_static_fields() -> None:
    tree: Tree = {"state": pytrees.train_state(), "module": pytrees.equinox_module(), "f": len}
    rebuilt = live_tree(tree).rebuilt({"state/step": 7, "module/layers/0/bias": None})
    assert rebuilt["state"].step == 7
    assert rebuilt["state"].apply_fn == tree["state"].apply_fn
    assert rebuilt["state"].tx is tree["state"].tx
    assert (rebuilt["module"].activation, rebuilt["module"].width) == (jax.nn.relu, 7)
    assert rebuilt["module"].layers[0].bias is None
    assert rebuilt["f"] is len


def test_rebuilt_states_work_in_their_libraries() -> None:
    """NNX merges, Equinox calls."""
    graph, variables = nnx.split(pytrees.Blocks())
    kernel = np.full((2, 3), 5.0, np.float32)
    merged = nnx.merge(graph, live_tree(variables).rebuilt({"first/kernel/value": kernel}))
    assert np.array_equal(merged.first.kernel[...], kernel)

    layer = eqx.nn.Linear(2, 3, key=jax.random.key(0))
    zero = live_tree(layer).rebuilt({"weight": jnp.zeros((3, 2)), "bias": jnp.arange(3.0)})
    assert zero(jnp.ones(2)).tolist() == [0, 1, 2]


# --- random trees -----------------------------------------------------------------------------------------

NAMES = st.text("abz_./0123456789 é", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
VALUES = st.one_of(
    st.builds(lambda n: np.arange(n), st.integers(1, 3)),
    st.builds(lambda n: jnp.arange(n), st.integers(1, 3)),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.builds(lambda build: build(), st.sampled_from([build for build, _ in EMPTY.values()])),
)


def containers(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.dictionaries(NAMES, inner, max_size=4),
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.builds(pytrees.Pair, inner, inner),
        st.lists(inner, max_size=3).map(lambda children: pytrees.Keyless(*children)),
    )


TREES = st.recursive(VALUES, containers, max_leaves=12)


def expected_keys(tree: Tree, path: tuple[tuple[str, bool], ...] = ()) -> list[Key]:
    """Keys of a random tree, found without jax."""
    if isinstance(tree, dict) and type(tree) is dict:
        members = [((name, False), tree[name]) for name in sorted(tree)]
    elif isinstance(tree, pytrees.Pair):
        members = [(("first", False), tree.first), (("second", False), tree.second)]
    elif type(tree) in (list, tuple) or isinstance(tree, pytrees.Keyless):
        children = tree.children if isinstance(tree, pytrees.Keyless) else tree
        members = [((str(i), True), child) for i, child in enumerate(children)]
    else:
        members = []
    found = [found for entry, member in members for found in expected_keys(member, (*path, entry))]
    return found or [Key(tuple(name for name, _ in path), tuple(index for _, index in path))]


def distinct(tree: Tree) -> bool:
    keys = [found.text for found in expected_keys(tree)]
    return len(set(keys)) == len(keys)


@examples(60)
@given(tree=TREES.filter(distinct))
def test_random_trees_are_listed_and_rebuilt(tree: Tree) -> None:
    live = live_tree(tree)
    assert [leaf.key for leaf in live.leaves.values()] == expected_keys(tree)
    assert same(live.rebuilt({}), tree)
    assert same(live.rebuilt(live.values), tree)
    new = {text: object() for text, leaf in live.leaves.items() if leaf.empty is None}
    rebuilt = live.rebuilt(new)
    assert structure(rebuilt) == structure(tree)
    assert jax.tree.leaves(rebuilt) == list(new.values())


def key(text: str, *indices: int) -> Key:
    names = tuple(text.split("/"))
    return Key(names, tuple(i in indices for i in range(len(names))))


def test_keys_say_which_containers_are_lists() -> None:
    for leaves, tree in (
        (
            [(key("a/b"), 1), (key("a/l/1", 2), 3), (key("a/l/0", 2), 2), (key("c/0"), 4)],
            {"a": {"b": 1, "l": [2, 3]}, "c": {"0": 4}},
        ),
        ([(key("0/1", 0, 1), "b"), (key("0/0", 0, 1), "a"), (key("1", 0), "c")], [["a", "b"], "c"]),
        ([(key(f"l/{i}", 1), i) for i in range(12)], {"l": list(range(12))}),
        ([(Key(("a/b", "c"), (False, False)), 1)], {"a/b": {"c": 1}}),
        ([(Key((), ()), 7)], 7),
    ):
        assert nested(leaves) == tree


def test_shardings_that_orbax_does_not_record() -> None:
    abstract = NamedSharding(AbstractMesh((4,), ("x",)), PartitionSpec("x"))
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
    unconstrained = NamedSharding(mesh, PartitionSpec(PartitionSpec.UNCONSTRAINED))
    for sharding in (None, abstract, unconstrained):  # None is that of a ShapeDtypeStruct
        assert recorded_sharding(sharding) is None


def storable(tree: Tree) -> bool:
    """Whether Orbax can save a tree: its arrays have names of their own, joined with dots, in its store."""
    leaves = live_tree(tree).leaves.values()
    names = [".".join(leaf.key.names).rstrip("/") for leaf in leaves if leaf.empty is None]
    return len(set(names)) == len(names) > 0


@examples(60)
@given(tree=TREES.map(lambda tree: {"tree": tree, "one": 1}).filter(distinct).filter(storable))
def test_random_trees_are_listed_as_orbax_saves_them(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("random") / "tree"
    assert listed(tree) == saved(path, tree, "PyTreeSave")
