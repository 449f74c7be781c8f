"""`clean`: what dead runs left behind."""

import os
import shlex
from typing import TYPE_CHECKING, Annotated

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_path
from ckpt_surgery.cli.parameters.options import Argument, JsonTo
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from ckpt_surgery.api.cleaning import CleanDocument

EXAMPLES = {
    "clean new": "What dead runs left beside the checkpoint `new`.",
    "clean new --yes": "Remove it.",
}
STYLES = {"dead": "bold", "live": "cyan", "kept": "dim", "removed": "green"}


@command("clean", EXAMPLES, "List, or remove, what dead runs left behind.")
def clean(
    terminal: Terminal,
    path: Annotated[str, Argument("PATH", complete=complete_path)],
    yes: Annotated[bool, "Remove what dead runs left."],
    json_to: JsonTo,
) -> int:
    """List what runs that were killed left beside PATH, a destination, or in PATH, a directory of some.

    That is temporary directories and locks, with their sizes. What a living run may use stays, as do parts of
    shards and what no run made. Without --yes nothing is removed. A run to the same destination does the same
    by itself, or goes on with what is there: `apply … --resume`.
    """
    from ckpt_surgery.api import cleaning

    cleaned = cleaning.clean(path, remove=yes)
    terminal.show(_lines(cleaned, yes))
    terminal.write(lambda: cleaned)
    return 0


def _lines(cleaned: "CleanDocument", removed: bool) -> "Iterator[Text]":
    from rich.text import Text

    from ckpt_surgery.core.text import bytes_text, number_of

    for one in cleaned.remainders:
        word = "removed" if one.removed else one.state.value
        path = shown(os.path.relpath(one.path))
        line = Text.assemble((f"{word:<9}", STYLES[word]), f"{path}  {bytes_text(one.bytes)}")
        yield line.append(f"  {shown(one.note)}", "dim")
    gone = [one for one in cleaned.dead if one.removed or not removed]
    if not gone:
        yield Text(f"{shown(cleaned.path)}: dead runs left nothing")
        return
    count, size = number_of(len(gone), "thing"), bytes_text(sum(one.bytes for one in gone))
    again = f"ckpt-surgery clean {shown(shlex.quote(cleaned.path))} --yes"
    yield Text(f"removed {count}, {size}" if removed else f"{count} to remove, {size}: {again}")
