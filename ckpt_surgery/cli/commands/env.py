"""`env`: what a report of a bug has to say about the machine."""

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.options import JsonTo
from ckpt_surgery.cli.terminal.console import Terminal

EXAMPLES = {
    "env": "Versions, variables, cores and memory.",
    "env --json env.json": "The same, as JSON in a file.",
}


@command("env", EXAMPLES, "Print versions and settings, for a report of a bug.")
def env(terminal: Terminal, json_to: JsonTo) -> int:
    """Print what a report of a bug should include: versions, platform, variables, cores and memory.

    Only variables that change what ckpt-surgery does are printed, without passwords; of keys and tokens only
    whether they are set. No library is imported to learn its version.
    """
    from ckpt_surgery.api.environment import describe_environment
    from ckpt_surgery.cli.parameters.command import VARIABLES
    from ckpt_surgery.core.text import bytes_text, shown

    machine = describe_environment(tuple(VARIABLES.values()))
    width = max(map(len, (*machine.packages, *machine.variables, "installed in")))
    rows = {
        "ckpt-surgery": machine.ckpt_surgery,
        "installed in": machine.location,
        "Python": machine.python,
        "platform": machine.platform,
        "cores": f"{machine.usable_cores} of {machine.cores}",
        "memory": f"{bytes_text(machine.memory)}, {bytes_text(machine.available_memory)} available",
        **{name: version or "not installed" for name, version in machine.packages.items()},
        **machine.variables,
    }
    terminal.show(f"{name:<{width}}  {shown(value)}" for name, value in rows.items())
    terminal.write(lambda: machine)
    return 0
