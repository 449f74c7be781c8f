"""Discovery of functions: in the modules of this package, and in the entry points
`ckpt_surgery.functions`."""

import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterator
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.functions.base import Function, Plain, expression_name


def _offers() -> Iterator[Any]:
    """All values defined in the modules of this package and in those of entry points."""
    package = importlib.import_module("ckpt_surgery.functions")
    for found in pkgutil.iter_modules(package.__path__):
        yield from vars(importlib.import_module(f"{package.__name__}.{found.name}")).values()
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.functions"):
        yield from vars(entry.load()).values()


@functools.cache
def registry() -> dict[str, type[Function] | Plain]:
    """The functions that expressions can call, by name. Raises UsageError if two have the same name."""
    found: dict[str, type[Function] | Plain] = {}
    classes: list[type[Function]] = []
    for value in _offers():
        if isinstance(value, type) and issubclass(value, Function):
            classes.append(value)
        elif name := expression_name(value):
            _add(found, name, value)
    own = {(f.__module__, name) for name, f in found.items()}
    for cls in classes:  # those whose name a Python function of the module has, that function applies
        if cls.name and (cls.__module__, cls.name) not in own:
            _add(found, cls.name, cls)
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    if found.setdefault(name, value) is not value:
        raise UsageError(
            f"two functions are called `{name}`: one in {found[name].__module__}, "
            f"and one in {value.__module__}",
            hint="Uninstall the package of one of them, or rename its function.",
        )


@functools.cache
def kinds() -> dict[str, type[Function]]:
    """Every class of functions by its `kind`. Raises UsageError if two classes have the same kind."""
    found: dict[str, type[Function]] = {}
    for value in _offers():
        if not (isinstance(value, type) and issubclass(value, Function) and value.kind):
            continue
        if found.setdefault(value.kind, value) is not value:
            raise UsageError(
                f"two functions have the kind `{value.kind}`: one in {found[value.kind].__module__}, "
                f"and one in {value.__module__}",
                hint="Uninstall the package of one of them, or give its function a `kind` of its own.",
            )
    return found
