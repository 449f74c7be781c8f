"""`schema`: the recipe language as JSON Schema."""

import click

from ckpt_surgery.cli.console import STDOUT, write_document
from ckpt_surgery.cli.options import Command, global_options


@click.command("schema", cls=Command, short_help="Print the JSON Schema of recipes.")
@global_options
def command() -> int:
    """Print the JSON Schema of the recipe language; editors check and complete recipes with it."""
    import ckpt_surgery

    write_document(ckpt_surgery.schema(), STDOUT)
    return 0
