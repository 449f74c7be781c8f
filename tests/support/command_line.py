"""Running the command line in this process."""

import inspect

from click.testing import CliRunner, Result

from ckpt_surgery.cli.program import cli

_APART = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
"""Before click 8.2, a runner has to be told to keep stdout and stderr apart."""


def run(*arguments: object, **env: str | None) -> Result:
    """`ckpt-surgery ARGUMENTS` on a terminal of 100 columns: its exit code and output."""
    environment = {"COLUMNS": "100", "NO_COLOR": None, **env}
    return CliRunner(**_APART).invoke(
        cli, list(map(str, arguments)), env=environment, prog_name="ckpt-surgery"
    )
