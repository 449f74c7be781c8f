"""Options that a few commands have: which keys are looked at, and where a drafted recipe goes."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ckpt_surgery.cli.completion import complete_path
from ckpt_surgery.cli.options import file_path

F = TypeVar("F", bound=Callable[..., Any])


def match_option(function: F) -> F:
    return click.option(
        "--match",
        metavar="REGEX",
        help="Only keys that match as a whole, as in recipes: '.*/kernel', not 'kernel'.",
    )(function)


def under_option(function: F) -> F:
    return click.option(
        "--under", metavar="PATH", help="Only keys below these first components, such as params/decoder."
    )(function)


def draft_options(function: F) -> F:
    """`--out` and `--overwrite` of commands that draft a recipe."""
    out = click.option(
        "--out",
        callback=file_path,
        shell_complete=complete_path,
        metavar="FILE",
        help="Write the recipe to a file. [default: stdout]",
    )
    overwrite = click.option("--overwrite", is_flag=True, help="Replace the file of --out if there is one.")
    return out(overwrite(function))
