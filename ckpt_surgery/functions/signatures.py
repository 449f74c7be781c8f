"""The parameters of functions, and the messages for calls that do not fit them."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from ckpt_surgery.core.text import did_you_mean

OTHER_NAMES: Mapping[str, str] = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "input": "x"}
"""What PyTorch calls parameters, and what they are called here."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, as calls see it."""

    name: str
    role: str
    """`array`, `arrays` (a list of arrays), `operand` (an array or a number), or `static` (a constant)."""
    required: bool
    """Whether a call must give it."""
    annotation: Any = None
    """Type of a `static` parameter."""
    by_name: bool = True
    """Whether it can be given as a keyword."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a function."""

    name: str
    """Name of the function in messages."""
    parameters: tuple[Parameter, ...]
    """Parameters in positional order."""
    collects: bool = False
    """Whether the last parameter takes all remaining positional arguments."""
    free: Any = None
    """Type of the values of keywords with free names; None if there are no such keywords."""

    @property
    def keywords(self) -> frozenset[str]:
        """The names of the parameters that can be given as keywords."""
        return frozenset(p.name for p in self.parameters if p.by_name)


@functools.cache
def signature_of(cls: Any, called: str) -> Signature:
    """The signature of a subclass of `Function`, which messages call `called`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    names = cls.parameters
    if names is None:
        hidden = {*cls.context, cls.remaining, "part" if cls.parts else None}
        names = ("x", *(name for name in defaults if name not in hidden))
    unnamed = names.index("/") if "/" in names else 0
    names = tuple(name for name in names if name != "/")
    parameters = tuple(
        replace(_parameter(name, hints.get(name), defaults), by_name=i >= unnamed)
        for i, name in enumerate(names)
    )
    # `tuple[tuple[str, value], ...]`
    free = None if cls.remaining is None else hints[cls.remaining].__args__[0].__args__[1]
    return Signature(called, parameters, len(names) > 1 and names[-1].startswith("*"), free)


def _parameter(name: str, hint: Any, defaults: Mapping[str, Any]) -> Parameter:
    if name not in defaults:
        return Parameter(name.lstrip("*"), "arrays" if name.startswith("*") else "array", required=True)
    if typing.get_origin(hint) is Annotated and "operand" in hint.__metadata__:
        return Parameter(name, "operand", required=True)
    return Parameter(name, "static", defaults[name] is dataclasses.MISSING, hint)


def _plain_signature(function: Callable[..., Any]) -> Signature:
    parameters = tuple(
        Parameter(p.name, "static", p.default is inspect.Parameter.empty)
        for p in inspect.signature(function).parameters.values()
        if p.kind is not inspect.Parameter.VAR_POSITIONAL
    )
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    collects = inspect.Parameter.VAR_POSITIONAL in kinds
    return Signature(getattr(function, "expression_name", function.__name__), parameters, collects)


def signature_problem(
    function: type[Any] | Callable[..., Any], positional: int, keywords: Iterable[str]
) -> str | None:
    """The message for a call with this many positional arguments and these keywords, or None if it fits.

    The values of the arguments are not looked at.
    """
    return call_problem(_signature(function), positional, tuple(keywords))


def usage_of(function: type[Any] | Callable[..., Any]) -> str:
    """How a function of the language is called, for advice: `mean(x, axis=…, keepdims=…)`."""
    signature = _signature(function)
    written = [p.name if p.required else f"{p.name}=…" for p in signature.parameters]
    return f"{signature.name}({', '.join(written)})"


def _signature(function: type[Any] | Callable[..., Any]) -> Signature:
    if isinstance(function, type):
        cls: Any = function
        return signature_of(cls, cls.name)
    return _plain_signature(function)


def call_problem(signature: Signature, positional: int, keywords: tuple[str, ...]) -> str | None:
    """The message for a call that does not fit the signature, or None."""
    names = [p.name for p in signature.parameters]
    if positional > len(names) and not signature.collects:
        return f"`{signature.name}` takes {_counted(len(names))}, {positional} given: {usage(signature)}"
    for keyword in keywords:
        if keyword in names[:positional] and keyword in signature.keywords:
            return f"`{signature.name}`: `{keyword}` is given twice"
        if keyword not in names and signature.free is None:
            meant = OTHER_NAMES.get(keyword, "")
            guess = f"; did you mean `{meant}`?" if meant in names else did_you_mean(keyword, names)
            return f"`{signature.name}` has no argument `{keyword}`{guess}"
    for parameter in signature.parameters[positional:]:
        if not parameter.by_name and parameter.name in keywords:
            return f"`{signature.name}`: `{parameter.name}` has to be given by position: {usage(signature)}"
        if parameter.required and parameter.name not in keywords:
            return f"`{signature.name}` needs `{parameter.name}`: {usage(signature)}"
    return None


def _counted(arguments: int) -> str:
    return {0: "no arguments", 1: "at most one argument"}.get(arguments, f"at most {arguments} arguments")


def usage(signature: Signature) -> str:
    """The parameters as messages show them: `pad(x, axis, to, [value])`."""
    shown = [p.name if p.required else f"[{p.name}]" for p in signature.parameters]
    return f"{signature.name}({', '.join(shown)})"
