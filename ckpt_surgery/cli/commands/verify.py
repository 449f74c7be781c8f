"""`verify`: whether a checkpoint is still what was written."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Unpack

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import Argument, JsonTo
from ckpt_surgery.cli.parameters.paths import check_document_beside, refuse_several
from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.options import ReadOptions, Sample, Seed, Workers

if TYPE_CHECKING:
    from ckpt_surgery.report.verification import Verified

EXAMPLES = {
    "verify new": "Read everything back that was written.",
    "verify new --fast": "Structure and sizes alone.",
    "verify new --sample 5%": "A twentieth of the bytes, drawn at random.",
    "verify new --full --json verified.json": "Linked arrays too; the findings as JSON.",
}


@command("verify", EXAMPLES, "Read a checkpoint back against its digests.")
def verify(
    terminal: Terminal,
    path: Annotated[str, Argument("PATH")],
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
    from ckpt_surgery.report.verification import verified_document

    refuse_several({"--sample": sample is not None, "--fast": fast, "--full": full})
    chosen = {"step": options.get("step"), "item": options.get("item"), "format": options.get("src_format")}
    check_document_beside(json_to, path, **chosen)
    mode = "fast" if fast else "full" if full else "values"
    run = partial(verifying.verify, path, sample=sample, seed=seed, mode=mode, workers=workers)
    with terminal.reading() as progress:
        verified = run(progress=progress, **options)
    terminal.write(verified_document, verified)
    terminal.warn_of(verified.notices)
    terminal.warn((("damaged  ", "bold red"), flaw) for flaw in flaw_texts(verified))
    terminal.show([verified_line(verified)])
    return VerificationError.exit_code if verified.flaws else 0


def flaw_texts(verified: "Verified") -> list[str]:
    """A sentence on each flaw, and one on those that are only counted."""
    from ckpt_surgery.report.verification import MOST_FLAWS, flaw_text

    texts = [shown(flaw_text(flaw)) for flaw in verified.flaws[:MOST_FLAWS]]
    more = len(verified.flaws) - MOST_FLAWS
    return [*texts, f"and {more:,} more"] if more > 0 else texts


def verified_line(verified: "Verified") -> tuple[tuple[str, str], str]:
    """The last line: the verdict, and how much of the checkpoint it is about."""
    from ckpt_surgery.core.text import bytes_text, number_of
    from ckpt_surgery.report.verification import Depth, verdict

    flaws = len(verified.flaws)
    about = f"  {number_of(verified.leaves, 'leaf')} · {bytes_text(verified.bytes_read)} read"
    if verified.sample is not None:
        about += f" ({verified.sample.share_read:.2%} of what has digests)"
    if verified.bytes_not_read:
        about += f", {bytes_text(verified.bytes_not_read)} not read"
        about += "" if flaws or verified.mode is Depth.FULL else " (--full reads all)"
    about += f" · {number_of(flaws, 'flaw')}" if flaws else ""
    style = "bold red" if flaws else "green" if verified.in_part else "bold green"
    return (verdict(verified), style), f"{about} · {shown(verified.path)}"
