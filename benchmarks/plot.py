"""Growth as pictures: SVG for light and for dark pages, a panel for each work, drawn without a library."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from benchmarks.tables import Curve

PANEL_WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM, TITLE, ROW = 360, 190, 52, 28, 46, 30, 18
"""Pixels: of a panel's width and of its axes, of the margins, of the title and of each name below it."""
COLUMNS = 2
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
AXES = {"GB": "size of the checkpoint (GB)", "leaves": "number of leaves"}


@dataclass(frozen=True)
class Theme:
    """Colours of a picture."""

    name: str
    back: str
    frame: str
    text: str
    faint: str
    ours: str
    peer: str


THEMES = (
    Theme("light", "#f7f9fa", "#d5dce1", "#24292f", "#57606a", "#0b5cad", "#b4541a"),
    Theme("dark", "#10181f", "#2c3a46", "#dbe3e9", "#93a1ad", "#82b4ff", "#f0a36b"),
)


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis: values from `low` to `high` become pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        part = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.start + part * (self.end - self.start)


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten that enclose the values, and those between them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def picture(found: Sequence[Curve], unit: str, theme: Theme) -> str:
    """An SVG with a panel for each work, two in a row; both axes are logarithmic, peers are dashed."""
    panels = [list(curves) for _, curves in groupby(found, key=lambda curve: curve.work)]
    names = max(len(curves) for curves in panels)
    across = min(COLUMNS, len(panels))
    tall = TITLE + names * ROW + PLOT_HEIGHT + BOTTOM
    width, height = across * PANEL_WIDTH, math.ceil(len(panels) / COLUMNS) * tall
    drawn = [
        line
        for number, curves in enumerate(panels)
        for line in (
            f'<g transform="translate({number % COLUMNS * PANEL_WIDTH} {number // COLUMNS * tall})">',
            *_panel(curves, unit, theme, TITLE + names * ROW),
            "</g>",
        )
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
    return "\n".join(
        [
            f'{head} height="{height}" role="img" font-family="{FONTS}" font-size="12" fill="{theme.text}">',
            f"<title>Seconds by {AXES[unit]}</title>",
            f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6" fill="{theme.back}"'
            f' stroke="{theme.frame}"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _panel(curves: Sequence[Curve], unit: str, theme: Theme, top: float) -> Iterator[str]:
    """One work: its title, the names of its curves, axes and curves."""
    sizes = sorted({size for curve in curves for size in curve.sizes})
    steps = ticks(*_range([second for curve in curves for second in curve.seconds]))
    across = Axis(sizes[0], sizes[-1], LEFT, PANEL_WIDTH - RIGHT)
    up = Axis(steps[0], steps[-1], top + PLOT_HEIGHT, top)
    yield f'<text x="{LEFT}" y="22" font-size="14" font-weight="bold">{escape(curves[0].work)}</text>'
    for second in steps:
        y = up.place(second)
        yield f'<path d="M{LEFT} {y:.1f}H{PANEL_WIDTH - RIGHT}" stroke="{theme.frame}"/>'
        place = f'x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end"'
        yield f'<text {place} fill="{theme.faint}">{second:g} s</text>'
    for size in sizes:
        x = across.place(size)
        yield (
            f'<text x="{x:.1f}" y="{top + PLOT_HEIGHT + 17}" text-anchor="middle" fill="{theme.faint}">'
            f"{size:,g}</text>"
        )
    middle = (LEFT + PANEL_WIDTH - RIGHT) / 2
    yield (
        f'<text x="{middle}" y="{top + PLOT_HEIGHT + 34}" text-anchor="middle" fill="{theme.faint}">'
        f"{AXES[unit]}</text>"
    )
    for number, curve in enumerate(curves):
        yield from _curve(curve, across, up, theme, TITLE + number * ROW + 10)


def _curve(curve: Curve, across: Axis, up: Axis, theme: Theme, y: float) -> Iterator[str]:
    """A curve with its points, and its name at the height `y`."""
    ours = curve.who.startswith("ckpt-surgery")
    colour, dashes = (theme.ours, "") if ours else (theme.peer, ' stroke-dasharray="6 4"')
    places = [
        (across.place(size), up.place(seconds))
        for size, seconds in zip(curve.sizes, curve.seconds, strict=True)
    ]
    points = " ".join(f"{x:.1f},{height:.1f}" for x, height in places)
    stroke = f'fill="none" stroke="{colour}" stroke-width="2"{dashes}'
    yield f'<polyline points="{points}" {stroke}/>'
    yield from (f'<circle cx="{x:.1f}" cy="{height:.1f}" r="3" fill="{colour}"/>' for x, height in places)
    yield f'<path d="M{LEFT} {y}h26" {stroke}/>'
    yield f'<text x="{LEFT + 34}" y="{y + 4}">{escape(curve.who)}</text>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)
