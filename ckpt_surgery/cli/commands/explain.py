"""`explain`: what the code of a problem means."""

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_code
from ckpt_surgery.cli.console import open_terminal
from ckpt_surgery.cli.options import global_options
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.explanations import EXPLANATIONS
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown

EXAMPLES = {
    "explain CS010": "What the problem CS010 is.",
    "explain cs001": "Small letters do as well.",
}


@click.command("explain", cls=Command, short_help="Say what the code of a problem means.", examples=EXAMPLES)
@click.argument("subject", metavar="CODE", shell_complete=complete_code)
@global_options
@click.pass_context
def command(ctx: click.Context, subject: str) -> int:
    """Say what the problem CODE means, such as CS010: why it is a problem, what to do, and an example."""
    from rich.text import Text

    code = _code(subject)
    explained = EXPLANATIONS[code]
    terminal = open_terminal(ctx.find_root().obj)
    terminal.show([Text.assemble((code, "bold"), f"  {explained.title}"), Text()])
    terminal.wrapped([Text(explained.text), Text()])
    terminal.show(Text(f"    {line}") for line in explained.example.splitlines())
    return 0


def _code(text: str) -> Code:
    name = text.upper()
    if name in set(Code):
        return Code(name)
    hint = f"Codes go from {min(Code)} to {max(Code)}; each problem that is reported has one."
    raise UsageError(f"there is no problem with the code `{shown(text)}`", hint=hint)
