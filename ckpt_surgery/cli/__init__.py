"""The command line: one module of `commands` per command, each a thin layer on the package's functions."""

from typing import NoReturn


def main() -> NoReturn:
    """Run `sys.argv` and exit. Importing this wing imports nothing else of it."""
    from ckpt_surgery.cli import program

    program.main()
