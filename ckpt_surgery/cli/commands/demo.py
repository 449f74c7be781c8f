"""`demo`: a small checkpoint and a recipe to try the other commands on."""

from pathlib import Path
from typing import Any

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import global_options
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.text import shown

EXAMPLES = {
    "demo": "Into the new directory demo/.",
    "demo DIRECTORY": "Into another one.",
}
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


@click.command(
    "demo", cls=Command, short_help="Write a small checkpoint and a recipe to try.", examples=EXAMPLES
)
@click.argument("directory", metavar="[DIRECTORY]", default="demo", type=click.Path())
@global_options
@click.pass_context
def command(ctx: click.Context, directory: str) -> int:
    """Write a small checkpoint, `old`, and a recipe for it, `recipe.yaml`, into a new DIRECTORY.

    The checkpoint is one of Orbax, with three layers, a head, a moving average and a step.
    """
    from rich.text import Text

    import ckpt_surgery

    folder = Path(directory)
    if folder.exists():
        raise DestinationError(
            f"{shown(directory)}: exists already",
            hint="Name another directory: `ckpt-surgery demo DIRECTORY`.",
        )
    folder.mkdir(parents=True)
    ckpt_surgery.apply({"version": 1}, checkpoint(), dst=folder / "old", format="orbax")
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    terminal = open_terminal(ctx.find_root().obj, None)
    old, new = shown(str(folder / "old")), shown(str(folder / "new"))
    lines = [
        f"wrote {old} and {shown(str(recipe))}; now try",
        f"  ckpt-surgery inspect {old}",
        f"  ckpt-surgery plan {shown(str(recipe))} {old}",
        f"  ckpt-surgery apply {shown(str(recipe))} {old} {new}",
    ]
    terminal.show(map(Text, lines))
    return 0


def checkpoint() -> dict[str, Any]:
    """What a small training run might save: the same numbers each time."""
    import numpy as np

    random = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return (random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    params = {
        f"layer_{i}": {
            "attention": {"qkv": {"kernel": weights(32, 96)}, "out": {"kernel": weights(32, 32)}},
            "mlp": {"wi": {"kernel": weights(32, 64)}, "wo": {"kernel": weights(64, 32)}},
        }
        for i in range(LAYERS)
    }
    head = {"kernel": weights(32, 10), "bias": np.zeros(10, np.float32)}
    return {"params": {**params, "head": head}, "ema": {"decay": 0.99}, "step": 1000}
