"""The growth tables as a picture. Only `save` needs Matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import Curve, Line, curves

PANELS = (("GB", "size of the checkpoint (GB)"), ("leaves", "number of leaves"))


def draw(axes: Any, found: Sequence[Curve], label: str) -> None:
    """One panel: both axes logarithmic, peers dashed."""
    for curve in found:
        ours = curve.who.startswith("ckpt-surgery")
        axes.plot(
            curve.sizes,
            curve.seconds,
            marker="o" if ours else "x",
            linestyle="-" if ours else "--",
            label=f"{curve.work}: {curve.who}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("seconds")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.14))


def save(path: Path, machine: str, lines: Sequence[Line]) -> bool:
    """Write a PNG; False where nothing was measured at two sizes."""
    panels = [(curves(lines, unit), label) for unit, label in PANELS]
    panels = [(found, label) for found, label in panels if found]
    if not panels:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8 * len(panels), 8), layout="constrained")
    for axes, (found, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        draw(axes, found, label)
    figure.suptitle(machine, fontsize="x-small", wrap=True)
    figure.savefig(path, dpi=130)
    return True
