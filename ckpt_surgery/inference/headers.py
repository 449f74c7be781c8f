"""What stands at the beginning of a draft: what it was made from, how it is run, and what values said."""

import shlex

from ckpt_surgery.inference.finding import Found, Shared
from ckpt_surgery.language.yaml.writing import SCHEMA

_VALUES = {
    Shared.SHARED: "those of TARGET are in SRC.",
    Shared.PARTLY: "a smaller part of those of TARGET is in SRC.",
    Shared.UNRELATED: "none of those of TARGET are in SRC; names decide.",
    Shared.NONE: "not compared; names, shapes and dtypes decide.",
}


def header(source: str, target: str, known: Found) -> list[str]:
    """The lines of the comment. `source`, `target`: paths as they were given."""
    needs = f" --target {shlex.quote(target)}" if known.findings.from_target else ""
    lines = [
        SCHEMA,
        f"Drafted by `ckpt-surgery infer {shlex.quote(source)} {shlex.quote(target)}`.",
        f"  ckpt-surgery apply THIS {shlex.quote(source)} DST{needs}",
        f"Values: {_VALUES[known.shared]}",
    ]
    if needs:
        lines.append("The leaves below `fallback: true` keep the values of TARGET.")
    return lines
