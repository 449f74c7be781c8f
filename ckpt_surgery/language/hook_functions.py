"""Hooks that are functions of the running program, not those of a file."""

import functools
import hashlib
import re
from collections.abc import Mapping
from types import CodeType
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.language.hooks import HookFunction, HookSet

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
IN_MEMORY = "(hooks)"
"""What messages call functions that have no file."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


class HookFunctions(HookSet):
    """Functions that the caller gives together with a recipe. They run because the caller gave them."""

    def __init__(self, functions: Mapping[str, HookFunction]):
        """Raises UsageError for a name that no expression can call, and for what is not a function."""
        for name, function in functions.items():
            if NAME.fullmatch(name) is None:
                raise UsageError(
                    f"a hook cannot be called {abridged(name)}: it needs letters, digits and `_`"
                )
            if not callable(function):
                raise UsageError(f"the hook `{name}` is not a function, but {abridged(function)}")
        self.name = self.file = IN_MEMORY
        self.functions = dict(functions)
        self.sha256 = _digest(functions)

    def label(self, name: str) -> str:
        """What messages call the function of this name, which nobody has given to a hook that was made."""
        function = _made_of(self.functions[name])
        if function is None:
            return super().label(name)
        called = getattr(function, "__qualname__", type(function).__qualname__)
        return f"the function `{called.rpartition('<locals>.')[2]}`"

    def file_of(self, name: str) -> str:
        """The file of the caller's program that defines the function; the name of all where there is none."""
        code = getattr(_made_of(self.functions[name]) or self.functions[name], "__code__", None)
        return code.co_filename if isinstance(code, CodeType) else self.file

    def of_program(self, name: str) -> HookFunction:
        return self.functions[name]

    def shape_hint(self, name: str) -> str:
        """What to do where the function gives another shape or dtype than was expected."""
        return getattr(
            self.functions[name],
            "shape_hint",
            "It has to give the same shape and dtype for all values of an array.",
        )


def _made_of(hook: Any) -> Any:
    """The caller's own function that a hook, or its `infer`, was made of; None where the caller named it."""
    owner = getattr(hook, "__self__", hook)
    function = getattr(owner, "made_of", None)
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _digest(functions: Mapping[str, HookFunction]) -> str:
    """A digest of the names and the code, the same in every process that runs the same program.

    Equal digests do not prove that the functions do the same: what they refer to is not looked at.
    """
    told = [
        (name, _told(getattr(function, "__code__", None))) for name, function in sorted(functions.items())
    ]
    return hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


def _told(value: Any) -> Any:
    """Code, and constants in it, as text without addresses in memory or positions in files."""
    if isinstance(value, CodeType):
        return value.co_code.hex(), value.co_names, [_told(item) for item in value.co_consts]
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__
