"""`completion`: the script by which a shell completes the commands."""

import os
import sys
from typing import Annotated

import click
from click.shell_completion import BashComplete, split_arg_string

from ckpt_surgery.cli.parameters.command import COMPLETE, PROGRAM, command
from ckpt_surgery.cli.parameters.options import Argument


class LineComplete(BashComplete):
    """Like click's class, with the words of the line up to the cursor.

    Bash ends words at `@`, `=` and `:`, so that `@hf` would be two of them, a recipe `@` and a source. Its
    script hands over the line in their place.
    """

    source_template = BashComplete.source_template.replace("COMP_WORDS[*]", "COMP_LINE:0:COMP_POINT")

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is being written, without the program's name, and that one."""
        line = os.environ["COMP_WORDS"]
        _, *words = split_arg_string(line)
        return (words, "") if not words or line[-1].isspace() else (words[:-1], words[-1])


SHELLS = click.Choice(["bash", "zsh", "fish"])
EXAMPLES = {
    "completion bash": "The script, on standard output.",
    "completion zsh > ckpt-surgery.zsh": "Into a file, for ~/.zshrc to read.",
}


@command("completion", EXAMPLES, "Print a shell's completion script.")
def completion(
    ctx: click.Context, shell: Annotated[str, Argument("bash|zsh|fish", complete=None, more={"type": SHELLS})]
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
