"""What `plan`, `apply` and `convert` print: what will be done, and what was done."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ckpt_surgery.cli.parameters.options import PlanOutput
from ckpt_surgery.cli.terminal.console import PUBLISHED, Terminal, enable_gc, reuse_memory
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    from rich.text import Text

    from ckpt_surgery import Plan, Result

SUMMARY_WIDTH = 120
"""Columns of a diff on the page of a run."""
CHANGES = 2
"""Exit code of `--detailed-exitcode` for a plan with changes."""


@dataclass(frozen=True)
class Report:
    """Prints a plan and its result, and writes their JSON document and their HTML page."""

    terminal: Terminal
    full: bool
    """Whether each key has a line to itself."""
    detailed_exitcode: bool = False
    report_to: str | None = None
    """Path of the HTML page; None: none is asked for."""
    recipe: Any = None
    """The loaded recipe of the plan, for the page; None where the plan was saved before, or has none."""

    @classmethod
    def of(cls, terminal: Terminal, output: PlanOutput, recipe: Any = None) -> "Report":
        """The report that the options of a command ask for."""
        return cls(terminal, output.full, output.detailed_exitcode, output.report_to, recipe)

    def planned(self, plan: "Plan", **more: Any) -> int:
        """Print a plan that is not carried out. `more`: members of its JSON. Returns the exit code."""
        self._show(plan)
        self._summarize(plan)
        self._write(plan, **more)
        return self._code(plan)

    def carried_out(self, run: Callable[..., "Result | None"]) -> int | None:
        """Call `run` with `progress` and `on_plan`; print its plan, its progress and its result.

        Returns the exit code; None if there is no result, as everything was published before.
        """
        from ckpt_surgery.api.applying import interruptible

        reuse_memory()
        with interruptible():  # a signal during the summary, too, ends with a message of what is there
            with self.terminal.progress() as progress:
                result = run(progress=progress, on_plan=self._start)
                if result is None:
                    return None
                click.get_current_context().meta[PUBLISHED] = result.destination
            self._finish(result)
        return self._code(result.plan)

    def _start(self, plan: "Plan") -> None:
        enable_gc()
        self._show(plan)

    def _show(self, plan: "Plan") -> None:
        """The diff, then its warnings."""
        from ckpt_surgery.cli.render.plan import plan_lines
        from ckpt_surgery.cli.render.words import warning_lines

        click.get_current_context().meta["plan"] = plan  # kept until the program has ended: see `leave`
        verbose = self.terminal.settings.verbose > 0
        self.terminal.show(plan_lines(plan, full=self.full, verbose=verbose, width=self.terminal.text.width))
        self.terminal.warn(warning_lines(plan.warnings))

    def _finish(self, result: "Result") -> None:
        """Notices, the summary, and the documents."""
        from ckpt_surgery.cli.render.plan import result_lines, shared_lines
        from ckpt_surgery.cli.render.verification import run_lines
        from ckpt_surgery.cli.render.words import warning_lines
        from ckpt_surgery.report.results import CompanionFile, SharedFile

        self.terminal.warn(warning_lines(result.notices))
        width = self.terminal.text.width
        after = [
            *shared_lines(result, width),
            *run_lines(result.verified, width),
            *_companions_lines(result, width),
            *result_lines(result, width),
        ]
        self.terminal.show(after)
        self._summarize(result.plan, [line.plain for line in after])
        ran = {
            "seconds": result.seconds,
            "destination": result.destination,
            "verified": result.verified,
            "shared": tuple(map(SharedFile.of, result.shared)),
            "companions": tuple(map(CompanionFile.of, result.companions)),
            "overflowed": result.overflowed,
        }
        self._write(result.plan, **ran)

    def _summarize(self, plan: "Plan", after: Sequence[str] = ()) -> None:
        """Add Markdown to the summary of a step of GitHub Actions, where this is one."""
        from ckpt_surgery.cli.render.plan import plan_lines
        from ckpt_surgery.cli.render.step_summary import add_summary, summary_file

        if (file := summary_file()) is not None:
            lines = plan_lines(plan, full=self.full, verbose=False, width=SUMMARY_WIDTH)
            add_summary(file, plan, (line.plain for line in lines), after)

    def _write(self, plan: "Plan", **ran: Any) -> None:
        """The JSON document and the HTML page, where they are asked for."""
        from ckpt_surgery.report.results import plan_document

        self.terminal.write(plan_document, plan, **ran)
        if self.report_to is not None:
            from ckpt_surgery.api import report_page
            from ckpt_surgery.inputs import output_files

            page = report_page.report_page(plan, self.recipe, **ran)
            output_files.write_document(self.report_to, page.encode("utf-8", "replace"))

    def _code(self, plan: "Plan") -> int:
        """The exit code of a success: with `--detailed-exitcode` 2 says that there are changes."""
        from ckpt_surgery.report.plan import has_changes

        return CHANGES if self.detailed_exitcode and has_changes(plan) else 0


def _companions_lines(result: "Result", width: int) -> Iterator["Text"]:
    """Which config and tokenizer files were copied, and where from."""
    from ckpt_surgery.cli.render.words import sentence

    if result.companions:
        names = ", ".join(shown(one.name) for one in result.companions)
        source = shown(os.path.dirname(result.companions[0].source) or os.curdir)
        yield from sentence(f"copied beside the weights: {names} (from {source})", width)
