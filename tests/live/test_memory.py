"""Peak memory of a restore, in a process of its own."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.linked_sources import safetensors_header

MIB = 1 << 20
LIBRARIES = 250 * MIB
"""What the interpreter and its libraries may take besides the budget and the result."""
LAYERS, SIDE = 24, 2048

# VmHWM begins anew with each program; ru_maxrss would begin with the size of the process that started it.
PROGRAM = """
    import json, sys
    import jax, numpy as np
    import ckpt_surgery

    source, memory, layers, side = sys.argv[1], *map(int, sys.argv[2:])
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x", "y"))
    target = {"w": jax.ShapeDtypeStruct((layers, side, side), jax.numpy.bfloat16, sharding=sharding)}
    recipe = {"version": 1, "rules": [
        {"match": "layer_(\\\\d+)", "to": "w", "value": "rearrange(stack(xs), 'l a b -> l b a')"}
    ]}
    found = ckpt_surgery.restore(recipe, source, target=target, memory=memory)["w"]
    with open("/proc/self/status", encoding="ascii") as lines:
        peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    print(json.dumps({"peak": peak, "result": found.nbytes, "shards": len(found.addressable_shards)}))
"""


@pytest.mark.machine
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts a process' peak as it is needed here")
def test_beside_the_result_a_restore_takes_its_budget(tmp_path: Path) -> None:
    """The layers are twice as large as the result, and six times as large as the budget."""
    memory, nbytes = 64 * MIB, SIDE * SIDE * 4
    header = safetensors_header({f"layer_{i}": ("F32", (SIDE, SIDE), nbytes) for i in range(LAYERS)})
    with open(tmp_path / "layers.safetensors", "wb") as file:  # the data are a hole
        file.write(header)
        file.truncate(len(header) + LAYERS * nbytes)
    arguments = [tmp_path / "layers.safetensors", memory, LAYERS, SIDE]
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["result"] == LAYERS * SIDE * SIDE * 2
    assert found["shards"] == 8
    assert found["peak"] <= found["result"] + memory + LIBRARIES
