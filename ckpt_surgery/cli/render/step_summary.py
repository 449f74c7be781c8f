"""What a plan or a run did, as Markdown, for the summary of a step of GitHub Actions."""

import os
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from ckpt_surgery.core.text import bytes_text, shown

if TYPE_CHECKING:
    from ckpt_surgery import Plan

VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that GitHub Actions shows on the page of the run."""
MOST = 200_000
"""Limit on the characters of the diff; GitHub takes 1 MiB for all of a step."""


def summary_file() -> Path | None:
    """The file that summaries are added to; None where nobody reads them."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


def add_summary(file: Path, plan: "Plan", diff: Iterable[str], after: Sequence[str] = ()) -> None:
    """Add the Markdown of a plan, and of its result where `after` has lines about that. Raises OSError."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(markdown(plan, "\n".join(diff), after))


def add_failure(file: Path, command: str, problems: Iterable[str]) -> None:
    """Add the Markdown of a command that failed, with the texts of its problems. Raises OSError."""
    heading = f"### ❌ ckpt-surgery {command} failed"
    with file.open("a", encoding="utf-8") as stream:
        stream.write("\n".join([heading, "", _block("\n\n".join(problems)), ""]))


def markdown(plan: "Plan", diff: str, after: Sequence[str] = ()) -> str:
    """A heading, a table of the totals, the warnings, and the diff, which is folded away."""
    from ckpt_surgery.report.plan import totals

    counted = totals(plan)
    rows = [(fate, f"{count:,}") for fate, count in counted.by_fate.items() if count]
    rows += [("out", bytes_text(plan.costs.bytes_out))]
    done = "apply" if after else "plan"
    lines = [f"### ckpt-surgery {done}: <code>{_text(plan.recipe)}</code>", ""]
    lines += [f"{_text(line)}  " for line in after if line]
    lines += ["", f"| leaves | {counted.before:,} → {counted.after:,} |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += ["", *(f"- ⚠️ {_text(warning)}" for warning in plan.warnings), ""]
    return "\n".join([*lines, _folded(diff), ""])


def _text(text: str) -> str:
    """Text that has no meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", escape(shown(text), quote=False))


def _folded(diff: str) -> str:
    return f"<details><summary>Every key</summary>\n\n{_block(diff)}\n\n</details>\n"


def _block(text: str) -> str:
    """A block of code that no text in it can end."""
    cut = text if len(text) <= MOST else f"{text[:MOST].rpartition(chr(10))[0]}\n…"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cut)), default=0))
    return f"{fence}text\n{cut}\n{fence}"
