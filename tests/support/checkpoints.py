"""Real checkpoints, written and restored by stock Orbax, and what is in them."""

import contextlib
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.protocols import Output, Source
from ckpt_surgery.formats.opening import encoder, open_sink
from ckpt_surgery.formats.registry import SinkOptions
from tests.support.comparing import assert_same
from tests.support.heavy import jax, jnp, ocp
from tests.support.ports import free_port

CUSTOM = {"run": "a17", "tokens": 1234567890123}
"""Custom metadata, saved in every layout that has a place for it."""

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("bfloat16", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn", "int2", "int4"),
)
"""Every dtype that stock Orbax saves and restores."""


def dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, or ml_dtypes'."""
    return np.dtype(getattr(ml_dtypes, name, name))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings: Orbax warns of what these tests do on purpose, such as restoring without a target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def mesh() -> "jax.sharding.Mesh":
    return jax.make_mesh((4, 2), ("x", "y"))


def sharded(array: np.ndarray, *axes: str | None) -> "jax.Array":
    places = jax.sharding.PartitionSpec(*axes)
    return jax.device_put(array, jax.sharding.NamedSharding(mesh(), places))


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Float32 numbers that do not compress, so that they lie in data files and not in the index."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tree(strings: bool = False) -> dict[str, Any]:
    """A tree with every kind of leaf, container and key that all of Orbax's writers accept."""
    leaves: dict[str, Any] = {
        "params": {"w": sharded(random((32, 64)), "x", "y"), "b": jnp.arange(4, dtype=jnp.bfloat16)},
        "layers": [jnp.zeros((2, 3)), np.arange(5), {"deep": np.float64([0.5])}],
        "replicated": sharded(random((6, 16), 1), None, "y"),
        "a/b": {"c": np.ones(2)},
        "big": random((300, 20), 2),
        "key": jax.random.key(7),
        "count": 3,
        "rate": 1.5,
        "flag": True,
        "none": None,
        "dict": {},
        "list": [],
        "tuple": (),
    }
    return leaves | ({"name": "hello", "a/b": {"c": np.ones(2), "s": "w/örld"}} if strings else {})


def expected(strings: bool = False) -> dict[str, Any]:
    """What `tree` holds, by key: arrays, strings, and the kinds of empty nodes, such as `<Dict>`."""
    values = {
        "params/w": random((32, 64)),
        "params/b": np.arange(4).astype(ml_dtypes.bfloat16),
        "layers/0": np.zeros((2, 3), np.float32),
        "layers/1": np.arange(5),
        "layers/2/deep": np.float64([0.5]),
        "replicated": random((6, 16), 1),
        "a/b/c": np.ones(2),
        "big": random((300, 20), 2),
        "key": np.array([0, 7], np.uint32),
        "count": np.array(3),
        "rate": np.array(1.5),
        "flag": np.array(True),
        "none": "<None>",
        "dict": "<Dict>",
        "list": "<List>",
        "tuple": "<Tuple>",
    }
    return values | ({"name": "hello", "a/b/s": "w/örld"} if strings else {})


def save_pytree(
    path: Path,
    value: Any,
    ocdbt: bool = True,
    zarr3: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Save with PyTreeCheckpointHandler, the only handler of Orbax's first interface that takes strings."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    custom = None if metadata is None else dict(metadata)
    with quiet(), ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, ocp.args.PyTreeSave(value, custom_metadata=custom))


def _pytree(ocdbt: bool, zarr3: bool) -> Callable[[Path], None]:
    return lambda path: save_pytree(path, tree(strings=True), ocdbt, zarr3, CUSTOM)


def save_standard(path: Path, value: Any) -> None:
    with quiet(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, value)


def save_steps(path: Path, steps: Mapping[int, Any], prefix: str | None = None) -> None:
    """A CheckpointManager's directory with one item per step; with a prefix, steps have eight digits."""
    options = ocp.CheckpointManagerOptions(
        step_prefix=prefix, step_format_fixed_length=8 if prefix else None, enable_async_checkpointing=False
    )
    with quiet(), ocp.CheckpointManager(path, options=options) as manager:
        for step, value in steps.items():
            manager.save(step, args=ocp.args.StandardSave(value), custom_metadata=CUSTOM)


def save_composite(path: Path, step: int, **items: Any) -> None:
    """One step with several items of arrays, and an item `data` that is JSON."""
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    saves = {name: ocp.args.StandardSave(value) for name, value in items.items()}
    with quiet(), ocp.CheckpointManager(path, options=options) as manager:
        manager.save(step, args=ocp.args.Composite(data=ocp.args.JsonSave({"epoch": 1}), **saves))


def save_v1(path: Path, value: Any) -> None:
    with quiet():
        ocp.v1.save_pytree(path, value, custom_metadata=dict(CUSTOM))


_PROCESS = """
    import os, sys
    process, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    import numpy as np, orbax.checkpoint as ocp
    whole = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    mesh = jax.make_mesh((4,), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, {"w": array, "count": 3})
"""


def save_two_processes(path: Path) -> None:
    """`{"w": random((32, 64)), "count": 3}` saved by two jax processes, two devices each."""
    code, port = textwrap.dedent(_PROCESS), str(free_port())
    arguments = [[sys.executable, "-c", code, str(i), port, str(path)] for i in range(2)]
    running = [subprocess.Popen(a, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for a in arguments]
    for process in running:
        output = process.communicate()[0].decode()
        assert process.returncode == 0, output


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "plain-zarr2": _pytree(ocdbt=False, zarr3=False),
    "plain-zarr3": _pytree(ocdbt=False, zarr3=True),
    "ocdbt-zarr2": _pytree(ocdbt=True, zarr3=False),
    "ocdbt-zarr3": _pytree(ocdbt=True, zarr3=True),
    "standard": lambda path: save_standard(path, tree()),
    "steps": lambda path: save_steps(path, {3: tree() | {"count": 0}, 10: tree()}),
    "steps-prefixed": lambda path: save_steps(path, {3: tree() | {"count": 0}, 10: tree()}, "ckpt"),
    "composite": lambda path: save_composite(path, 5, state=tree()),
    "processes": save_two_processes,
    "v1": lambda path: save_v1(path, tree(strings=True)),
}
"""Functions that write a checkpoint, by layout. Each holds `tree()`, except for `processes`."""

WITH_STRINGS = ("plain-zarr2", "plain-zarr3", "ocdbt-zarr2", "ocdbt-zarr3", "v1")


def expected_of(layout: str) -> dict[str, Any]:
    """What a source must list and read for a layout."""
    if layout == "processes":
        return {"w": random((32, 64)), "count": np.array(3)}
    return expected(layout in WITH_STRINGS)


def rewrite(source: Source, directory: Path, options: SinkOptions | None = None) -> Path:
    """Write everything in `source` with this package's own sink, in the chunks of the source."""
    directory.mkdir(parents=True)
    options = SinkOptions(metadata=source.metadata) if options is None else options
    leaves = list(source.leaves().values())
    assert encoder("orbax", options).unsupported(leaves) == []
    outputs = [Output(leaf, leaf.manifest.chunk_shape if leaf.manifest else ()) for leaf in leaves]
    sink = open_sink("orbax", directory, options, outputs)
    sink.create()
    writer = sink.attach("0")
    for output in outputs:
        if output.leaf.spec is not None:
            for region in chunk_regions(output.leaf.spec.shape, output.chunks):
                writer.write(output, region, source.read(output.leaf, region))
    writer.flush()
    sink.finish(["0"])
    return directory


def restored_leaves(value: Any) -> dict[str, Any]:
    """A tree that Orbax restored, in the form of `expected`: sharded arrays whole, PRNG keys as raw data."""
    found = {}
    empty = lambda node: node is None or (isinstance(node, dict | list | tuple) and not node)  # noqa: E731
    for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=empty):
        text = "/".join(str(getattr(part, "key", getattr(part, "idx", part))) for part in path)
        if empty(leaf):
            found[text] = f"<{'None' if leaf is None else type(leaf).__name__.capitalize()}>"
        elif isinstance(leaf, str):
            found[text] = leaf
        elif isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            found[text] = np.asarray(jax.random.key_data(leaf))
        else:
            found[text] = np.asarray(leaf)
    return found


def restored(path: Path) -> dict[str, Any]:
    """What stock Orbax restores without a target, in the form of `expected`."""
    with quiet():
        return restored_leaves(ocp.PyTreeCheckpointer().restore(path))


def restored_by_all(path: Path, with_strings: bool) -> dict[str, Any]:
    """What every stock reader that takes such a tree restores; all of them must agree."""
    tree = restored(path)
    with quiet():
        assert_same(restored_leaves(ocp.v1.load(path)), tree)
        if not with_strings:
            assert_same(restored_leaves(ocp.StandardCheckpointer().restore(path)), tree)
    return tree
