"""Reports of `infer`: the comment at the beginning of a draft, and the JSON document."""

import shlex
from typing import Literal

from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.expressions.formations import EvidenceName, Findings, Shared
from ckpt_surgery.language.yaml.writing import SCHEMA

_VALUES = {
    Shared.SHARED: "those of TARGET are in SRC.",
    Shared.PARTLY: "a smaller part of those of TARGET is in SRC.",
    Shared.UNRELATED: "none of those of TARGET are in SRC; names decide.",
    Shared.NONE: "not compared; names, shapes and dtypes decide.",
}


@frozen()
class Given(Document):
    """The source or the target."""

    path: str
    """As it was given."""
    leaves: int
    """Number of its leaves."""


@frozen()
class InferredLeaf(Document):
    """A leaf of the target that is decided."""

    key: str
    """Its key."""
    sources: tuple[str, ...]
    """Leaves of the source, in the order of `xs`."""
    value: str
    """The expression that makes it: of `x`, or of `xs`."""
    evidence: EvidenceName
    """Evidence that the decision rests on."""
    why: str
    """More about it; empty where there is no more."""


@frozen()
class InferredCandidate(Document):
    """A way in which leaves could be made."""

    sources: tuple[str, ...]
    """Leaves of the source."""
    value: str
    """The expression; empty where none is known."""
    score: float
    """Share of both names that is understood the same way, from 0 to 1."""
    how: Literal["same", "stack", "unstack", ""]
    """Kind of match; empty where sizes do not fit."""
    rules: tuple[str, ...]
    """Rules for `infer -e` that decide for this candidate; empty where no such rules do."""


@frozen()
class OpenLeaves(Document):
    """Leaves of the target that are not decided."""

    targets: tuple[str, ...]
    """Their keys."""
    why: str
    """Reason why they are open."""
    candidates: tuple[InferredCandidate, ...]
    """Leaves of the source that they could be made of."""
    own_value: tuple[str, ...]
    """Rules for `infer -e` that leave them the target's own values; empty where these may not be meant."""


def header(source: str, target: str, findings: Findings) -> list[str]:
    """The lines of the comment. `source`, `target`: paths as they were given."""
    needs = f" --target {shlex.quote(target)}" if findings.from_target else ""
    lines = [
        SCHEMA,
        f"Drafted by `ckpt-surgery infer {shlex.quote(source)} {shlex.quote(target)}`.",
        f"  ckpt-surgery apply THIS {shlex.quote(source)} DST{needs}",
        f"Values: {_VALUES[findings.shared]}",
    ]
    if needs:
        lines.append("The leaves below `fallback: true` keep the values of TARGET.")
    return lines
