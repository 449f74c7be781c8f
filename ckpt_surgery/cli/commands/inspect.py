"""`inspect`: what is in a checkpoint."""

from typing import Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_path
from ckpt_surgery.cli.parameters.options import SOURCE_FORMAT, Argument, Full, JsonTo
from ckpt_surgery.cli.parameters.paths import check_document_beside
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
    path: Annotated[str, Argument("PATH", complete=complete_path)],
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
    from ckpt_surgery.cli.terminal.columns import warning_lines
    from ckpt_surgery.report.inspection import inspect_document
    from ckpt_surgery.report.leaves import Unread

    _check_options(exit_code, keys, options)
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
    terminal.warn(warning_lines(inspection.warnings))
    terminal.write(inspect_document, inspection)
    if any(isinstance(one, Unread) and one.damaged for one in (inspection.statistics or {}).values()):
        return 1
    return VerificationError.exit_code if exit_code and inspection.unusual else 0


def _check_options(exit_code: bool, keys: bool, options: InspectOptions) -> None:
    """Refuse options that would have no effect."""
    stats, depth = options["stats"], options["depth"]
    if exit_code and not stats:
        raise UsageError(
            "--exit-code is about what is unusual, which only the values tell", hint="Give --stats too."
        )
    if depth is not None and stats:
        raise UsageError("--stats lists every array, so there is no --depth", hint="Leave one of them out.")
    if keys and (stats or depth is not None):
        raise UsageError(
            f"--keys prints every key and nothing else, so there is no {'--stats' if stats else '--depth'}",
            hint="Leave one of them out.",
        )
