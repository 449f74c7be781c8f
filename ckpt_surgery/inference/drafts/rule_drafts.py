"""A rule while it is drafted: its pattern, what it makes, and the keys that it is about."""

from collections.abc import Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.drafts.key_patterns import KeyPattern
from ckpt_surgery.inference.drafts.parts import Kind, Reason


@frozen()
class Inserted:
    """`${expression}` in the template of a key."""

    expression: str


TemplatePiece = str | Inserted
"""Text that stands for itself, or an expression."""


@frozen()
class DraftedOutput:
    """One key template of a rule, and the value of the leaves that it names."""

    to: tuple[TemplatePiece, ...]
    """Empty where the leaves keep their keys."""
    value: str


@frozen()
class RuleDraft:
    """One rule of a draft."""

    kind: Kind
    pattern: KeyPattern | None
    """None for a rule that adds a leaf computed from leaves that it looks up."""
    outputs: tuple[DraftedOutput, ...]
    """Empty where leaves keep their keys and values, are dropped, or filled."""
    claims: tuple[str, ...]
    """The keys that it claims: of the source, or for `FILLED` of the target."""
    makes: int = 0
    """How many leaves of the target it makes."""
    by: str | None = None
    when: str | None = None
    loops: tuple[tuple[str, str], ...] = ()
    """The variables of `for`, with their ranges."""
    reasons: tuple[Reason, ...] = ()
    """One for each leaf that it makes."""
    looks_up: bool = False
    """Whether its values read leaves that it does not claim."""


def joined_text(pieces: Sequence[TemplatePiece]) -> tuple[TemplatePiece, ...]:
    """The same pieces, texts that are next to each other as one, and empty ones left out."""
    found: list[TemplatePiece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        elif piece != "":
            found.append(piece)
    return tuple(found)
