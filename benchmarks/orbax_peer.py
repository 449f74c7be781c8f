"""What people write by hand today: restore, `apply_transformations`, save, all with stock Orbax.

`python -m benchmarks.orbax_peer rename|cast SRC DST`
"""

import sys
from pathlib import Path
from typing import Any


def main(work: str, source: str, destination: str) -> None:
    import jax
    import ml_dtypes
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        tree: Any = checkpointer.restore(Path(source).absolute())
        layers = tree["params"]
        if work == "rename":
            wanted = {"model": {name.replace("layer", "block"): value for name, value in layers.items()}}
            rules = {r"model/block_(\d+)/(.*)": ocp.Transform(original_key=r"params/layer_\1/\2")}
        else:
            wanted = tree
            rules = {r"(.*)": ocp.Transform(value_fn=lambda v: v.astype(ml_dtypes.bfloat16))}
        changed = ocp.apply_transformations(tree, rules, wanted)
        jax.block_until_ready(changed)
        checkpointer.save(Path(destination).absolute(), changed)


if __name__ == "__main__":
    main(*sys.argv[1:])
