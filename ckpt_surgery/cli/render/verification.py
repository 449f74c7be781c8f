"""Result of verification, as lines of styled text. Prints nothing."""

from collections.abc import Iterator

from rich.text import Text

from ckpt_surgery.cli.terminal.columns import flowing
from ckpt_surgery.core.text import bytes_text, number_of, shown
from ckpt_surgery.report.verification import (
    MOST_FLAWS,
    Depth,
    Verified,
    VerifiedRun,
    Verify,
    flaw_text,
    verdict,
)


def run_lines(run: VerifiedRun, width: int) -> Iterator[Text]:
    """The line of `apply` that says how much was read back before the result was published."""
    if run.mode is Verify.NONE:
        yield Text("not verified (`verify` reads it back)", "dim")
        return
    parts = [Text(f"verified: {bytes_text(run.bytes_read)} read back", "dim")]
    if run.bytes_not_read:
        linked = f"{bytes_text(run.bytes_not_read)} linked and not read (see `verify --full`)"
        parts.append(Text(linked, "dim"))
    yield from flowing(parts, ", ", width)


def flaw_lines(verified: Verified) -> Iterator[Text]:
    """One line for each flaw, and one for those that are only counted."""
    for flaw in verified.flaws[:MOST_FLAWS]:
        yield Text.assemble(("damaged  ", "bold red"), shown(flaw_text(flaw)))
    more = len(verified.flaws) - MOST_FLAWS
    if more > 0:
        yield Text.assemble(("damaged  ", "bold red"), f"and {more:,} more")


def verified_line(verified: Verified) -> Text:
    """The last line of `verify`."""
    style = "bold red" if verified.flaws else "green" if verified.in_part else "bold green"
    word = (verdict(verified), style)
    line = Text.assemble(
        word, f"  {number_of(verified.leaves, 'leaf')} · {bytes_text(verified.bytes_read)} read"
    )
    if verified.sample is not None:
        line.append(f" ({verified.sample.share_read:.2%} of what has digests)")
    if verified.bytes_not_read:
        line.append(f", {bytes_text(verified.bytes_not_read)} not read")
        line.append("" if verified.flaws or verified.mode is Depth.FULL else " (--full reads all)")
    if verified.flaws:
        line.append(f" · {number_of(len(verified.flaws), 'flaw')}")
    return line.append(f" · {shown(verified.path)}")
