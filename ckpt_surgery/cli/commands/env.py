"""`env`: what a report of a bug has to say about the machine."""

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.console import open_terminal, write_document
from ckpt_surgery.cli.options import global_options, json_option

EXAMPLES = {
    "env": "Versions, variables, cores and memory.",
    "env --json env.json": "The same, as JSON in a file.",
}
ABSENT = "not installed"


@click.command(
    "env", cls=Command, short_help="Print versions and settings, for a report of a bug.", examples=EXAMPLES
)
@json_option
@global_options
@click.pass_context
def command(ctx: click.Context, json_to: str | None) -> int:
    """Print what a report of a bug should include: versions, platform, variables, cores and memory.

    Only variables that change what ckpt-surgery does are printed, without passwords; of keys and tokens only
    whether they are set. No library is imported to learn its version.
    """
    from rich.text import Text

    from ckpt_surgery.api.environment import describe_environment
    from ckpt_surgery.cli.variables import VARIABLES
    from ckpt_surgery.core.text import bytes_text, shown

    found = describe_environment(tuple(VARIABLES.values()))
    terminal = open_terminal(ctx.find_root().obj, json_to)
    width = max(map(len, (*found.packages, *found.variables, "installed in")))
    rows = {
        "ckpt-surgery": found.ckpt_surgery,
        "installed in": found.location,
        "Python": found.python,
        "platform": found.platform,
        "cores": f"{found.usable_cores} of {found.cores}",
        "memory": f"{bytes_text(found.memory)}, {bytes_text(found.available_memory)} available",
        **{name: version or ABSENT for name, version in found.packages.items()},
        **found.variables,
    }
    terminal.show(Text(f"{name:<{width}}  {shown(value)}") for name, value in rows.items())
    if json_to is not None:
        write_document(found, json_to)
    return 0
