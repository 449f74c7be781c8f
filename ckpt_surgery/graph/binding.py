"""Arguments of a call: arrays become inputs of a function, everything else its fields."""

import dataclasses
import functools
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import Function, Number
from ckpt_surgery.functions.fields import Mismatch, typed, wanted
from ckpt_surgery.functions.signatures import call_problem, usage

LONGEST_TEXT = 4096
"""Limit on the characters of a text that is an argument of an array function, such as a pattern of axes."""


@dataclass(frozen=True)
class ClassParameter:
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
class ClassSignature:
    """The parameters of a function."""

    name: str
    """Name of the function in messages."""
    parameters: tuple[ClassParameter, ...]
    """Parameters in positional order."""
    collects: bool = False
    """Whether the last parameter takes all remaining positional arguments."""
    free: Any = None
    """Type of the values of keywords with free names; None if there are no such keywords."""

    @property
    def places(self) -> tuple[ClassParameter, ...]:
        """The parameters, all of which can be given by position."""
        return self.parameters

    @property
    def keywords(self) -> frozenset[str]:
        """The names of the parameters that can be given as keywords."""
        return frozenset(p.name for p in self.parameters if p.by_name)


@functools.cache
def class_signature(cls: Any, called: str) -> ClassSignature:
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
    return ClassSignature(called, parameters, len(names) > 1 and names[-1].startswith("*"), free)


def _parameter(name: str, hint: Any, defaults: Mapping[str, Any]) -> ClassParameter:
    if name not in defaults:
        return ClassParameter(name.lstrip("*"), "arrays" if name.startswith("*") else "array", required=True)
    if typing.get_origin(hint) is Annotated and "operand" in hint.__metadata__:
        return ClassParameter(name, "operand", required=True)
    return ClassParameter(name, "static", defaults[name] is dataclasses.MISSING, hint)


@dataclass(frozen=True)
class Bound:
    """A call whose arguments are inputs and fields of functions."""

    functions: tuple[Function, ...]
    """One function, or one for each of its `parts`. Empty if the call has a `constant`."""
    inputs: tuple[Array, ...]
    """Arrays among the arguments: the inputs of each of the functions."""
    listed: bool = False
    """Whether the value of the call is a list, even of one array."""
    constant: Number | None = None
    """Value of the call, if it has no arrays and gives a number."""


def bind(
    cls: type[Function],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    context: Mapping[str, Any],
) -> Bound:
    """Bind the arguments of a call to the parameters of a function.

    `arguments` and `keywords` hold arrays, numbers, strings, None, and lists or tuples of them. `context` has
    values for the fields that functions name in their `context`; it may have values that `cls` does not name.
    Raises FunctionError for arguments that are missing, unexpected or of the wrong type, and for those that
    the function itself refuses.
    """
    called = cls.name
    if cls.list_form is not None and arguments and isinstance(arguments[0], list | tuple):
        cls = cls.list_form
    signature = class_signature(cls, called)  # type: ignore[arg-type]
    if problem := call_problem(signature, len(arguments), tuple(keywords)):
        raise FunctionError(problem)
    given = _given(signature, arguments, keywords)
    fields = _context_fields(cls, called, context)
    inputs: list[Array] = []
    for parameter in signature.parameters:
        if parameter.name in given:
            with _explained(signature, parameter, given[parameter.name]):
                _place(parameter, given[parameter.name], called, fields, inputs)
    if cls.remaining is not None:
        free = {k: v for k, v in keywords.items() if k not in signature.keywords}
        fields[cls.remaining] = tuple(
            (k, _static(v, signature.free, f"`{k}` of `{called}`")) for k, v in free.items()
        )
    return _bound(cls, signature, fields, tuple(inputs))


@contextmanager
def _explained(signature: ClassSignature, parameter: ClassParameter, value: Any) -> Iterator[None]:
    """Add the order of the parameters to an error about one of them, and where a dtype belongs."""
    try:
        yield
    except FunctionError as error:
        if isinstance(value, str) and _takes_dtype(parameter):
            raise  # it is no dtype, which was said
        named, text = "", abridged(value)
        dtype = next((p.name for p in signature.parameters if _takes_dtype(p)), None)
        if dtype is not None and isinstance(value, str) and value in DTYPES:
            named = f"{text} is a dtype: give it by name, {dtype}={text}. "
        first, *more = error.problems
        hint = first.hint or f"{named}The arguments are {usage(signature)}."
        raise FunctionError(replace(first, hint=hint), *more) from None


def _takes_dtype(parameter: ClassParameter) -> bool:
    """Whether a parameter is a dtype."""
    annotations = (parameter.annotation, *typing.get_args(parameter.annotation))
    return any(typing.get_origin(annotation) is np.dtype for annotation in annotations)


def _given(
    signature: ClassSignature, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by the name of their parameter."""
    names = [p.name for p in signature.parameters]
    named = {name: value for name, value in keywords.items() if name in signature.keywords}
    given = {**dict(zip(names, arguments, strict=False)), **named}
    rest = arguments[len(names) - 1 :] if signature.collects else ()
    if rest and not (len(rest) == 1 and isinstance(rest[0], list | tuple)):
        given[names[-1]] = list(rest)
    return given


def _context_fields(cls: type[Function], called: str, context: Mapping[str, Any]) -> dict[str, Any]:
    required = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}  # type: ignore[arg-type]
    if missing := [name for name in cls.context if name in required and name not in context]:
        raise FunctionError(f"`{called}` cannot be called here: there is no `{missing[0]}`")
    return {name: context[name] for name in cls.context if name in context}


def _place(
    parameter: ClassParameter,
    value: Any,
    called: str,
    fields: dict[str, Any],
    inputs: list[Array],
) -> None:
    """Append arrays to `inputs`, and enter anything else in `fields`."""
    where = f"`{parameter.name}` of `{called}`"
    if parameter.role == "static":
        fields[parameter.name] = _static(value, parameter.annotation, where)
    elif parameter.role == "arrays":
        inputs.extend(_array_list(value, where))
    elif isinstance(value, Array):
        inputs.append(value)
    elif parameter.role == "operand" and isinstance(value, bool | int | float):
        fields[parameter.name] = value
    else:
        wanted = "an array" if parameter.role == "array" else "an array or a number"
        several = isinstance(value, list | tuple) and bool(value) and _all_arrays(value)
        hint = "stack(…) makes one array of them." if several else None
        raise FunctionError(f"{where} has to be {wanted}, not {_described(value)}", hint=hint)


def _array_list(value: Any, where: str) -> list[Array]:
    if not isinstance(value, list | tuple):
        raise FunctionError(f"{where} has to be a list of arrays, not {_described(value)}")
    if not value:
        raise FunctionError(f"{where} is an empty list; it needs at least one array")
    for item in value:
        if not isinstance(item, Array):
            raise FunctionError(f"{where} has to be a list of arrays; {_described(item)} is in it")
    return list(value)


def _bound(
    cls: type[Function], signature: ClassSignature, fields: Mapping[str, Any], inputs: tuple[Array, ...]
) -> Bound:
    if cls.parts:
        return Bound(tuple(cls(**{**fields, "part": part}) for part in cls.parts), inputs, listed=True)
    function = cls(**fields)
    if not inputs and any(p.role == "operand" for p in signature.parameters):
        return Bound((), (), constant=function.constant())
    return Bound((function,), inputs)


def _static(value: Any, annotation: Any, where: str) -> Any:
    """`value` converted to the annotated type. Raises FunctionError for one of another type, or too long."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise FunctionError(f"{where} has {len(value):,} characters; the limit is {LONGEST_TEXT:,}")
    try:
        return typed(value, annotation)
    except Mismatch:
        told = _described(value)
        raise FunctionError(f"{where} has to be {wanted(annotation)}, not {told}") from None


def _described(value: Any) -> str:
    """A description of an argument, for messages."""
    if isinstance(value, Array):
        return "an array"
    if isinstance(value, list | tuple) and _has_array(value):
        return f"a list of {len(value)} {'arrays' if _all_arrays(value) else 'values'}"
    return abridged(value)


def _all_arrays(values: Iterable[Any]) -> bool:
    return all(isinstance(value, Array) for value in values)


def _has_array(values: Sequence[Any]) -> bool:
    """Whether a list, or a list in it, holds an array."""
    return not _PLAIN.issuperset(map(type, values)) and any(
        isinstance(value, Array) or (isinstance(value, list | tuple) and _has_array(value))
        for value in values
    )


_PLAIN = frozenset([str, int, float, bool, type(None)])
"""Types of values that hold no array: lists of a million of them are looked at at once."""
