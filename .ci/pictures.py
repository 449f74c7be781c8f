"""The pictures of the terminal in docs/pictures, made from real runs: `make pictures`.

`python .ci/pictures.py DIRECTORY` saves small checkpoints, runs the commands of `PICTURES` on them with
colours, and writes two SVG files for each, for light and for dark pages. They name no font that would have
to be loaded: every run of characters is given its width, so that any monospaced font will do.
"""

import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parent.parent
PROGRAM = "ckpt-surgery"
COLUMNS = 96

PICTURES = {
    "plan": "plan recipe.yaml old",
    "apply": "apply -e 'drop:(opt_state|ema)/.*' old weights --link-mode hardlink",
    "error": "plan typo.yaml old",
    "inspect": "inspect old",
    "stats": "inspect broken --stats --under params",
    "diff": "diff old later --values",
}
"""The commands that are shown, by the names of their pictures. They run in this order."""

RECIPE = r"""version: 1
description: Three blocks become one stack, the head is new.
mirror: {params: [opt_state/mu]}
rules:
  - match: 'params/block_(?P<i>\d+)/(?P<name>.*)'
    to: 'params/layers/${name}'
    by: int(i)
    value: stack(xs)
  - match: 'params/head/.*'
    drop: true
  - add: 'params/classifier/kernel'
    value: init('lecun_normal', (64, 10), 'float32', seed=0)
  - add: 'opt_state/mu/classifier/kernel'
    value: zeros((64, 10), 'float32')
  - match: 'ema/.*'
    drop: true
"""
TYPO = RECIPE.replace("stack(xs)", "stak(xs)").replace("match: 'ema", "mtach: 'ema")


# --- what the commands run on ---------------------------------------------------------------------


def weights(random: np.random.Generator, blocks: int = 3) -> dict[str, Any]:
    """The params of a small decoder."""

    def kernel(*shape: int) -> np.ndarray:
        return np.asarray(random.standard_normal(shape) * shape[0] ** -0.5, np.float32)

    block = {
        f"block_{i}": {
            "attention": {"qkv": {"kernel": kernel(64, 192)}, "out": {"kernel": kernel(64, 64)}},
            "mlp": {"wi": {"kernel": kernel(64, 256)}, "wo": {"kernel": kernel(256, 64)}},
        }
        for i in range(blocks)
    }
    return {"embed": {"table": kernel(1024, 64)}, **block, "head": {"kernel": kernel(64, 1000)}}


def state(seed: int, blocks: int = 3) -> dict[str, Any]:
    """Checkpoint of a training run after 1000 steps."""
    random = np.random.default_rng(seed)
    params = weights(random, blocks)
    return {
        "params": params,
        "opt_state": {"mu": weights(random, blocks)},
        "ema": {"decay": 0.99},
        "step": 1000,
    }


def later() -> dict[str, Any]:
    """The same run a little later: the blocks have been frozen, what is around them has been trained on."""
    tree = state(seed=0)
    params = tree["params"]
    params["embed"]["table"] = params["embed"]["table"] * np.float32(1.001)
    params["head"]["kernel"] = params["head"]["kernel"] - np.float32(0.002)
    del tree["ema"]
    return tree | {"step": 1200}


def broken() -> dict[str, Any]:
    """A run that went wrong: one number of a kernel is not a number, and a unit of another has died."""
    tree = state(seed=0, blocks=2)
    tree["params"]["block_1"]["mlp"]["wo"]["kernel"][3, 5] = np.nan
    tree["params"]["head"]["kernel"][:] = 0
    return tree


def prepare(directory: Path) -> None:
    # A file for each leaf: OCDBT packs leaves into files, and differently from run to run.
    checkpointer = ocp.PyTreeCheckpointer(use_ocdbt=False)
    for name, tree in {"old": state(seed=0), "later": later(), "broken": broken()}.items():
        checkpointer.save((directory / name).absolute(), tree)
    (directory / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    (directory / "typo.yaml").write_text(TYPO, encoding="utf-8")


# --- running --------------------------------------------------------------------------------------

BAR = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h(?:\x1b\[1A\x1b\[2K|\r|\x1b\[2K)*", re.DOTALL)
"""A bar of progress, from where the cursor is hidden to where it is back and the line is empty again."""


def shown(command: str, directory: Path) -> str:
    """Text left on the terminal once a command has ended, with escape sequences for colours."""
    colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLORTERM")}
    done = subprocess.run(
        [sys.executable, "-m", "ckpt_surgery", *shlex.split(command)],
        cwd=directory,
        env=environment | {"PYTHONPATH": str(ROOT)} | colours,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return BAR.sub("", done.stdout)


# --- drawing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Theme:
    """The colours of a terminal."""

    name: str
    frame: str
    """The line around the picture."""
    prompt: str
    colours: TerminalTheme


def rgb(text: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(text)
    return red, green, blue


def theme(name: str, frame: str, prompt: str, colours: str) -> Theme:
    """`colours`: background, text, then black, red, green, yellow, blue, magenta, cyan and white."""
    background, text, *ansi = map(rgb, colours.split())
    return Theme(name, frame, prompt, TerminalTheme(background, text, ansi))


THEMES = (
    theme(
        "light", "#d5dce1", "#0b6a8f", "f7f9fa 24292f 24292f b3261e 1a6f37 8a5a00 0b5cad 8a2f9b 0b6a8f 57606a"
    ),
    theme(
        "dark", "#2c3a46", "#6cc3e6", "10181f dbe3e9 4a5864 ff8a80 7ed69a f0c674 82b4ff d9a0ea 6cc3e6 dbe3e9"
    ),
)
SIZE, WIDTH, HEIGHT, MARGIN = 14, 8.4, 20, 16
"""Pixels: of the font, of a character, of a line, and around the text."""
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


def look(style: Style | None, theme: Theme) -> str:
    """The attributes of a run of characters in that style."""
    if style is None:
        return ""
    colour = (style.color or Color.default()).get_truecolor(theme.colours)
    attributes = f' fill="{colour.hex}"' if style.color else ""
    return attributes + ' font-weight="bold"' * bool(style.bold) + ' opacity=".65"' * bool(style.dim)


def spans(segments: Iterable[Segment], theme: Theme) -> Iterator[str]:
    """The text of a line: each run between wide gaps at its place, whatever the font's width is."""
    column = 0
    for segment in segments:
        for run in re.split(r"( {2,}|^ +)", segment.text):
            width = cell_len(run)
            if run.strip():
                place = f'x="{MARGIN + column * WIDTH:.1f}" textLength="{width * WIDTH:.1f}"'
                yield f"<tspan {place}{look(segment.style, theme)}>{escape(run, quote=False)}</tspan>"
            else:
                yield run
            column += width


def wrapped(line: Text) -> list[Text]:
    """The rows that a line takes on a terminal, which breaks it anywhere."""
    return list(line.divide(range(COLUMNS, len(line), COLUMNS)))


def svg(command: str, output: str, theme: Theme) -> str:
    """The picture of a command and what it has printed."""
    console = Console(color_system="256", force_terminal=True, width=COLUMNS, legacy_windows=False)
    prompt = Text.assemble(("$ ", "dim"), (f"{PROGRAM} {command}", "bold"))
    printed = (Text.from_ansi(line) for line in output.rstrip().split("\n"))
    lines = [prompt, *(row for line in printed for row in wrapped(line))]
    width = COLUMNS * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    text, back = theme.colours.foreground_color.hex, theme.colours.background_color.hex
    title = escape(f"{PROGRAM} {command}", quote=False)
    drawn = ["".join(spans(line.render(console, end=""), theme)) for line in lines]
    rows = [
        f'<text y="{MARGIN + HEIGHT * (number + 0.72):.1f}">{row}</text>' for number, row in enumerate(drawn)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}"'
            f' height="{height}" role="img">',
            f"<title>{title}</title>",
            f'<rect x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" rx="6" fill="{back}"'
            f' stroke="{theme.frame}"/>',
            f'<g font-family="{FONTS}" font-size="{SIZE}" fill="{text}" xml:space="preserve">',
            *rows,
            "</g>\n</svg>\n",
        ]
    )


def main(directory: str) -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax warns that there is nothing to be packed
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch))
        for name, command in PICTURES.items():
            output = shown(command, Path(scratch))
            for theme in THEMES:
                (target / f"{name}-{theme.name}.svg").write_text(
                    svg(command, output, theme), encoding="utf-8"
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
