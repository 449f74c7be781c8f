"""`completion`: the script by which a shell completes the commands."""

import sys
from typing import Annotated

import click

from ckpt_surgery.cli.parameters.bash_completion import LineComplete
from ckpt_surgery.cli.parameters.command import COMPLETE, PROGRAM, command
from ckpt_surgery.cli.parameters.options import Argument

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = {
    "completion bash": "The script, on standard output.",
    "completion zsh > ckpt-surgery.zsh": "Into a file, for ~/.zshrc to read.",
}


@command("completion", EXAMPLES, "Print a shell's completion script.")
def completion(
    ctx: click.Context,
    shell: Annotated[str, Argument("bash|zsh|fish", more={"type": click.Choice(SHELLS)})],
) -> int:
    """Print the script by which bash, zsh or fish completes commands, options, values and recipes.

    \b
    In ~/.bashrc:  eval "$(ckpt-surgery completion bash)"
    In ~/.zshrc:   eval "$(ckpt-surgery completion zsh)"
    As ~/.config/fish/completions/ckpt-surgery.fish:
                   ckpt-surgery completion fish | source
    """
    from click.shell_completion import get_completion_class

    script = LineComplete if shell == "bash" else get_completion_class(shell)
    assert script is not None
    sys.stdout.write(script(ctx.find_root().command, {}, PROGRAM, COMPLETE).source().rstrip() + "\n")
    return 0
