"""What shells complete arguments with. Nothing here reads a recipe or a checkpoint."""

from typing import TYPE_CHECKING

import click

from ckpt_surgery.core.problem_codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem


def complete_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Files and directories, which the shell itself knows."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_recipe(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Packaged recipes after an `@`, else files and directories."""
    if not incomplete.startswith("@"):
        return complete_path(ctx, param, incomplete)
    return _packaged(incomplete)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Packaged recipes, with or without their `@`."""
    return _packaged("@" + incomplete.removeprefix("@"), "" if incomplete.startswith("@") else "@")


def _packaged(incomplete: str, left_out: str = "") -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from ckpt_surgery.inputs.choices import recipes

    return [
        CompletionItem(name.removeprefix(left_out), help=purpose)
        for name, purpose in recipes()
        if name.startswith(incomplete)
    ]


def complete_layout(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Layouts that models can be converted to."""
    from click.shell_completion import CompletionItem

    from ckpt_surgery.inputs.models import layouts

    return [CompletionItem(name) for name in layouts() if name.startswith(incomplete)]


def complete_code(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Codes of problems."""
    return _beginning(Code, incomplete.upper())


def complete_read_format(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Names of the formats that can be read."""
    from ckpt_surgery.inputs.choices import readable_formats

    return _beginning(readable_formats(), incomplete)


def complete_written_format(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Names of the formats that can be written."""
    from ckpt_surgery.inputs.choices import writable_formats

    return _beginning(writable_formats(), incomplete)


def _beginning(names: "Iterable[str]", incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_subject(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """What `explain` takes: the code of a problem, or a recipe and then checkpoints."""
    if ctx.params.get(param.name or ""):
        return complete_path(ctx, param, incomplete)
    codes = complete_code(ctx, param, incomplete)
    return codes if codes and incomplete else [*codes, *complete_recipe(ctx, param, incomplete)]
