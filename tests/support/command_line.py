"""Running the command line in this process."""

from click.testing import CliRunner, Result

from ckpt_surgery.cli.program import cli


def run(*arguments: object, **env: str | None) -> Result:
    """`ckpt-surgery ARGUMENTS` on a terminal of 100 columns: its exit code and output."""
    environment = {"COLUMNS": "100", "NO_COLOR": None, **env}
    return CliRunner().invoke(cli, list(map(str, arguments)), env=environment, prog_name="ckpt-surgery")
