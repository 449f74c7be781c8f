"""`verify`: whether a checkpoint is still what was written."""

from typing import Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_path
from ckpt_surgery.cli.parameters.options import Argument, JsonTo
from ckpt_surgery.cli.parameters.paths import check_document_beside
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import UsageError, VerificationError
from ckpt_surgery.inputs.options import ReadOptions, Sample, Seed, Workers

EXAMPLES = {
    "verify new": "Read everything back that was written.",
    "verify new --fast": "Structure and sizes alone.",
    "verify new --sample 5%": "A twentieth of the bytes, drawn at random.",
    "verify new --full --json verified.json": "Linked arrays too; the findings as JSON.",
}


@command("verify", EXAMPLES, "Read a checkpoint back against its digests.")
def verify(
    terminal: Terminal,
    path: Annotated[str, Argument("PATH", complete=complete_path)],
    fast: Annotated[bool, "Structure, sizes and shared files only; no values are read."],
    full: Annotated[bool, "All values, also linked ones, whose digests are then recorded."],
    sample: Sample,
    seed: Seed,
    workers: Workers,
    json_to: JsonTo,
    **options: Unpack[ReadOptions],
) -> int:
    """Read the checkpoint PATH back, and compare it with the digests that were recorded when it was written.

    A checkpoint of another program has no digests: its structure is checked, and all values are read. The
    exit code is 3 if anything is wrong, with the leaf and the chunk.

    A sample finds damage that is everywhere, such as a copy that broke off or a disk that went bad; one
    damaged chunk it finds as likely as the chunk is drawn.
    """
    from ckpt_surgery.api import verifying
    from ckpt_surgery.cli.render.verification import flaw_lines, verified_line
    from ckpt_surgery.cli.terminal.columns import warning_lines
    from ckpt_surgery.report.verification import verified_document

    given = {"--sample": sample is not None, "--fast": fast, "--full": full}
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise UsageError(f"{names[0]} and {names[1]} exclude each other", hint="Leave one of them out.")
    chosen = {"step": options.get("step"), "item": options.get("item"), "format": options.get("src_format")}
    check_document_beside(json_to, path, **chosen)
    with terminal.reading() as progress:
        verified = verifying.verify(
            path,
            sample=sample,
            seed=seed,
            mode="fast" if fast else "full" if full else "values",
            workers=workers,
            progress=progress,
            **options,
        )
    terminal.write(verified_document, verified)
    terminal.warn(warning_lines(verified.notices))
    terminal.warn(flaw_lines(verified))
    terminal.show([verified_line(verified)])
    return VerificationError.exit_code if verified.flaws else 0
