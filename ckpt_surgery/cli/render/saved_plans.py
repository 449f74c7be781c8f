"""What `plan plan.json` prints: a saved plan, and whether its sources still fit."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ckpt_surgery.cli.parameters.options import PlanOutput
from ckpt_surgery.cli.render.reports import Report
from ckpt_surgery.cli.terminal.console import open_terminal
from ckpt_surgery.core import urls
from ckpt_surgery.core.text import bytes_text, shown

if TYPE_CHECKING:
    from rich.text import Text

    from ckpt_surgery.api.saved_plans import ShownPlan

SHOWS = frozenset({"recipe", "full", "json_to", "report_to", "detailed_exitcode"})
"""Arguments that say how a saved plan is shown; the plan has decided about all others."""


def show_saved_plan(ctx: click.Context, path: str, paths: Sequence[str], output: PlanOutput) -> int | None:
    """Show the saved plan in a file; None where the file is something else. Returns the exit code."""
    from ckpt_surgery.api.saved_plans import refuse_arguments, show_plan
    from ckpt_surgery.inputs import output_files

    found = show_plan(path)
    if found is None:
        return None
    refuse_arguments(path, [*map(shown, paths), *_decided(ctx)])
    inputs = [output_files.CheckpointPath(i.path, i.format, i.step, i.item) for i in found.plan.inputs]
    output_files.check_documents([output.json_to, output.report_to], output_files.Named(inputs, [path]))
    terminal = open_terminal(ctx.find_root().obj, output.json_to)
    code = Report.of(terminal, output).planned(found.plan, misfits=dict(found.misfits))
    terminal.show(_lines(found))
    terminal.warn(_misfit_lines(found))
    return code


def _decided(ctx: click.Context) -> Iterator[str]:
    """Options on the command line that a saved plan has decided about."""
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if isinstance(param, click.Option) and param.expose_value and given and param.name not in SHOWS:
            yield f"`{param.opts[-1]}`"


def _lines(found: "ShownPlan") -> Iterator["Text"]:
    from rich.text import Text

    request = found.request
    made = f"{bytes_text(request.memory)} of memory, {request.workers} threads"
    where = "no destination" if request.dst is None else shown(urls.near(request.dst))
    yield Text(f"saved for {where} ({request.format}; {made})")
    fitting = [shown(name) for name, why in found.misfits.items() if why is None]
    if fitting:
        yield Text(f"as when the plan was made: {', '.join(fitting)}", "green")


def _misfit_lines(found: "ShownPlan") -> Iterator["Text"]:
    from ckpt_surgery.cli.render.words import warning_lines

    misfits = {name: why for name, why in found.misfits.items() if why is not None}
    yield from warning_lines(f"{name} {why}; `apply` will refuse this plan" for name, why in misfits.items())
