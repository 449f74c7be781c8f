"""`demo`: a small checkpoint and a recipe to try the other commands on."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    import numpy as np

EXAMPLES = {"demo": "Into the new directory demo/.", "demo DIRECTORY": "Into another one."}
LAYERS = 3
RECIPE = r"""# The new model scans over its layers, needs bfloat16, and has no moving average.
version: 1
rules:
  - match: 'params/layer_(?P<n>\d+)/(?P<name>.*)'   # a regular expression for whole keys
    to: 'params/layers/${name}'
    by: int(n)
    value: cast(stack(xs), 'bfloat16')              # xs: the leaves that get one name
  - match: 'params/head/kernel'
    value: cast(x, 'bfloat16')
  - match: 'ema/.*'
    drop: true
"""


@command("demo", EXAMPLES, "Write a small checkpoint and a recipe to try.")
def demo(
    terminal: Terminal, directory: Annotated[str, Argument("[DIRECTORY]", more={"default": "demo"})]
) -> int:
    """Write a small checkpoint, `old`, and a recipe for it, `recipe.yaml`, into a new DIRECTORY.

    The checkpoint is one of Orbax, with three layers, a head, a moving average and a step.
    """
    folder = Path(directory)
    if folder.exists():
        hint = "Name another directory: `ckpt-surgery demo DIRECTORY`."
        raise DestinationError(f"{shown(directory)}: exists already", hint=hint)
    folder.mkdir(parents=True)
    write(folder / "old")
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    old, new, named = (shown(str(path)) for path in (folder / "old", folder / "new", recipe))
    terminal.show([f"wrote {old} and {named}; now try", f"  ckpt-surgery inspect {old}"])
    terminal.show([f"  ckpt-surgery plan {named} {old}", f"  ckpt-surgery apply {named} {old} {new}"])
    return 0


def write(destination: Path) -> None:
    """Write what a small training run might save: the same numbers each time. Needs no jax."""
    import numpy as np

    import ckpt_surgery

    random = np.random.default_rng(0)

    def weights(*shape: int) -> "np.ndarray":
        return np.asarray(random.standard_normal(shape) / shape[0] ** 0.5, np.float32)

    params: dict[str, Any] = {"head/kernel": weights(32, 10), "head/bias": np.zeros(10, np.float32)}
    for i in range(LAYERS):
        params[f"layer_{i}/attention/qkv/kernel"] = weights(32, 96)
        params[f"layer_{i}/attention/out/kernel"] = weights(32, 32)
        params[f"layer_{i}/mlp/wi/kernel"] = weights(32, 64)
        params[f"layer_{i}/mlp/wo/kernel"] = weights(64, 32)
    scalars = [{"add": "ema/decay", "value": "0.99"}, {"add": "step", "value": "1000"}]
    with tempfile.TemporaryDirectory() as directory:
        arrays = Path(directory) / "arrays.npz"
        np.savez(arrays, **{f"params/{key}": value for key, value in params.items()})
        ckpt_surgery.apply({"version": 1, "rules": scalars}, arrays, dst=destination, format="orbax")
