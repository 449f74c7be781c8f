"""Options that several commands have, and the types of their values."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ckpt_surgery.cli.completion import complete_path, complete_read_format, complete_written_format
from ckpt_surgery.cli.console import STDOUT, Settings
from ckpt_surgery.cli.problem_reports import ReportFormat
from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import parse_size
from ckpt_surgery.core.text import shown

if TYPE_CHECKING:
    pass

F = TypeVar("F", bound=Callable[..., Any])


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _writable_format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Names of formats are asked for only when there is a value, because `--help` must be quick."""
    if value is None:
        return None
    from ckpt_surgery.inputs.choices import writable_formats

    if value in set(ReportFormat):
        message = f"`{value}` is the format of a report: --report-format {value}, of `plan` and `lint`"
        raise click.BadParameter(message, ctx, param)
    return _one_of(writable_formats(), ctx, param, value)


def _known_format(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from ckpt_surgery.inputs.choices import readable_formats

    return _one_of(readable_formats(), ctx, param, value)


def _one_of(names: Sequence[str], ctx: click.Context, param: click.Parameter, value: str) -> str:
    if value not in names:
        raise click.BadParameter(f"`{value}` is not one of: {', '.join(names)}", ctx, param)
    return value


def source_format_option(name: str) -> Callable[[F], F]:
    """The format of a source: `--src-format` where `--format` is that of DST, else `--format`."""
    return click.option(
        name,
        callback=_known_format,
        shell_complete=complete_read_format,
        metavar="FORMAT",
        help="Format of what is read. [default: what its content says]",
    )


uint16_option = click.option(
    "--uint16",
    type=click.Choice(["keep", "bfloat16"]),
    help="Read arrays of uint16 as bfloat16, which old versions of T5X stored so. [default: keep]",
)


def _assignments(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for assignment in value:
        name, equals, _ = assignment.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"`{assignment}` is not of the form NAME=VALUE", ctx, param)
    return value


def document_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Accept `-`, or a file in a directory that exists; checked before the work, which may take long."""
    if value is None or value == STDOUT:
        return value
    if urls.is_url(value):
        raise click.BadParameter(f"{shown(value)}: documents are files of this machine", ctx, param)
    path = Path(value)
    if path.is_dir():
        raise click.BadParameter(f"{shown(value)} is a directory", ctx, param)
    if not path.parent.is_dir():
        raise click.BadParameter(f"the directory {shown(str(path.parent))} does not exist", ctx, param)
    return value


def file_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Accept what `document_path` accepts, except `-`."""
    if value == STDOUT:
        raise click.BadParameter("it is written to a file; `-` is none", ctx, param)
    return document_path(ctx, param, value)


def _update(ctx: click.Context, settings: Settings) -> None:
    ctx.find_root().obj = settings


def _settings(ctx: click.Context) -> Settings:
    found = ctx.find_root().obj
    return found if isinstance(found, Settings) else Settings()


def _quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        _update(ctx, dataclasses.replace(_settings(ctx), quiet=True))


def _verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    settings = _settings(ctx)
    _update(ctx, dataclasses.replace(settings, verbose=settings.verbose + value))


def _no_color(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        _update(ctx, dataclasses.replace(_settings(ctx), color=False))


def global_options(function: F) -> F:
    """`-q`, `-v` and `--no-color`: before the command or after it."""
    options = (
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_quiet,
            help="Errors and warnings only.",
        ),
        click.option(
            "-v",
            "--verbose",
            count=True,
            expose_value=False,
            callback=_verbose,
            help="More; -vv: tracebacks too.",
        ),
        click.option(
            "--no-color",
            is_flag=True,
            expose_value=False,
            callback=_no_color,
            help="No colour (also NO_COLOR).",
        ),
    )
    return _all(options, function)


def selection_options(function: F) -> F:
    """`--step` and `--item`, which choose from a directory that holds several checkpoints."""
    options = (
        click.option(
            "--step", type=click.IntRange(min=0), metavar="N", help="Step inside SRC. [default: the latest]"
        ),
        click.option("--item", metavar="NAME", help="Item inside SRC. [default: its only item with arrays]"),
    )
    return _all(options, function)


set_option = click.option(
    "--set",
    multiple=True,
    callback=_assignments,
    metavar="NAME=VALUE",
    help="Set a parameter of the recipe.",
)


config_option = click.option(
    "--config",
    metavar="FILE",
    shell_complete=complete_path,
    help="JSON that describes the model. [default: the config.json beside SRC, else the recorded one]",
)


def recipe_options(function: F) -> F:
    """Options of `apply`, `plan` and `explain` that concern the recipe."""
    options = (
        click.option(
            "-e",
            "rules",
            multiple=True,
            metavar="RULE",
            help="A rule in place of RECIPE, also several: `s|REGEX|TEMPLATE|` for whole keys, "
            "`s|REGEX|TEXT|g` inside keys, `drop:REGEX`, `KEY = EXPRESSION`, `add:TEMPLATE = EXPRESSION`, "
            "and last `keep:REGEX`, which drops the rest.",
        ),
        click.option(
            "--target",
            metavar="PATH",
            shell_complete=complete_path,
            help="Checkpoint or listing whose structure the result must have.",
        ),
        set_option,
        config_option,
        click.option("--allow-hooks", is_flag=True, help="Run the recipe's hooks: Python code beside it."),
    )
    return _all(options, function)


last_option = click.option(
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take the N latest steps of SRC, a CheckpointManager's directory, as N sources.",
)


def bytes_options(function: F) -> F:
    """Options of `apply`, `plan`, `convert` and `explain`: which bytes are read, and how they are written."""
    options = (
        selection_options,
        source_format_option("--src-format"),
        uint16_option,
        click.option(
            "--format",
            callback=_writable_format,
            shell_complete=complete_written_format,
            metavar="FORMAT",
            help="Format of DST. [default: what its name says, else orbax]",
        ),
        click.option(
            "--shard-size",
            callback=_size,
            metavar="SIZE",
            help="Spread DST's arrays over files of this size at most, such as 5GB.",
        ),
        click.option(
            "--unshard",
            is_flag=True,
            help="Record no sharding of any array, so that Orbax restores DST on any devices.",
        ),
        click.option(
            "--link-mode",
            type=click.Choice(["auto", "reflink", "hardlink", "copy"]),
            help="How stored bytes that need no change get into DST: auto takes reflinks, else hard links to "
            "files that nothing rewrites in place, else copies; hardlink: you know that nothing will "
            "rewrite SRC. [default: auto]",
        ),
        memory_option,
    )
    return _all(options, function)


def plan_options(function: F) -> F:
    """Options of `apply`, `plan` and `convert`."""
    options = (
        bytes_options,
        click.option(
            "--dst-step",
            type=click.IntRange(min=0),
            metavar="N",
            help="Write DST/N/ITEM, for a CheckpointManager.",
        ),
        click.option(
            "--dst-item",
            metavar="NAME",
            help="Name of that item; a step that exists keeps its others. [default: as in SRC, else default]",
        ),
        click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Threads."),
        json_option,
        report_option,
        full_option,
        click.option("--detailed-exitcode", is_flag=True, help="0: no change, 1: error, 2: changes."),
    )
    return _all(options, function)


def run_options(function: F) -> F:
    """Options of `apply` and `convert` that concern how the plan is carried out."""
    options = (
        click.option("--dry-run", is_flag=True, help="Stop after the diff; nothing is written."),
        overwrite_option,
        click.option(
            "--resume",
            is_flag=True,
            help="Go on with what an earlier run of the same command has written before it was ended.",
        ),
        verify_option,
        copy_config_option,
        click.option(
            "--engine",
            type=click.Choice(["local", "dask"]),
            default="local",
            help="What does the work: threads of this process, or a cluster of Dask. [default: local]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Address of the cluster's scheduler. [default: `--workers` processes of this machine]",
        ),
    )
    return _all(options, function)


def verify_option(function: F) -> F:
    return click.option(
        "--verify",
        type=click.Choice(["fast", "full", "none"]),
        default="fast",
        help="What is read back before DST is published; `full`: linked arrays too. [default: fast]",
    )(function)


def copy_config_option(function: F) -> F:
    return click.option(
        "--copy-config/--no-copy-config",
        default=None,
        help="Whether config and tokenizer files beside SRC are copied into a directory of safetensors. "
        "[default: where SRC has a config.json]",
    )(function)


def overwrite_option(function: F) -> F:
    return click.option(
        "--overwrite", is_flag=True, help="Replace DST; it stays until the new one is complete."
    )(function)


def memory_option(function: F) -> F:
    return click.option(
        "--memory",
        callback=_size,
        metavar="SIZE",
        help="Budget, such as 2GiB. [default: 2GiB, or a quarter of what is free]",
    )(function)


def json_option(function: F) -> F:
    """`--json`, `--json FILE`, `--json -`."""
    return click.option(
        "--json",
        "json_to",
        callback=document_path,
        shell_complete=complete_path,
        is_flag=False,
        flag_value=STDOUT,
        metavar="[FILE.json|-]",
        help="Write a JSON document; to stdout if no file follows, and all else to stderr.",
    )(function)


def report_option(function: F) -> F:
    return click.option(
        "--report",
        "report_to",
        callback=file_path,
        shell_complete=complete_path,
        metavar="FILE",
        help="Write a page for browsers: all leaves, where the bytes went, the recipe.",
    )(function)


def report_format_option(*names: str) -> Callable[[F], F]:
    """How problems are reported: `--report-format`, and `--format` where no checkpoint is written."""
    return click.option(
        *names,
        "report_format",
        type=click.Choice([str(one) for one in ReportFormat]),
        callback=lambda ctx, param, value: ReportFormat(value),
        default="text",
        help="How problems are reported: for people, as JSON, as annotations of GitHub Actions, or as SARIF. "
        "[default: text]",
    )


def full_option(function: F) -> F:
    return click.option("--full", is_flag=True, help="One line per key, nothing folded or left out.")(
        function
    )


def _all(options: Sequence[Callable[[F], F]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function
