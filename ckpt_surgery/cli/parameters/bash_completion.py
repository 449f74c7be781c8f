"""Completion in bash, which ends words of its own at `@`, `=` and `:`.

`@hf` would be two of them, a recipe `@` and a source. So its script hands over the line in their place.
"""

import os

from click.shell_completion import BashComplete, split_arg_string

_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}"'
_LINE = 'COMP_WORDS="${COMP_LINE:0:COMP_POINT}"'


class LineComplete(BashComplete):
    """Like click's class, with the words of the line up to the cursor."""

    source_template = BashComplete.source_template.replace(_WORDS, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is being written, without the program's name, and that one."""
        line = os.environ["COMP_WORDS"]
        _, *words = split_arg_string(line)
        return (words, "") if not words or line[-1].isspace() else (words[:-1], words[-1])
