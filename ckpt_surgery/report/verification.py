"""Results of verification, and their JSON documents."""

import enum
from dataclasses import dataclass
from typing import Annotated

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.documents import NAMED, UNSET, Document, Number, Versioned
from ckpt_surgery.core.summary import Represented, Summary, SummaryRow
from ckpt_surgery.core.text import brief, bytes_text, number_of, shown

MOST_FLAWS = 100
"""Number of flaws that are listed; the others are counted."""


@dataclass(frozen=True)
class Flaw(Document):
    """One thing that is wrong with a checkpoint."""

    key: str | None
    """The leaf; null where it is none's."""
    chunk: Shape | None
    """Index of the chunk; null where all of the leaf is meant."""
    what: str
    """Description of the flaw."""

    __repr__ = brief


class Verify(enum.StrEnum):
    """Extent to which a new checkpoint is read before it is published."""

    NONE = "none"
    """Nothing."""
    FAST = "fast"
    """Bytes that were computed or copied, and a few of each linked chunk."""
    FULL = "full"
    """All values."""


MODES = sorted(Verify)
"""Values of the argument `verify`."""


@dataclass(frozen=True)
class VerifiedRun(Document):
    """Extent to which a result was read back before it was published."""

    mode: Annotated[Verify, NAMED]
    """As `--verify` said."""
    bytes_read: int
    """Decoded bytes that were read back."""
    bytes_not_read: int
    """Decoded bytes of which at most a few of each chunk were read."""


NOT_VERIFIED = VerifiedRun(Verify.NONE, 0, 0)


class Depth(enum.StrEnum):
    """Extent to which `verify` reads a checkpoint."""

    VALUES = "values"
    """Everything that has checksums; everything where there is no record."""
    FAST = "fast"
    """A few bytes of each chunk."""
    FULL = "full"
    """All values; checksums of those that have none are recorded."""


@dataclass(frozen=True)
class VerifiedSample(Document):
    """The part of what has digests that `verify --sample` compared."""

    share: Number
    """Share of the bytes that was asked for."""
    seed: int
    """Number that chose the part."""
    regions_read: int
    """Number of chunks that were compared."""
    regions: int
    """Number of chunks that have digests."""
    bytes_read: int
    """Decoded bytes that were compared."""
    bytes: int
    """Decoded bytes that have digests."""
    share_read: Number
    """Share of those bytes that was compared; 1 where there are none."""


@dataclass(frozen=True, repr=False)
class Verified(Represented):
    """Result of `verify`."""

    path: str
    """Path as the caller gave it."""
    mode: Depth
    format: str
    """Name of the format."""
    leaves: int
    """Number of leaves."""
    bytes_read: int
    """Bytes of arrays, decoded, that were read."""
    bytes_not_read: int
    """Bytes of arrays, decoded, of which at most a few bytes of each chunk were read."""
    flaws: tuple[Flaw, ...]
    """Everything that is wrong; empty: nothing is."""
    notices: tuple[str, ...] = ()
    """Leaves that could not be compared, and digests that were recorded."""
    sample: VerifiedSample | None = None
    """The part of the digests that was compared; None where the mode alone says what was."""

    @property
    def in_part(self) -> bool:
        """True if some bytes were not read, so that finding no flaw does not prove the checkpoint whole."""
        sampled = self.sample is not None and self.sample.regions_read < self.sample.regions
        return sampled or bool(self.bytes_not_read)

    def _summary(self) -> Summary:
        word = verdict(self)
        read = f"{number_of(self.leaves, 'leaf')}, {bytes_text(self.bytes_read)} read"
        rest = f", {bytes_text(self.bytes_not_read)} not read" if self.bytes_not_read else ""
        rows = [SummaryRow("damaged", flaw_text(flaw)) for flaw in self.flaws]
        where = f"{self.path} ({self.format})"
        return Summary(f"{word}: {read}{rest}", (where,), rows, self.notices, noun=("flaw", "flaws"))


def verdict(verified: Verified) -> str:
    """Verdict on a checkpoint, in a word or three: what was not read proves nothing."""
    if verified.flaws:
        return "damaged"
    return "no damage found" if verified.in_part else "whole"


def flaw_text(flaw: Flaw) -> str:
    """A flaw as a sentence, printable."""
    if flaw.key is None:
        return flaw.what
    chunk = "" if flaw.chunk is None else f", chunk ({', '.join(map(str, flaw.chunk))})"
    return f"`{shown(flaw.key)}`{chunk}: {flaw.what}"


@dataclass(frozen=True, kw_only=True)
class VerifyDocument(Versioned):
    """`verify`."""

    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    mode: Annotated[Depth, NAMED]
    """Extent to which it was read."""
    bytes_read: int
    """Decoded bytes that were read."""
    bytes_not_read: int
    """Decoded bytes of which at most a few of each chunk were read."""
    leaves: int
    """Number of leaves."""
    flaw_count: int
    """Number of flaws."""
    flaws: tuple[Flaw, ...]
    """The first 100 of them."""
    notices: tuple[str, ...]
    """Leaves that could not be compared, and digests that were recorded."""
    sample: VerifiedSample | None = UNSET
    """With `--sample`: the part that was compared."""


def verified_document(found: Verified) -> VerifyDocument:
    """The JSON document of `verify`, with the first MOST_FLAWS flaws."""
    flaws, sample = found.flaws[:MOST_FLAWS], found.sample or UNSET
    return VerifyDocument.from_attributes(found, flaw_count=len(found.flaws), flaws=flaws, sample=sample)
