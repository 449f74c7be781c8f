"""One of two processes of a program under `jax.distributed`, with four devices each.

`python -m tests.support.process_pair PORT NUMBER CHECKPOINT` restores once for each of CASES, one after
another, and prints as JSON what it got each time: after an error both can go on.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError, SurgeryError
from ckpt_surgery.formats.plain_files import ListedSource

CASES: dict[str, str] = {
    "both": "all is well",
    "other param": "process 1 gives a param another value",
    "no source": "process 1 has no such checkpoint",
    "bug": "process 1 raises what is no error of this package while it plans",
    "read": "process 1 fails while it reads",
    "other axes": "process 1 divides the kernel otherwise",
    "from a tree": "the source is a tree in memory over the devices of both, divided otherwise",
    "computed from a tree": "each part of the kernel is made of parts that the same process has",
    "computed across": "parts of the kernel are made of parts that the other process has",
    "donated": "the target is a state that gives its arrays away",
    "both again": "all is well after all these errors",
}
RECIPE = """\
version: 1
params: {by: 2}
rules:
- match: kernel
  value: x * by
"""


def main(port: str, number: int, checkpoint: str) -> None:
    """Restore for every case, and print the outcomes; `number` is 0 or 1."""
    jax.distributed.initialize(f"localhost:{port}", 2, number)
    assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (2, 8, 4)
    print(json.dumps({case: _outcome(number, case, checkpoint) for case in CASES}))
    jax.distributed.shutdown()


def _outcome(number: int, case: str, checkpoint: str) -> dict[str, Any]:
    with _watched(broken=(number, case) == (1, "read")) as read:
        try:
            outcome = _values(_restored(number, case, checkpoint))
        except (SurgeryError, RuntimeError) as error:
            outcome = {"error": type(error).__name__, "message": str(error)}
    return {**outcome, "read": read}


def _restored(number: int, case: str, checkpoint: str) -> Any:
    spoilt = case if number == 1 else "both"
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    other = spoilt == "other axes"
    kernel = PartitionSpec(None, "data") if other else PartitionSpec("data")
    target = {
        "kernel": jax.ShapeDtypeStruct((64, 16), np.float32, sharding=NamedSharding(mesh, kernel)),
        "bias": jax.ShapeDtypeStruct((16,), np.float32, sharding=NamedSharding(mesh, PartitionSpec("model"))),
        "own": jax.ShapeDtypeStruct((3,), np.float32),
        "step": 0,
    }

    def on_plan(plan: ckpt_surgery.Plan) -> None:
        if spoilt == "bug":
            raise RuntimeError("a bug in the program\nof two lines")

    rows, columns = PartitionSpec("data"), PartitionSpec(None, "data")
    if case == "from a tree":
        return ckpt_surgery.restore(None, _tree(mesh, columns), target=target)
    if case in ("computed from a tree", "computed across"):
        source = _tree(mesh, rows if case == "computed from a tree" else columns)
        return ckpt_surgery.restore(RECIPE, source, target=target)
    if case == "donated":
        state = _tree(mesh, rows)
        result = ckpt_surgery.restore(RECIPE, checkpoint, target=state, donate=True)
        assert [state[name].is_deleted() for name in ("kernel", "bias")] == [True, True]
        return result
    return ckpt_surgery.restore(
        RECIPE,
        f"{checkpoint}-nowhere" if spoilt == "no source" else checkpoint,
        target=target,
        set=["by=3"] if spoilt == "other param" else [],
        on_plan=on_plan,
    )


def _tree(mesh: Mesh, of_kernel: PartitionSpec) -> dict[str, Any]:
    """Arrays with the numbers from 0 on, on the devices of both processes; a PartitionSpec of the kernel."""

    def over(spec: PartitionSpec, value: np.ndarray) -> jax.Array:
        sharding = NamedSharding(mesh, spec)
        return jax.make_array_from_callback(value.shape, sharding, lambda region: value[region])

    kernel = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
    return {
        "kernel": over(of_kernel, kernel),
        "bias": over(PartitionSpec(), kernel[0]),
        "own": kernel[0, :3],
        "step": 7,
    }


def _values(state: Any) -> dict[str, Any]:
    """Every shard that this process has, by the start of its region; other values as they are."""
    shards = {
        name: {
            str([axis.start or 0 for axis in shard.index]): shard.data.tolist()
            for shard in state[name].addressable_shards
        }
        for name in ("kernel", "bias")
    }
    return {**shards, "own": state["own"].tolist(), "step": state["step"]}


@contextmanager
def _watched(broken: bool) -> Iterator[Counter[str]]:
    """Bytes of values that are read from the checkpoint meanwhile, by key; `broken`: no read succeeds."""
    read: Counter[str] = Counter()
    original = ListedSource.read

    def watched(self: Any, leaf: Any, region: Any) -> Any:
        if broken:
            raise SourceError(f"`{leaf.key}` cannot be read")
        block = original(self, leaf, region)
        read[leaf.key.text] += block.nbytes
        return block

    with mock.patch.object(ListedSource, "read", watched):
        yield read


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
