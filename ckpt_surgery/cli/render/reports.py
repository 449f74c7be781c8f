"""Output of `plan`, `apply` and `convert`; also as Markdown, for the summary of a step of GitHub Actions."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ckpt_surgery.cli.parameters.options import PlanOutput
from ckpt_surgery.cli.terminal.console import PUBLISHED, Terminal, enable_gc, reuse_memory
from ckpt_surgery.core.text import bytes_text, shown

if TYPE_CHECKING:
    from ckpt_surgery import Plan, Result


CHANGES = 2
"""Exit code of `--detailed-exitcode` for a plan with changes."""


@dataclass(frozen=True)
class Report:
    """Prints a plan and its result, and writes their JSON document and their HTML page."""

    terminal: Terminal
    output: PlanOutput
    recipe: Any = None
    """The loaded recipe of the plan, for the page; None where the plan was saved before, or has none."""

    def planned(self, plan: "Plan", **more: Any) -> int:
        """Print a plan that is not carried out. `more`: members of its JSON. Returns the exit code."""
        self._show(plan)
        self._write(plan, (), more)
        return self._code(plan)

    def carried_out(self, run: Callable[..., "Result | None"]) -> int | None:
        """Call `run` with `progress` and `on_plan`; print its plan, its progress and its result.

        Returns the exit code; None if there is no result, as everything was published before.
        """
        from ckpt_surgery.api.applying import interruptible

        def start(plan: "Plan") -> None:
            enable_gc()
            self._show(plan)

        reuse_memory()
        with interruptible():  # a signal during the summary, too, ends with a message of what is there
            with self.terminal.progress() as progress:
                result = run(progress=progress, on_plan=start)
                if result is None:
                    return None
                click.get_current_context().meta[PUBLISHED] = result.destination
            self._finish(result)
        return self._code(result.plan)

    def _show(self, plan: "Plan") -> None:
        """The diff, then its warnings."""
        from ckpt_surgery.cli.render.plan import plan_lines

        click.get_current_context().meta["plan"] = plan  # kept until the program has ended: see `leave`
        verbose, width = self.terminal.settings.verbose > 0, self.terminal.text.width
        self.terminal.show(plan_lines(plan, full=self.output.full, verbose=verbose, width=width))
        self.terminal.warn_of(plan.warnings)

    def _finish(self, result: "Result") -> None:
        """Notices, the summary, and the documents."""
        from ckpt_surgery.cli.render.plan import result_lines
        from ckpt_surgery.report.results import CompanionFile, SharedFile

        self.terminal.warn_of(result.notices)
        after = list(result_lines(result, self.terminal.text.width))
        self.terminal.show(after)
        ran = {
            "seconds": result.seconds,
            "destination": result.destination,
            "verified": result.verified,
            "shared": tuple([SharedFile(f.name, f.source, f.size, f.how.value) for f in result.shared]),
            "companions": tuple([CompanionFile(f.name, f.source, f.size) for f in result.companions]),
            "overflowed": result.overflowed,
        }
        self._write(result.plan, [line.plain for line in after], ran)

    def _write(self, plan: "Plan", after: Sequence[str], ran: Mapping[str, Any]) -> None:
        """Write what is asked for: the summary of a step of GitHub Actions, the JSON document, the HTML page.

        Raises OSError where the summary cannot be written.
        """
        from ckpt_surgery.cli.render.plan import plan_lines
        from ckpt_surgery.report.results import plan_document

        if (file := summary_file()) is not None:
            lines = plan_lines(plan, full=self.output.full, verbose=False, width=120)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(markdown(plan, "\n".join(line.plain for line in lines), after))
        self.terminal.write(plan_document, plan, **ran)
        if self.output.report_to is not None:
            from ckpt_surgery.api import report_page
            from ckpt_surgery.inputs import output_files

            page = report_page.report_page(plan, self.recipe, **ran)
            output_files.write_document(self.output.report_to, page.encode("utf-8", "replace"))

    def _code(self, plan: "Plan") -> int:
        """The exit code of a success: with `--detailed-exitcode` 2 says that there are changes."""
        from ckpt_surgery.report.plan import has_changes

        return CHANGES if self.output.detailed_exitcode and has_changes(plan) else 0


MOST_CHARACTERS = 200_000
"""Limit on the characters of the diff; GitHub takes 1 MiB for all of a step."""


def summary_file() -> Path | None:
    """The file that GitHub Actions shows on the page of the run; None where nobody reads it."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    return Path(path) if path else None


def add_failure(command: str, problems: Iterable[str]) -> None:
    """Add the problems of a command that failed to the summary, if there is one. Raises OSError."""
    if (file := summary_file()) is not None:
        with file.open("a", encoding="utf-8") as stream:
            heading = f"### ❌ ckpt-surgery {command} failed"
            stream.write("\n".join([heading, "", _block("\n\n".join(problems)), ""]))


def markdown(plan: "Plan", diff: str, after: Sequence[str] = ()) -> str:
    """A heading, a table of the totals, the warnings, and the diff, which is folded away.

    `after`: lines about the result; empty where the plan was not carried out.
    """
    from ckpt_surgery.report.plan import leaves_before
    from ckpt_surgery.report.plan_texts import fate_texts

    done = "apply" if after else "plan"
    lines = [f"### ckpt-surgery {done}: <code>{_text(plan.recipe)}</code>", ""]
    lines += [f"{_text(line)}  " for line in after if line]
    lines += ["", f"| leaves | {leaves_before(plan):,} → {len(plan.steps):,} |", "|---|---|"]
    lines += [f"| {fate} | {text.partition(' ')[0]} |" for fate, text in fate_texts(plan)]
    lines += [f"| out | {bytes_text(plan.costs.bytes_out)} |", ""]
    lines += [*(f"- ⚠️ {_text(warning)}" for warning in plan.warnings), ""]
    folded = f"<details><summary>Every key</summary>\n\n{_block(diff)}\n\n</details>\n"
    return "\n".join([*lines, folded, ""])


def _text(text: str) -> str:
    """Text that has no meaning in Markdown."""
    from html import escape

    return re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", escape(shown(text), quote=False))


def _block(text: str) -> str:
    """A block of code that no text in it can end."""
    cut = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS].rpartition(chr(10))[0]}\n…"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cut)), default=0))
    return f"{fence}text\n{cut}\n{fence}"
