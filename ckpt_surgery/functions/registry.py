"""Discovery of functions: in the modules of this package, and in the entry points
`ckpt_surgery.functions`."""

import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.functions.arrays import Array, Series, apply
from ckpt_surgery.functions.base import Function, LeafKey, Number, Plain, expression_name, in_expressions

GROUP = "ckpt_surgery.functions"
"""Group of the entry points that name modules with further functions; this package's name, too."""
WRITTEN_WITH: dict[str, Any] = {"Function": Function, "LeafKey": LeafKey, "Number": Number}
WRITTEN_WITH |= {"in_expressions": in_expressions, "Array": Array, "Series": Series, "apply": apply}
"""Tools for writing functions, by the names under which this package offers them."""


@functools.cache
def registry() -> dict[str, Plain]:
    """The functions that expressions can call, by name.

    Raises UsageError if two have the same name, and for an entry point that registers none.
    """
    functions = dict(own_functions())
    for entry in importlib.metadata.entry_points(group=GROUP):
        module = entry.load()
        _add(functions, module)
        if not any(map(expression_name, vars(module).values())):
            raise UsageError(
                f"the entry point `{entry.name}` registers no function: {module.__name__} has none that "
                "`in_expressions` marks",
                hint="Write `@in_expressions` above `def roll(x: Array, shift: int) -> Array`.",
            )
    return functions


@functools.cache
def own_functions() -> Mapping[str, Plain]:
    """The functions of this package by name."""
    functions: dict[str, Plain] = {}
    for module in pkgutil.iter_modules(importlib.import_module(GROUP).__path__):
        _add(functions, importlib.import_module(f"{GROUP}.{module.name}"))
    return functions


def _add(functions: dict[str, Plain], module: ModuleType) -> None:
    """Add the functions of a module. Raises UsageError if two have the same name."""
    for function in vars(module).values():
        name = expression_name(function)
        if name and functions.setdefault(name, function) is not function:
            raise UsageError(
                f"two functions are called `{name}`: one in {functions[name].__module__}, "
                f"and one in {function.__module__}",
                hint="Uninstall the package of one of them, or rename its function.",
            )
