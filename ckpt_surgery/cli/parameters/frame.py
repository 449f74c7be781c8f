"""Commands made of functions, whose parameters are the options and arguments.

A parameter `name: Annotated[TYPE, "text"]` is the option `--name` with this text in the help; TYPE says which
values it takes. Options that the library has, too, are described there, in `inputs.options`. A `Form` says
how a parameter is given, where its name and type do not. The fields of `**options: Unpack[FIELDS]`, a
TypedDict, are options, and so are those of a `Group`. A function gets `ctx` and `terminal` if it has such
parameters.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, Unpack, get_args, get_origin

import click

from ckpt_surgery.cli.parameters.command import Command
from ckpt_surgery.cli.parameters.options import FORMS, Argument, Form, Group, global_params
from ckpt_surgery.cli.parameters.variables import name_variables
from ckpt_surgery.cli.terminal.console import as_options, open_terminal
from ckpt_surgery.inputs.options import PlanOptions

GIVEN = frozenset({"ctx", "terminal", "return"})
"""Annotations of a function that are no parameters of its command."""


def command(
    name: str, examples: Mapping[str, str], short_help: str
) -> Callable[[Callable[..., int | None]], Command]:
    """Make the command `name` of a function, whose docstring is its help, and whose result its exit code."""

    def made(function: Callable[..., int | None]) -> Command:
        hints = {name: hint for name, hint in function.__annotations__.items() if name not in GIVEN}

        def declared() -> list[click.Parameter]:
            params = [_param(name, hint) for name, hint in _fields(hints)]
            name_variables(params)
            return [*params, *global_params()]

        def run(**values: Any) -> int | None:
            ctx, json_to = click.get_current_context(), values.get("json_to")
            for name, hint in hints.items():
                if _is_group(hint):
                    values[name] = hint(**{member: values.pop(member) for member in _annotations(hint)})
            if "ctx" in function.__annotations__:
                values["ctx"] = ctx
            if "terminal" in function.__annotations__:
                values["terminal"] = open_terminal(ctx.find_root().obj, json_to)
            return function(**values)

        texts = {"help": inspect.cleandoc(function.__doc__ or ""), "short_help": short_help}
        return Command(name, callback=run, declared=declared, examples=examples, **texts)

    return made


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Group)


def _fields(hints: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and hints of all options and arguments, in place of those of groups their fields'."""
    for name, hint in hints.items():
        if get_origin(hint) is Unpack:
            yield from _annotations(get_args(hint)[0]).items()
        elif _is_group(hint):
            yield from _annotations(hint).items()
        else:
            yield name, hint


def _annotations(fields: type) -> dict[str, Any]:
    """Hints of the fields of a class, those of its bases first."""
    of_bases = (vars(base).get("__annotations__", {}) for base in reversed(fields.__mro__))
    return {name: hint for hints in of_bases for name, hint in hints.items()}


def _param(name: str, hint: Any) -> click.Parameter:
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    form = next((one for one in notes if isinstance(one, Form)), None) or FORMS.get(name, Form())
    given = {"shell_complete": form.complete, "callback": form.parse, "metavar": form.metavar}
    settings: dict[str, Any] = {**given, **form.more}
    if isinstance(form, Argument):
        return click.Argument([name], **settings)
    kind, *notes = (kind, *notes) if notes else get_args(PlanOptions.__annotations__[name])
    text = _in_options(next(one for one in notes if isinstance(one, str)))
    names = form.names or (f"--{name.replace('_', '-')}",)
    return click.Option([*names, name], help=text, **{**_values(kind, text), **settings})


def _in_options(text: str) -> str:
    """The library's text about an option, for the command line."""
    return re.sub(r"; default: (.+)\.$", r". [default: \1]", as_options(text))


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
