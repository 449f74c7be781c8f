"""Completions of arguments in shells. Nothing here reads a recipe or a checkpoint."""

import importlib
from collections.abc import Callable
from typing import Any

import click

from ckpt_surgery.core.errors import Code

Complete = Callable[[click.Context, click.Parameter, str], Any]

complete_path: Complete = click.Path().shell_complete
"""Completes files and directories, which the shell itself knows."""


def complete_recipe(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """Packaged recipes after an `@`, else files and directories."""
    return _packaged(incomplete) if incomplete.startswith("@") else complete_path(ctx, param, incomplete)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """Packaged recipes, with or without their `@`."""
    return _packaged("@" + incomplete.removeprefix("@"), "" if incomplete.startswith("@") else "@")


def _packaged(incomplete: str, left_out: str = "") -> Any:
    from click.shell_completion import CompletionItem

    from ckpt_surgery.inputs import choices

    fitting = ((name, purpose) for name, purpose in choices.recipes() if name.startswith(incomplete))
    return [CompletionItem(name.removeprefix(left_out), help=purpose) for name, purpose in fitting]


def complete_subject(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    """Complete the arguments of `explain`: the code of a problem, or a recipe and then checkpoints."""
    from click.shell_completion import CompletionItem

    if ctx.params.get(param.name or ""):
        return complete_path(ctx, param, incomplete)
    codes = [CompletionItem(code) for code in Code if code.startswith(incomplete.upper())]
    return codes if codes and incomplete else [*codes, *complete_recipe(ctx, param, incomplete)]


def _one_of(module: str, function: str) -> Complete:
    """Completion with those names that begin like the value; `inputs` is imported when it is wanted."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        names = getattr(importlib.import_module(f"ckpt_surgery.inputs.{module}"), function)()
        return [name for name in names if name.startswith(incomplete)]

    return complete


complete_layout = _one_of("models", "layouts")
complete_read_format = _one_of("choices", "readable_formats")
complete_written_format = _one_of("choices", "writable_formats")
