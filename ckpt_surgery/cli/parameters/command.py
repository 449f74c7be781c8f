"""Commands made of functions, whose parameters are the options and arguments.

A parameter `name: Annotated[TYPE, "text"]` is the option `--name` with this text in the help; TYPE says which
values it takes, and a `Form` how it is given, where name and type do not. Options that the library has, too,
are described in `inputs.options`. The fields of `**options: Unpack[FIELDS]`, a TypedDict, are options, and so
are those of a `Group`. A function gets `ctx` and `terminal` if it has such parameters.

Environment variables stand in for options of taste and place, such as CKPT_SURGERY_MEMORY; an option on the
command line goes before its variable. No variable says what is replaced, which recipe runs, what it is given,
or which checkpoint is read.
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, Unpack, get_args, get_origin

import click
from click.core import ParameterSource

from ckpt_surgery.cli.parameters.options import FORMS, Argument, DraftTo, Form, Group, global_params
from ckpt_surgery.cli.terminal.console import as_options, open_terminal
from ckpt_surgery.inputs.options import PlanOptions

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        f"--{name}": f"CKPT_SURGERY_{name.upper().replace('-', '_')}"
        for name in ("memory", "workers", "link-mode", "verify", "engine", "scheduler")
    }
)
"""The variable of each option that has one."""
FROM_VARIABLES = "from variables"
"""Name of a mapping in the context's `meta`: variables in force, by the Python names of their options."""


def is_from_variable(ctx: click.Context, name: str) -> bool:
    """Whether the value of a parameter, by its Python name, comes from a variable."""
    return ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT


READ = "What to read"
GROUPS: Mapping[str, Sequence[str]] = {
    READ: (
        *("-e", "--set", "--config", "--target", "--allow-hooks", "--step", "--item", "--last"),
        *("--src-format", "--uint16", "--match", "--under", "--values", "--stats", "--rtol", "--atol"),
        *("--fast", "--sample", "--seed"),
    ),
    "What to write": (
        *("--to", "--format", "--dst-step", "--dst-item", "--shard-size", "--unshard", "--copy-config"),
        *("--link-mode", "--overwrite", "--out", "--recipe"),
    ),
    "How to run": (
        *("--dry-run", "--resume", "--verify", "--memory", "--workers", "--engine", "--scheduler", "--shard"),
        *("--check", "--detailed-exitcode", "--exit-code"),
    ),
    "What to print": (
        *("--full", "--flat", "--keys", "--depth", "--sort", "--json", "--report", "--report-format"),
        *("-q", "-v", "--no-color", "-h"),
    ),
}
"""Names of options, in the order in which the help of a command lists them."""
PLACES = {name: (group, place) for group, names in GROUPS.items() for place, name in enumerate(names)}
MOST_UNGROUPED = 10
"""Number of options up to which a command has one list of them."""
ELSEWHERE: Mapping[tuple[str | None, str], str] = {("inspect", "--format"): READ, ("verify", "--full"): READ}
"""Groups of options that mean something else in these commands."""

PROGRAM = "ckpt-surgery"
"""Name of the program."""
COMPLETE = "_CKPT_SURGERY_COMPLETE"
"""Variable in which a shell asks for completions."""


class Command(click.Command):
    """A command that refuses to take an option with a value twice; click silently uses the last one."""

    def __init__(self, name: str, examples: Mapping[str, str], hints: Mapping[str, Any], **more: Any):
        """`examples`: command lines and what they do. `hints`: annotations, of which `params` are made."""
        super().__init__(name, **more)
        self.examples = examples
        self._hints = hints
        del self.params  # which click has set

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """Options and arguments."""
        return [*(_param(name, hint) for name, hint in _fields(self._hints)), *global_params()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # which asks what a line that is being written can go on with
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for option, count in Counter(one for one in given if isinstance(one, click.Option)).items():
                if count > 1 and not (option.is_flag or option.multiple or option.count):
                    raise click.UsageError(f"Option '{option.opts[-1]}' is given more than once.", ctx)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            param = error.param
            if isinstance(param, click.Option) and param.name and param.envvar:
                wrong = is_from_variable(ctx, param.name)
                error.param_hint = f"the variable {param.envvar}" if wrong else f"'{param.opts[-1]}'"
            raise
        # A scheduler that a variable names is left out where the work is not a cluster's.
        if ctx.params.get("engine") == "local" and is_from_variable(ctx, "scheduler"):
            ctx.params["scheduler"] = None
        ctx.meta[FROM_VARIABLES] = {
            param.name: param.envvar
            for param in self.params
            if param.name and is_from_variable(ctx, param.name) and ctx.params.get(param.name) is not None
        }
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; many of them by what they are about."""
        shown = [
            (param, record)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
        ]
        if len(shown) <= MOST_UNGROUPED:
            super().format_options(ctx, formatter)
            return
        groups: dict[str, list[tuple[int, tuple[str, str]]]] = {name: [] for name in (*GROUPS, "Options")}
        for option, record in shown:
            names = [*option.opts, *option.secondary_opts]
            group, place = next((PLACES[name] for name in names if name in PLACES), ("Options", 0))
            groups[ELSEWHERE.get((self.name, names[0]), group)].append((place, record))
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl([record for _, record in sorted(records)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on one line of any length, so that it can be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            program = ctx.find_root().info_name
            with formatter.section("Examples"):
                margin = " " * formatter.current_indent
                for line, purpose in self.examples.items():
                    formatter.write(f"{margin}# {purpose}\n{margin}{program} {line}\n")


def command(
    name: str, examples: Mapping[str, str], short_help: str
) -> Callable[[Callable[..., int | None]], Command]:
    """Make the command `name` of a function, whose docstring is its help, and whose result its exit code."""

    def decorate(function: Callable[..., int | None]) -> Command:
        hints = dict(function.__annotations__)
        given = {name for name in ("ctx", "terminal", "return") if hints.pop(name, None)}

        def run(**values: Any) -> int | None:
            ctx, json_to = click.get_current_context(), values.get("json_to")
            for name, hint in hints.items():
                if _is_group(hint):
                    values[name] = hint(**{member: values.pop(member) for member in _annotations(hint)})
            if "ctx" in given:
                values["ctx"] = ctx
            if "terminal" in given:
                is_drafted = hints.get("out") is DraftTo and values["out"] is None
                values["terminal"] = open_terminal(ctx.find_root().obj, json_to, taken=is_drafted)
            return function(**values)

        texts = {"help": inspect.cleandoc(function.__doc__ or ""), "short_help": short_help}
        return Command(name, examples, hints, callback=run, **texts)

    return decorate


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Group)


def _fields(hints: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and hints of all options and arguments, in place of those of groups their fields'."""
    for name, hint in hints.items():
        fields = get_args(hint)[0] if get_origin(hint) is Unpack else hint if _is_group(hint) else None
        yield from [(name, hint)] if fields is None else _annotations(fields).items()


def _annotations(fields: type) -> dict[str, Any]:
    """Hints of the fields of a class, those of its bases first."""
    of_bases = (vars(base).get("__annotations__", {}) for base in reversed(fields.__mro__))
    return {name: hint for hints in of_bases for name, hint in hints.items()}


def _param(name: str, hint: Any) -> click.Parameter:
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    form = next((one for one in notes if isinstance(one, Form)), None) or FORMS.get(name, Form())

    def parse(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return value if value is None or form.parse is None else form.parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    given = {"shell_complete": form.complete, "callback": parse, "metavar": form.metavar}
    settings: dict[str, Any] = {**given, **form.more}
    if isinstance(form, Argument):
        return click.Argument([name], **settings)
    kind, *notes = (kind, *notes) if notes else get_args(PlanOptions.__annotations__[name])
    of_library = next(one for one in notes if isinstance(one, str))
    text = re.sub(r"; default: (.+)\.$", r". [default: \1]", as_options(of_library))
    names = form.names or (f"--{name.replace('_', '-')}",)
    variable = VARIABLES.get(names[0])
    settings |= {} if variable is None else {"envvar": variable, "show_envvar": True}
    return click.Option([*names, name], help=text, **{**_values(kind, text), **settings})


def _values(kind: Any, text: str) -> dict[str, Any]:
    """Settings of an option by the type of its values; the default of one that is never None is in `text`."""
    is_union = get_origin(kind) in (Union, UnionType)
    first = next(one for one in get_args(kind) if one is not NoneType) if is_union else kind
    if first is bool:
        return {"is_flag": True}
    default = {} if is_union else {"default": text.rpartition("[default: ")[2].strip("`]")}
    if get_origin(first) is Literal:
        return {"type": click.Choice(get_args(first)), **default}
    if get_origin(first) is tuple:
        return {"multiple": True}
    return {"type": first, **default} if first in (int, float) and not is_union else {}
