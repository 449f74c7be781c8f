"""Writes the checkpoints beside this file, each with the version of Orbax that its name begins with.

    python write.py

writes those of the version of Orbax that is installed. They were written with Python 3.11 and

| orbax-checkpoint | jax, jaxlib | flax | tensorstore | numpy | etils | ml_dtypes |
|---|---|---|---|---|---|---|
| 0.2.7 | 0.4.13 | 0.7.0 | 0.1.40 | 1.26.4 | 1.3.0 | 0.2.0 |
| 0.3.5 | 0.4.13 | 0.7.2 | 0.1.42 | 1.26.4 | 1.4.1 | 0.2.0 |
| 0.4.8 | 0.4.23 | 0.7.5 | 0.1.52 | 1.26.4 | 1.6.0 | |
| 0.5.9 | 0.4.26 | 0.8.2 | 0.1.57 | 1.26.4 | 1.7.0 | |
| 0.9.1 | 0.4.35 | 0.10.2 | 0.1.69 | 2.0 | 1.11.0 | |
| 0.10.3 | 0.4.38 | 0.10.2 | 0.1.71 | 2.1 | 1.11.0 | |

What is in them, `tests/formats/orbax/test_versions.py` says as well, for there no old version is installed.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

STRINGS = tuple(int(part) for part in ocp.__version__.split(".")[:2]) >= (0, 4)
"""Whether strings can be saved beside arrays."""


def tree(strings: bool = True, devices: int = 8) -> dict[str, Any]:
    """Arrays of both kinds, with chunks of zeros and without; containers, scalars, a string, empty nodes."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    sparse = np.zeros((8, 3), np.float32)
    sparse[2:4] = 1.5
    return {
        "params": {
            "w": jax.device_put(np.arange(24, dtype=np.float32).reshape(8, 3), rows),
            "sparse": jax.device_put(sparse, rows),
            "b": jnp.arange(4).astype(jnp.bfloat16),
        },
        "layers": [np.arange(5, dtype=np.int32), {"deep": np.array([0.5, -2.0])}],
        "zeros": np.zeros((2, 2), np.float32),
        "step": 7,
        "rate": 0.25,
        **({"name": "run"} if strings else {}),
        "none": None,
        "dict": {},
        "list": [],
    }


def aggregated(tree: Any, whole: bool) -> Any:
    """Save arguments that put arrays and scalars into the MessagePack file: all, or the smaller ones."""

    def arguments(path: Any, value: Any) -> Any:
        inside = whole or np.ndim(value) < 2 or path[0] == jax.tree_util.DictKey("zeros")
        return ocp.SaveArgs(aggregate=inside and not isinstance(value, str))

    return jax.tree_util.tree_map_with_path(arguments, tree)


def save(path: Path, aggregate: str = "", **options: Any) -> None:
    """Save with a PyTreeCheckpointHandler; `aggregate`: `some` or `all`, else what Orbax does by itself."""
    whole = aggregate == "all"  # what is aggregated lies on one device
    saved = tree(STRINGS, 1 if whole else 8)
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options))
    checkpointer.save(path, saved, **({"save_args": aggregated(saved, whole)} if aggregate else {}))


def save_with_flax(path: Path) -> None:
    """As `flax.training.checkpoints` does with Orbax as its backend."""
    import flax
    from flax.training import checkpoints

    flax.config.update("flax_use_orbax_checkpointing", True)
    made = checkpoints.save_checkpoint(os.fspath(path.with_name("flax-tmp")), tree(), 3)
    shutil.move(made, path)
    shutil.rmtree(path.with_name("flax-tmp"))


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "plain": lambda path: save(path, use_ocdbt=False),
    "ocdbt": lambda path: save(path, use_ocdbt=True),
    "aggregated-plain": lambda path: save(path, "some", use_ocdbt=False),
    "aggregated-ocdbt": lambda path: save(path, "some", use_ocdbt=True),
    "all-aggregated": lambda path: save(path, "all", use_ocdbt=True),
    "zarr3-plain": lambda path: save(path, use_ocdbt=False, use_zarr3=True),
    "zarr3-ocdbt": lambda path: save(path, use_ocdbt=True, use_zarr3=True),
    "flax": save_with_flax,
}
WRITTEN = (
    *("0.2.7-plain", "0.2.7-flax"),
    *("0.3.5-ocdbt", "0.3.5-aggregated-ocdbt", "0.3.5-flax"),
    *(
        "0.4.8-ocdbt",
        "0.4.8-aggregated-plain",
        "0.4.8-aggregated-ocdbt",
        "0.4.8-all-aggregated",
        "0.4.8-flax",
    ),
    *("0.5.9-aggregated-ocdbt", "0.5.9-flax", "0.5.9-zarr3-plain", "0.5.9-zarr3-ocdbt"),
    *("0.9.1-zarr3-plain", "0.9.1-zarr3-ocdbt"),
    "0.10.3-zarr3-plain",
)
"""Version and layout."""


def main() -> None:
    for name in WRITTEN:
        version, layout = name.split("-", 1)
        if version == ocp.__version__:
            path = Path(__file__).absolute().parent / name
            shutil.rmtree(path, ignore_errors=True)
            LAYOUTS[layout](path)


if __name__ == "__main__":
    main()
