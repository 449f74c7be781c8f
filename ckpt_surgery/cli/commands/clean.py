"""`clean`: what dead runs left behind."""

import os
import shlex
from typing import Annotated

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument, JsonTo
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.text import shown

EXAMPLES = {"clean new": "What dead runs left beside the checkpoint `new`.", "clean new --yes": "Remove it."}
STYLES = {"dead": "bold", "live": "cyan", "kept": "dim", "removed": "green"}


@command("clean", EXAMPLES, "List, or remove, what dead runs left behind.")
def clean(
    terminal: Terminal,
    path: Annotated[str, Argument("PATH")],
    yes: Annotated[bool, "Remove what dead runs left."],
    json_to: JsonTo,
) -> int:
    """List what runs that were killed left beside PATH, a destination, or in PATH, a directory of some.

    That is temporary directories and locks, with their sizes. What a living run may use stays, as do parts of
    shards and what no run made. Without --yes nothing is removed. A run to the same destination does the same
    by itself, or goes on with what is there: `apply … --resume`.
    """
    from ckpt_surgery.api import cleaning
    from ckpt_surgery.core.text import bytes_text, number_of

    cleaned = cleaning.clean(path, remove=yes)
    for one in cleaned.remainders:
        word = "removed" if one.removed else one.state.value
        about = f"{shown(os.path.relpath(one.path))}  {bytes_text(one.bytes)}"
        terminal.show([((f"{word:<9}", STYLES[word]), about, (f"  {shown(one.note)}", "dim"))])
    dead = [one for one in cleaned.dead if one.removed or not yes]
    count, size = number_of(len(dead), "thing"), bytes_text(sum(one.bytes for one in dead))
    if not dead:
        terminal.show([f"{shown(cleaned.path)}: dead runs left nothing"])
    elif yes:
        terminal.show([f"removed {count}, {size}"])
    else:
        again = f"ckpt-surgery clean {shown(shlex.quote(cleaned.path))} --yes"
        terminal.show([f"{count} to remove, {size}: {again}"])
    terminal.write(lambda: cleaned)
    return 0
