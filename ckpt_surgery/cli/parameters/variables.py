"""Environment variables that stand in for options of taste and place, such as CKPT_SURGERY_MEMORY.

An option on the command line goes before its variable. No variable says what is replaced, which recipe runs,
what it is given, or which checkpoint is read: such options are in no environment.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import click
from click.core import ParameterSource

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "--memory": "CKPT_SURGERY_MEMORY",
        "--workers": "CKPT_SURGERY_WORKERS",
        "--link-mode": "CKPT_SURGERY_LINK_MODE",
        "--verify": "CKPT_SURGERY_VERIFY",
        "--engine": "CKPT_SURGERY_ENGINE",
        "--scheduler": "CKPT_SURGERY_SCHEDULER",
    }
)
"""The variable of each option that has one."""
FROM_VARIABLES = "from variables"
"""Name of a mapping in the context's `meta`: variables in force, by the Python names of their options."""
LOCAL = "local"


def name_variables(params: Iterable[click.Parameter]) -> None:
    """Let options be set by their variables, which `--help` then shows."""
    for param in params:
        variable = next(filter(None, map(VARIABLES.get, param.opts)), None)
        if isinstance(param, click.Option) and variable is not None:
            param.envvar, param.show_envvar = variable, True


def is_from_variable(ctx: click.Context, name: str) -> bool:
    """Whether the value of a parameter, by its Python name, comes from a variable."""
    return ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT


def blame_variable(error: click.BadParameter, ctx: click.Context) -> None:
    """Have the error name the variable where the wrong value comes from it, else the option alone."""
    param = error.param
    if isinstance(param, click.Option) and param.name and param.envvar:
        wrong = is_from_variable(ctx, param.name)
        error.param_hint = f"the variable {param.envvar}" if wrong else f"'{param.opts[-1]}'"


def note_variables(ctx: click.Context) -> None:
    """Note which variables are in force, for the messages of errors.

    A scheduler that a variable names is left out where the work is not a cluster's.
    """
    if ctx.params.get("engine") == LOCAL and is_from_variable(ctx, "scheduler"):
        ctx.params["scheduler"] = None
    ctx.meta[FROM_VARIABLES] = {
        param.name: param.envvar
        for param in ctx.command.params
        if param.name and is_from_variable(ctx, param.name) and ctx.params.get(param.name) is not None
    }
