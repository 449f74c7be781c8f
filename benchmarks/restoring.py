"""A checkpoint into a sharded state, restored: `python -m benchmarks.restoring WHO SOURCE`.

`write SOURCE SIZE` makes the checkpoint first. Every program fills the same state: 24 layers as one stack of
transposed bfloat16 kernels, sharded over eight virtual devices. The clock runs from the call until all shards
are there; imports and the making of the state come before. The last line of output is JSON.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

LAYERS = 24
PARTS = {
    **{f"attention/{name}": (1, 1) for name in ("query", "key", "value", "out")},
    "mlp/wi": (1, 4),
    "mlp/wo": (4, 1),
}
"""The kernels of a layer, and their shapes in units of the width."""

RECIPE = r"""
version: 1
rules:
  - match: 'params/layers_(?P<i>\d+)/(?P<part>.*)'
    to: 'params/layers/${part}'
    by: int(i)
    value: cast(transpose(stack(xs), [0, 2, 1]), 'bfloat16')
"""

Tree = dict[str, Any]


def width(nbytes: int) -> int:
    """Width of layers that have about that many bytes together in float32; eight devices divide it."""
    per_layer = sum(prod(shape) for shape in PARTS.values()) * 4
    return max(8, int((nbytes / LAYERS / per_layer) ** 0.5) // 8 * 8)


def nested(leaves: Iterator[tuple[str, Any]]) -> Tree:
    """Values by keys with `/` as nested dicts."""
    tree: Tree = {}
    for key, value in leaves:
        inner = tree
        *containers, last = key.split("/")
        for name in containers:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return tree


def write(source: str, nbytes: str) -> None:
    """Layers of normally distributed float32 numbers, saved by Orbax."""
    import numpy as np

    from benchmarks.checkpoints import save_orbax

    generator, side = np.random.default_rng(0), width(int(nbytes))
    shapes = {part: [side * n for n in shape] for part, shape in PARTS.items()}
    leaves = (
        (f"params/layers_{i}/{part}/kernel", generator.standard_normal(shape, np.float32))
        for i in range(LAYERS)
        for part, shape in shapes.items()
    )
    save_orbax(Path(source), nested(leaves))


def state(source: str) -> Tree:
    """Shapes, dtypes and shardings of the state that is to be filled."""
    import jax
    import orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    sharding = NamedSharding(mesh, PartitionSpec(None, "model", "data"))
    metadata: Any = ocp.PyTreeCheckpointer().metadata(Path(source)).item_metadata
    layer = metadata["params"]["layers_0"]
    leaves = (
        (f"params/layers/{part}/kernel", (LAYERS, *layer[group][name]["kernel"].shape[::-1]))
        for part in PARTS
        for group, name in [part.split("/")]
    )
    return nested((key, jax.ShapeDtypeStruct(shape, "bfloat16", sharding=sharding)) for key, shape in leaves)


# --- who restores -------------------------------------------------------------------------------------


def ours(source: str, target: Tree, *options: str) -> Tree:
    import ckpt_surgery

    given: Any = dict(option.split("=") for option in options)
    restored: Tree = ckpt_surgery.restore(RECIPE, source, target=target, **given)
    return restored


def stacked(key: str, tree: Tree) -> Any:
    """One leaf of the state from the kernels of all layers, in NumPy."""
    import ml_dtypes
    import numpy as np

    _, _, group, name, _ = key.split("/")
    kernels = (tree["params"][f"layers_{i}"][group][name]["kernel"] for i in range(LAYERS))
    return np.stack([kernel.T.astype(ml_dtypes.bfloat16) for kernel in kernels])


def transforms(source: str, target: Tree) -> Tree:
    """Orbax's transforms while it restores: functions of all layers at once."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    def on_devices(key: str, tree: Tree, arguments: ocp.ArrayRestoreArgs) -> jax.Array:
        return jax.device_put(stacked(key, tree), arguments.sharding)

    def rule(part: str) -> ocp.RestoreTransform:
        layers = rf"params/layers_\d+/{re.escape(part)}/kernel"
        inputs = {layers: ocp.RestoreArgs(restore_type=np.ndarray)}
        return ocp.RestoreTransform(multi_value_fn=on_devices, multi_value_fn_input_args=inputs)

    arguments = ocp.checkpoint_utils.construct_restore_args(target)
    rules = {f"params/layers/{part}/kernel": rule(part) for part in PARTS}
    checkpointer = ocp.PyTreeCheckpointer()
    restored: Tree = checkpointer.restore(Path(source), target, restore_args=arguments, transforms=rules)
    return restored


def transformations(source: str, target: Tree) -> Tree:
    """Orbax's restore of everything as NumPy arrays, `apply_transformations`, and then `device_put`."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    checkpointer = ocp.PyTreeCheckpointer()
    metadata: Any = checkpointer.metadata(Path(source)).item_metadata
    arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), metadata.tree)
    layers = checkpointer.restore(Path(source), restore_args=arguments)
    rules = {r"params/layers/.*": ocp.Transform(multi_value_fn=stacked)}
    host = ocp.apply_transformations(layers, rules, target)
    restored: Tree = jax.tree.map(lambda array, leaf: jax.device_put(array, leaf.sharding), host, target)
    return restored


WHO: dict[str, Callable[..., Tree]] = {who.__name__: who for who in (ours, transforms, transformations)}


# --- what is measured ---------------------------------------------------------------------------------


def memory(field: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS is what is resident now, VmHWM the most that was."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) << 10


def bytes_read() -> int:
    """Bytes that this process has taken from files so far, cached by the system or not."""
    return int(Path("/proc/self/io").read_text().split()[1])


def digest(tree: Tree) -> str:
    """Of values, dtypes, and shardings."""
    import jax
    import numpy as np

    told = hashlib.sha256()
    for path, array in jax.tree_util.tree_leaves_with_path(tree):
        told.update(f"{path}{array.dtype}{array.sharding.spec}".encode())
        told.update(np.ascontiguousarray(np.asarray(array)).view(np.uint8).data)
    return told.hexdigest()


def report(who: str, source: str, *options: str) -> dict[str, Any]:
    """Restore once, and say what that took: seconds, and bytes."""
    import jax
    import orbax.checkpoint

    import ckpt_surgery.api.restoring  # noqa: F401  imported here, so that it costs no time below

    assert orbax.checkpoint
    target = state(source)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    resident, read, worked, started = memory("VmRSS"), bytes_read(), time.process_time(), time.monotonic()
    restored = jax.block_until_ready(WHO[who](source, target, *options))
    seconds = time.monotonic() - started
    processor = time.process_time() - worked
    return {
        "seconds": seconds,
        "processor": processor,
        "peak": memory("VmHWM") - resident,
        "read": bytes_read() - read,
        "stored": sum(path.stat().st_size for path in Path(source).rglob("*") if path.is_file()),
        "result": sum(array.nbytes for array in jax.tree.leaves(restored)),
        "digest": digest(restored),
    }


if __name__ == "__main__":
    os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    else:
        print(json.dumps(report(*sys.argv[1:])))
