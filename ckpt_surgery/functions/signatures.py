"""The parameters of functions, and the messages for calls that do not fit them."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Never

import numpy as np

from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.functions.base import LeafKey, expression_name

OTHER_NAMES: Mapping[str, str] = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "input": "x"}
"""What PyTorch calls parameters, and what they are called here."""


_REQUIRED: Any = inspect.Parameter.empty
_LISTS = (Sequence[Array], list[Array])
_LAZY = (Array, Series, *_LISTS)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, as calls see it."""

    name: str
    annotation: Any = Any
    """The types that it takes."""
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    default: Any = _REQUIRED

    @cached_property
    def collects(self) -> bool:
        """Whether it takes all remaining positional arguments."""
        return self.kind is inspect.Parameter.VAR_POSITIONAL

    @cached_property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.takes_arrays if self.collects else self.default is _REQUIRED

    @cached_property
    def by_name(self) -> bool:
        """Whether it can be given as a keyword."""
        return self.kind is not inspect.Parameter.POSITIONAL_ONLY

    @cached_property
    def by_place(self) -> bool:
        """Whether it can be given by its position."""
        return self.kind is not inspect.Parameter.KEYWORD_ONLY

    @cached_property
    def types(self) -> tuple[Any, ...]:
        """The types of which a value needs one."""
        is_union = typing.get_origin(self.annotation) in (types.UnionType, typing.Union)
        return typing.get_args(self.annotation) if is_union else (self.annotation,)

    @cached_property
    def takes_array(self) -> bool:
        """Whether it takes a single array."""
        return Array in self.types and not self.collects

    @cached_property
    def takes_arrays(self) -> bool:
        """Whether it takes a list of arrays."""
        return any(each in self.types for each in ((Array,) if self.collects else _LISTS))

    @cached_property
    def takes_series(self) -> bool:
        """Whether it takes `xs` with the places of its arrays."""
        return Series in self.types

    @cached_property
    def static(self) -> Any:
        """The types that it takes besides arrays; `Never` if there are none."""
        return typing.Union[tuple(t for t in self.types if t not in _LAZY) or (Never,)]  # noqa: UP007

    @cached_property
    def takes_dtype(self) -> bool:
        """Whether it takes a dtype."""
        return any(typing.get_origin(each) is np.dtype for each in self.types)


@dataclass(frozen=True)
class Signature:
    """The parameters of a function."""

    name: str
    """Name of the function in messages."""
    parameters: tuple[Parameter, ...]
    """Parameters in the order of their positions."""
    free: Parameter | None = None
    """Stands for keywords with free names; None if there are no such keywords."""
    leaf_key: str | None = None
    """Name of the parameter that gets the key of the output, if there is one."""

    @cached_property
    def keywords(self) -> frozenset[str]:
        """The names of the parameters that can be given as keywords."""
        return frozenset(p.name for p in self.parameters if p.by_name)

    @cached_property
    def places(self) -> tuple[Parameter, ...]:
        """The parameters that can be given by position."""
        return tuple(p for p in self.parameters if p.by_place)

    @cached_property
    def collects(self) -> bool:
        """Whether the last of `places` takes all remaining positional arguments."""
        return any(p.collects for p in self.parameters)


@functools.cache
def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of a function that `in_expressions` has marked."""
    hints = typing.get_type_hints(function)
    parameters = [
        Parameter(p.name, hints.get(p.name, Any), p.kind, p.default)
        for p in inspect.signature(function).parameters.values()
    ]
    free = next((p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    leaf_key = next((p for p in parameters if p.annotation is LeafKey), None)
    given = tuple(p for p in parameters if p not in (free, leaf_key))
    return Signature(expression_name(function), given, free, leaf_key.name if leaf_key else None)


def call_problem(signature: Signature, positional: int, keywords: tuple[str, ...]) -> str | None:
    """The message for a call that does not fit the signature, or None."""
    most = len(signature.places)
    if positional > most and not signature.collects:
        return f"`{signature.name}` takes {_counted(most)}, {positional} given: {usage(signature)}"
    names = [p.name for p in signature.parameters]
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


def usage_of(signature: Signature) -> str:
    """How a function of the language is called, for advice: `mean(x, axis=…, keepdims=…)`."""
    written = [p.name if p.required else f"{p.name}=…" for p in signature.parameters]
    return f"{signature.name}({', '.join(written)})"
