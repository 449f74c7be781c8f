"""Options on the command line. The texts of those that the library has, too, are in `inputs.options`."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from ckpt_surgery.cli.parameters.completion import (
    complete_path,
    complete_read_format,
    complete_written_format,
)
from ckpt_surgery.cli.terminal.console import STDOUT, Settings
from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import parse_size
from ckpt_surgery.core.text import shown


@dataclass(frozen=True)
class Form:
    """Form of an option, where its name and type do not determine it."""

    metavar: str | None = None
    names: tuple[str, ...] = ()
    """Names on the command line; empty: `--` and the parameter's name."""
    parse: Callable[[Any], Any] | None = None
    """Checks a value, and returns what the command gets; raises ValueError."""
    complete: Callable[..., Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `click.Option`, or of `click.Argument`."""


@dataclass(frozen=True)
class Argument(Form):
    """Form of a positional argument: a path, if it is not completed otherwise."""

    complete: Callable[..., Any] | None = complete_path


class Group:
    """Options that several commands have: an attribute for each annotated field."""

    def __init__(self, **values: Any):
        vars(self).update(values)


def whole(least: int) -> Form:
    """The form of a number that is not less than `least`."""
    return Form("N", more={"type": click.IntRange(min=least)})


class ReportFormat(StrEnum):
    """Form in which problems are reported."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def requested_format(arguments: Sequence[str]) -> ReportFormat:
    """The format that a command line asks for. It is read before click parses, so that errors are in it."""
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for option, value in zip(before, [*before, "-"][1:], strict=True):
        name, equals, given = option.partition("=")
        given = given if equals else value
        if name in ("--report-format", "--format") and given in set(ReportFormat):
            return ReportFormat(given)
        if name == "--json" and given.startswith("-"):
            return ReportFormat.JSON
    return ReportFormat.TEXT


def _format(value: str, names: Sequence[str]) -> str:
    if value not in names:
        raise ValueError(f"`{value}` is not one of: {', '.join(names)}")
    return value


def _writable_format(value: str) -> str:
    from ckpt_surgery.inputs.choices import writable_formats  # not before there is a value: `--help` is quick

    if value in set(ReportFormat):
        message = f"`{value}` is the format of a report: --report-format {value}, of `plan` and `lint`"
        raise ValueError(message)
    return _format(value, writable_formats())


def _known_format(value: str) -> str:
    from ckpt_surgery.inputs.choices import readable_formats

    return _format(value, readable_formats())


def _assignments(value: tuple[str, ...]) -> tuple[str, ...]:
    for assignment in value:
        name, equals, _ = assignment.partition("=")
        if not (name and equals):
            raise ValueError(f"`{assignment}` is not of the form NAME=VALUE")
    return value


def _share(value: str) -> float:
    """Accept `5%` and `0.05`."""
    number = re.fullmatch(r"(\d+\.?\d*|\.\d+)(%?)", value, re.ASCII)
    share = 0.0 if number is None else float(number[1]) / (100 if number[2] else 1)
    if not 0 < share <= 1:
        raise ValueError(f"`{shown(value)}` is not a share; write it like 5% or 0.05, at most 100%")
    return share


def document_path(value: str) -> str:
    """Accept `-`, or a file in a directory that exists; checked before the work, which may take long."""
    path = Path(value)
    if value == STDOUT:
        return value
    if urls.is_url(value):
        raise ValueError(f"{shown(value)}: documents are files of this machine")
    if path.is_dir():
        raise ValueError(f"{shown(value)} is a directory")
    if not path.parent.is_dir():
        raise ValueError(f"the directory {shown(str(path.parent))} does not exist")
    return value


def file_path(value: str) -> str:
    """Accept what `document_path` accepts, except `-`."""
    if value == STDOUT:
        raise ValueError("it is written to a file; `-` is none")
    return document_path(value)


def _set_globally(ctx: click.Context, param: click.Parameter, value: int) -> None:
    """Set a global option, by its name; `-v` counts, also before and after the command together."""
    root = ctx.find_root()
    settings = root.obj if isinstance(root.obj, Settings) else Settings()
    before = getattr(settings, str(param.name))
    root.obj = dataclasses.replace(settings, **{str(param.name): type(before)(before + value)})


def global_params() -> list[click.Parameter]:
    """`-q`, `-v` and `--no-color`: before the command or after it."""
    given: dict[str, Any] = {"expose_value": False, "callback": _set_globally}
    return [
        click.Option(["-q", "--quiet"], is_flag=True, help="Errors and warnings only.", **given),
        click.Option(["-v", "--verbose"], count=True, help="More; -vv: tracebacks too.", **given),
        click.Option(["--no-color"], is_flag=True, help="No colour (also NO_COLOR).", **given),
    ]


SIZE = Form("SIZE", parse=parse_size)
FILE = Form("FILE", parse=file_path, complete=complete_path)
RULE = Form("RULE", ("-e",), more={"multiple": True})
SOURCE_FORMAT = Form("FORMAT", parse=_known_format, complete=complete_read_format)

FORMS: Mapping[str, Form] = {
    "step": whole(0),
    "item": Form("NAME"),
    "src_format": SOURCE_FORMAT,
    "format": Form("FORMAT", parse=_writable_format, complete=complete_written_format),
    "dst_step": whole(0),
    "dst_item": Form("NAME"),
    "shard_size": SIZE,
    "memory": SIZE,
    "workers": whole(1),
    "link_mode": Form(more={"type": click.Choice(["auto", "reflink", "hardlink", "copy"])}),
    "target": Form("PATH", complete=complete_path),
    "set": Form("NAME=VALUE", parse=_assignments, more={"multiple": True}),
    "config": Form("FILE", complete=complete_path),
    "last": whole(1),
    "match": Form("REGEX"),
    "under": Form("PATH"),
    "depth": whole(1),
    "sample": Form("SHARE", parse=_share),
    "seed": Form("N"),
    "rtol": Form("X"),
    "atol": Form("X"),
}
"""Forms of the options that the library describes."""

Rules = Annotated[
    tuple[str, ...],
    "A rule in place of RECIPE, also several: `s|REGEX|TEMPLATE|` for whole keys, `s|REGEX|TEXT|g` inside "
    "keys, either also with ` = EXPRESSION` behind it, `drop:REGEX`, `KEY = EXPRESSION`, `add:TEMPLATE = "
    "EXPRESSION`, and last `keep:REGEX`, which drops the rest.",
    RULE,
]
JsonTo = Annotated[
    str | None,
    "Write a JSON document; to stdout if no file follows, and all else to stderr.",
    Form(
        "[FILE.json|-]", ("--json",), document_path, complete_path, {"is_flag": False, "flag_value": STDOUT}
    ),
]
Full = Annotated[bool, "One line per key, nothing folded or left out."]
Overwrite = Annotated[bool, "Replace DST; it stays until the new one is complete."]
Verify = Annotated[
    Literal["fast", "full", "none"],
    "What is read back before DST is published; `full`: linked arrays too. [default: fast]",
]
CopyConfig = Annotated[
    bool | None,
    "Whether config and tokenizer files beside SRC are copied into a directory of safetensors. "
    "[default: where SRC has a config.json]",
    Form(names=("--copy-config/--no-copy-config",), more={"default": None}),
]
DraftTo = Annotated[str | None, "Write the recipe to a file. [default: stdout]", FILE]


def report_format(*names: str) -> Form:
    """Spelling of `ReportAs`: `--report-format`, and `--format` where no checkpoint is written."""
    kinds = {"type": click.Choice([str(one) for one in ReportFormat]), "default": "text"}
    return Form(names=names, parse=ReportFormat, more=kinds)


ReportAs = Annotated[
    ReportFormat,
    "How problems are reported: for people, as JSON, as annotations of GitHub Actions, or as SARIF. "
    "[default: text]",
]


class PlanOutput(Group):
    """Options for what `apply`, `plan`, `convert` and `merge` print and write about a plan."""

    json_to: JsonTo
    report_to: Annotated[
        str | None,
        "Write a page for browsers: all leaves, where the bytes went, the recipe.",
        Form("FILE", ("--report",), file_path, complete_path),
    ]
    full: Full
    detailed_exitcode: Annotated[bool, "0: no change, 1: error, 2: changes."]


class RunParameters(Group):
    """Options for how `apply`, `convert` and `merge` carry out a plan."""

    overwrite: Overwrite
    resume: Annotated[
        bool, "Go on with what an earlier run of the same command has written before it was ended."
    ]
    verify: Verify
    copy_config: CopyConfig
    engine: Annotated[
        Literal["local", "dask"],
        "What does the work: threads of this process, or a cluster of Dask. [default: local]",
    ]
    scheduler: Annotated[
        str | None,
        "Address of the cluster's scheduler. [default: `--workers` processes of this machine]",
        Form("ADDRESS"),
    ]


DryRun = Annotated[bool, "Stop after the diff; nothing is written."]
