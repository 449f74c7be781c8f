"""Trees in memory as sources: the values of every kind of leaf, and what has none."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery import apply, inspect
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import live_tree
from tests.support import checkpoints
from tests.support.checkpoints import random, sharded
from tests.support.ports import free_port


def source_of(tree: Any) -> TreeSource:
    return TreeSource(live_tree(tree), "(tree)")


def read(source: Source, text: str, region: Region | None = None) -> np.ndarray:
    """A region of a leaf; the whole leaf without one."""
    leaf = source.leaves()[text]
    assert leaf.spec is not None
    found = source.read(leaf, region or Region.whole(leaf.spec.shape))
    assert (type(found), found.dtype) == (np.ndarray, leaf.spec.dtype)
    return found


ARRAYS: dict[str, tuple[Any, np.ndarray]] = {
    "NumPy": (random((6, 4)), random((6, 4))),
    "not in C order": (random((6, 4)).T, random((6, 4)).T),
    "float8": (np.ones(3, ml_dtypes.float8_e5m2), np.ones(3, ml_dtypes.float8_e5m2)),
    "other byte order": (random((6, 4)).astype(">f4"), random((6, 4))),
    "masked": (np.ma.masked_array([1.0, 2.0]), np.array([1.0, 2.0])),
    "without elements": (np.zeros((0, 4)), np.zeros((0, 4))),
    "without axes": (np.array(3), np.array(3)),
    "int": (-3, np.array(-3)),
    "large int": (2**63, np.array(2**63, np.uint64)),
    "float": (1.5, np.array(1.5)),
    "bool": (True, np.array(True)),
    "complex": (1 + 2j, np.array(1 + 2j)),
    "bfloat16": (ml_dtypes.bfloat16(1.5), np.array(1.5, ml_dtypes.bfloat16)),
    "NumPy scalar": (np.int8(-1), np.array(-1, np.int8)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_values_of_the_host(name: str) -> None:
    value, expected = ARRAYS[name]
    source = source_of({"x": [value]})
    found = read(source, "x/0")
    assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    part = Region(tuple(min(1, length) for length in expected.shape), expected.shape)
    assert np.array_equal(read(source, "x/0", part), expected[part.slices])


@pytest.mark.parametrize("axes", [("x", "y"), (None, "x"), (("y", "x"), None), ()])
def test_values_of_devices(axes: tuple[Any, ...]) -> None:
    source = source_of({"w": sharded(random((8, 16)), *axes)})
    assert np.array_equal(read(source, "w"), random((8, 16)))
    region = Region((1, 3), (7, 14))
    assert np.array_equal(read(source, "w", region), random((8, 16))[region.slices])


def test_random_keys_are_read_as_their_numbers() -> None:
    keys = sharded(jax.random.split(jax.random.key(7), 8), "x")
    source = source_of({"keys": keys, "one": jax.random.key(7)})
    assert np.array_equal(read(source, "keys"), jax.random.key_data(keys))
    assert np.array_equal(read(source, "one"), [0, 7])


def test_a_scalar_of_a_device() -> None:
    assert read(source_of([jnp.float32(2.5)]), "0").tolist() == 2.5
    assert read(source_of([sharded(np.float32(2.5))]), "0").tolist() == 2.5


def test_a_region_of_a_numpy_array_is_a_view() -> None:
    array = random((6, 4))
    found = read(source_of([array]), "0", Region((1, 1), (3, 4)))
    assert np.shares_memory(found, array)
    assert (found.flags.writeable, array.flags.writeable) == (False, True)


def donated() -> jax.Array:
    array = jnp.arange(3.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    return array


WITHOUT_VALUE: dict[str, tuple[Callable[[], Any], str]] = {
    "described": (
        lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
        "`p/w` of (tree) has a shape and a dtype, and no value\n  Give a tree of arrays, or a checkpoint.",
    ),
    "described key": (
        lambda: jax.eval_shape(lambda: jax.random.key(0)),
        "`p/w` of (tree) has a shape and a dtype, and no value\n  Give a tree of arrays, or a checkpoint.",
    ),
    "donated": (
        donated,
        "`p/w` of (tree) was deleted: its memory was donated to a function\n"
        "  Give the arrays that the function returned, or a checkpoint.",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_VALUE)
def test_leaves_without_a_value(name: str) -> None:
    build, message = WITHOUT_VALUE[name]
    source = source_of({"p": {"w": build()}})
    with pytest.raises(SourceError) as raised:
        read(source, "p/w")
    assert str(raised.value) == message


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


PROCESS = """
    import os, sys
    process, port = int(sys.argv[1]), sys.argv[2]
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    from ckpt_surgery.core.arrays import Region
    from ckpt_surgery.core.errors import SourceError
    from ckpt_surgery.live.source import TreeSource
    from ckpt_surgery.live.tree import live_tree

    whole = np.arange(32).reshape(8, 4)
    mesh = jax.make_mesh((4,), ("x",))

    def placed(*axes):
        return jax.make_array_from_callback(
            whole.shape, NamedSharding(mesh, PartitionSpec(*axes)), lambda index: whole[index]
        )

    keys = jax.jit(
        lambda: jax.random.split(jax.random.key(0), 4),
        out_shardings=NamedSharding(mesh, PartitionSpec("x")),
    )()
    source = TreeSource(live_tree({"w": placed("x"), "replicated": placed(), "keys": keys}), "(tree)")
    leaves = source.leaves()
    own = Region((4 * process, 1), (4 * process + 4, 3))
    assert np.array_equal(source.read(leaves["w"], own), whole[own.slices])
    everything = Region.whole((8, 4))
    assert np.array_equal(source.read(leaves["replicated"], everything), whole)
    assert source.read(leaves["keys"], Region((2 * process, 0), (2 * process + 2, 2))).shape == (2, 2)
    for name, region in (("w", everything), ("keys", Region.whole((4, 2)))):
        try:
            source.read(leaves[name], region)
        except SourceError as error:
            print(error)
"""


@pytest.mark.slow
def test_two_processes_read_what_they_hold() -> None:
    hint = "  Keep or rename it here and compute afterwards, or read it from a checkpoint."
    expected = [
        line
        for name in ("w", "keys")
        for line in (f"`{name}` of (tree) is computed with, but other processes hold a part of it", hint)
    ]
    port = free_port()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROCESS), str(i), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    try:
        ended = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    for process, (output, errors) in zip(running, ended, strict=True):
        assert (process.returncode, output.splitlines()) == (0, expected), errors
