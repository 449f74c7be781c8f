"""`completion`: the script by which a shell completes the commands."""

import sys

import click

from ckpt_surgery.cli.bash_completion import LineComplete
from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.options import global_options

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = {
    "completion bash": "The script, on standard output.",
    "completion zsh > ckpt-surgery.zsh": "Into a file, for ~/.zshrc to read.",
}


@click.command("completion", cls=Command, short_help="Print a shell's completion script.", examples=EXAMPLES)
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(SHELLS))
@global_options
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script by which bash, zsh or fish completes commands, options, values and recipes.

    \b
    In ~/.bashrc:  eval "$(ckpt-surgery completion bash)"
    In ~/.zshrc:   eval "$(ckpt-surgery completion zsh)"
    As ~/.config/fish/completions/ckpt-surgery.fish:
                   ckpt-surgery completion fish | source
    """
    from click.shell_completion import get_completion_class

    from ckpt_surgery.cli.program import COMPLETE, PROGRAM

    found = LineComplete if shell == "bash" else get_completion_class(shell)
    assert found is not None
    sys.stdout.write(found(ctx.find_root().command, {}, PROGRAM, COMPLETE).source().rstrip() + "\n")
    return 0
