"""`diff`: how two checkpoints differ."""

import os
from typing import Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument, Full, JsonTo
from ckpt_surgery.cli.parameters.paths import check_document_beside
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.inputs.options import DiffOptions

DIFFERENT = 3
"""Exit code of `--exit-code` for checkpoints that are not known to be the same."""
EXAMPLES = {
    "diff old new --match 'params/.*' --exit-code": "Some keys; exit with 3 if they differ in structure.",
    "diff old new --values --rtol 1e-5 --atol 1e-8": "The values too, within tolerances.",
}


@command("diff", EXAMPLES, "Compare two checkpoints.")
def diff(
    terminal: Terminal,
    a: Annotated[str, Argument("A")],
    b: Annotated[str, Argument("B")],
    exit_code: Annotated[bool, "Exit with 3 unless both are known to be the same."],
    full: Full,
    json_to: JsonTo,
    **options: Unpack[DiffOptions],
) -> int:
    """Show which keys only A or only B has, and where kind, container, shape or dtype differ.

    A leaf that both have under different names is `renamed` where stored bytes, or with --values all values,
    are the same; `renamed?` is a guess by names, shapes and dtypes. With --values the leaves with the largest
    differences come first.
    """
    import ckpt_surgery
    from ckpt_surgery.cli.render.difference import difference_lines
    from ckpt_surgery.report.diff_document import diff_document

    check_document_beside(json_to, a, b, step=options["step"], item=options["item"])
    with terminal.reading(options["values"]) as progress:
        difference = ckpt_surgery.diff(a, b, progress=progress, **options)
    if a == b or os.path.realpath(a) == os.path.realpath(b):
        terminal.warn_of([f"A and B are the same path, {a}"])
    terminal.show(difference_lines(difference, full=full, width=terminal.text.width))
    terminal.warn_of(difference.warnings)
    terminal.write(diff_document, difference)
    return DIFFERENT if exit_code and difference.different else 0
