"""`inspect`: what is in a checkpoint."""

from typing import Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import SOURCE_FORMAT, Argument, Full, JsonTo
from ckpt_surgery.cli.parameters.paths import check_document_beside, refuse_several
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import UsageError, VerificationError
from ckpt_surgery.inputs.options import InspectOptions, ReadFormat

EXAMPLES = {
    "inspect old --depth 2 --sort size": "What takes the most bytes.",
    "inspect old --match '.*/kernel' --flat": "All kernels with their whole keys.",
    "inspect old --keys": "The names alone, for a pipe.",
    "inspect old --under params --stats --exit-code": "Read the values; exit with 3 if any are unusual.",
}


@command("inspect", EXAMPLES, "Show what is in a checkpoint.")
def inspect(
    terminal: Terminal,
    path: Annotated[str, Argument("PATH")],
    format: Annotated[ReadFormat, SOURCE_FORMAT],
    flat: Annotated[bool, "Whole keys instead of a tree."],
    keys: Annotated[bool, "Only the keys, one a line, for other programs."],
    exit_code: Annotated[bool, "With --stats: exit with 3 if anything is unusual."],
    full: Full,
    json_to: JsonTo,
    **options: Unpack[InspectOptions],
) -> int:
    """Show the keys of the checkpoint PATH with shapes, dtypes, sizes and shardings; with -v chunks too.

    Keys that differ in indices only share a line: {0..47} stands for each of these numbers. A subtree has the
    number of its leaves, of its elements and of its bytes.

    --stats ends with what is unusual: NaN, inf, arrays of zeros, mixed dtypes among keys that differ in
    indices only. The exit code is then 1 if an array could not be read; the numbers of the others are shown.
    """
    import ckpt_surgery
    from ckpt_surgery.cli.render.inspection import inspection_lines, key_lines, statistics_lines
    from ckpt_surgery.report.inspection import inspect_document
    from ckpt_surgery.report.leaves import Unread

    if exit_code and not options["stats"]:
        message = "--exit-code is about what is unusual, which only the values tell"
        raise UsageError(message, hint="Give --stats too.")
    refuse_several({"--keys": keys, "--stats": options["stats"], "--depth": options["depth"] is not None})
    check_document_beside(json_to, path, format=format, step=options["step"], item=options["item"])
    with terminal.reading(options["stats"]) as progress:
        inspection = ckpt_surgery.inspect(path, format=format, progress=progress, **options)
    verbose, width = terminal.settings.verbose > 0, terminal.text.width
    if keys:
        terminal.show(key_lines(inspection))
    elif options["stats"]:
        terminal.show(statistics_lines(inspection, full=full, verbose=verbose, width=width))
    else:
        terminal.show(inspection_lines(inspection, flat=flat, full=full, verbose=verbose, width=width))
    terminal.warn_of(inspection.warnings)
    terminal.write(inspect_document, inspection)
    if any(isinstance(one, Unread) and one.damaged for one in (inspection.statistics or {}).values()):
        return 1
    return VerificationError.exit_code if exit_code and inspection.unusual else 0
