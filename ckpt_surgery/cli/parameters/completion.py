"""Completions of arguments in shells. Nothing here reads a recipe or a checkpoint."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ckpt_surgery.core.problem_codes import Code

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Files and directories, which the shell itself knows."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_recipe(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Packaged recipes after an `@`, else files and directories."""
    return _packaged(incomplete) if incomplete.startswith("@") else complete_path(ctx, param, incomplete)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Packaged recipes, with or without their `@`."""
    return _packaged("@" + incomplete.removeprefix("@"), "" if incomplete.startswith("@") else "@")


def _packaged(incomplete: str, left_out: str = "") -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(name.removeprefix(left_out), help=purpose)
        for name, purpose in _choices().recipes()
        if name.startswith(incomplete)
    ]


def complete_subject(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the arguments of `explain`: the code of a problem, or a recipe and then checkpoints."""
    if ctx.params.get(param.name or ""):
        return complete_path(ctx, param, incomplete)
    codes = complete_code(ctx, param, incomplete.upper())
    return codes if codes and incomplete else [*codes, *complete_recipe(ctx, param, incomplete)]


def _one_of(names: Callable[[], Iterable[str]]) -> Callable[..., "list[CompletionItem]"]:
    """Completion with those of some names that begin like the value; they are asked for when it is wanted."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]

    return complete


def _choices() -> Any:
    from ckpt_surgery.inputs import choices

    return choices


def _models() -> Any:
    from ckpt_surgery.inputs import models

    return models


complete_code = _one_of(lambda: Code)
complete_layout = _one_of(lambda: _models().layouts())
complete_read_format = _one_of(lambda: _choices().readable_formats())
complete_written_format = _one_of(lambda: _choices().writable_formats())
