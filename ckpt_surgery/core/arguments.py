"""Arguments of public functions: paths, sizes, values of params, and options that a TypedDict declares."""

import enum
import functools
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from math import isfinite
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, get_origin, get_type_hints

from ckpt_surgery.core.errors import Problem, UsageError
from ckpt_surgery.core.text import abridged, did_you_mean, shown

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)(b?)\s*", re.IGNORECASE)

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=str)

PathLike = str | os.PathLike[str]
CheckpointLike = PathLike | Any
"""Path of a checkpoint, or a pytree that stands for one."""
RecipeLike = PathLike | Mapping[str, Any]
"""Path of a recipe, `@name` of a packaged one, the text of one (more than one line), or its document."""
Function = Callable[..., Any]
"""A function of one tree for each source, as the recipe: it returns the new tree."""
Size = int | str
"""A number of bytes, or a text such as `2GiB`."""
Assignments = Mapping[str, Any] | Iterable[str]
"""Values of params by their names, or texts of the form `NAME=VALUE`."""

SortBy = Literal["size", "name"]


class LinkMode(enum.StrEnum):
    """Ways in which files whose bytes need no change get into the destination."""

    AUTO = "auto"
    """Reflinks where the file system can; else hard links to files that are never rewritten; else copies."""
    REFLINK = "reflink"
    """Reflinks, or none at all."""
    HARDLINK = "hardlink"
    """Hard links: the user says that nothing rewrites the sources in place."""
    COPY = "copy"
    """Copies of all files."""


def parse_size(text: str) -> int:
    """The number of bytes in a text: `2GiB` and `512M` (powers of 1024), `2GB` (powers of 1000), `1048576`.

    Raises ValueError if the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not (match[2] and match[4])):
        raise ValueError(f"`{text}` is not a size; write it like 2GiB, 512MiB or 1048576")
    decimal = match[4] and not match[3]
    power = "kmgt".index(match[2].lower()) + 1 if match[2] else 0
    size = float(match[1]) * (1000 if decimal else 1024) ** power
    if size < 1:
        raise ValueError(f"`{text}` is less than one byte")
    return int(size)


def bytes_of(name: str, size: Size | None) -> int | None:
    """The argument `name` as a number of bytes; None stays None. Raises UsageError if it is not a size."""
    try:
        return None if size is None else parse_size(str(size))
    except ValueError as error:
        raise UsageError(f"`{name}`: {error}") from None


def one_of(name: str, value: object, known: Sequence[E]) -> E:
    """The argument `name` as the known value that it is equal to. Raises UsageError if there is none."""
    for choice in known:
        if choice == value:
            return choice
    raise UsageError(f"`{name}`: {shown(abridged(value))} is not one of: {', '.join(known)}")


def assignments_of(given: Assignments) -> tuple[str, ...]:
    """Values of params as texts `NAME=VALUE`. A single text counts as a list of one.

    Raises UsageError for a name that is given twice, and for values of other types than params have.
    """
    if isinstance(given, Mapping):
        for name in given:
            if not isinstance(name, str) or "=" in name:
                raise UsageError(f"{abridged(name)} is not the name of a param")
        return tuple(f"{name}={_text(name, value)}" for name, value in given.items())
    texts = (given,) if isinstance(given, str) else tuple(given)
    names = [text.partition("=")[0] for text in texts]
    twice = dict.fromkeys(name for name in names if names.count(name) > 1)
    if twice:
        raise UsageError(*(Problem(f"the param `{name}` is given more than once") for name in twice))
    return texts


def _text(name: str, value: Any) -> str:
    """A value of a param as it is written in a recipe. Raises UsageError if it has another type."""
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(item, str | int) or (isinstance(item, float) and isfinite(item)) for item in items):
        return json.dumps(value, ensure_ascii=False)
    wanted = "text, a finite number, true or false, or a list of those"
    raise UsageError(f"the param `{name}` should be {wanted}, not {abridged(value)}")


def described(function: Callable[P, R]) -> Callable[P, R]:
    """List the parameters that are annotated with a text in the docstring of their function."""
    function.__doc__ = _with_texts(function, get_type_hints(function, include_extras=True))
    function.__annotations__ = get_type_hints(function)
    return function


def _with_texts(function: Callable[..., Any], hints: Mapping[str, Any]) -> str:
    """The docstring of a function, with the texts of these annotations."""
    texts = {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}
    listed = "\n".join(f"    {name}: {text}" for name, text in texts.items())
    return f"{inspect.cleandoc(function.__doc__ or '')}\n\nArgs:\n{listed}\n"


def takes(options: type, *defaults: type) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare that the keyword arguments of a function are the fields of `options`, a TypedDict.

    The signature then lists them, with the defaults of the fields of these dataclasses; the docstring lists
    those that are described; and an argument of another name raises a TypeError that names it.
    """
    default_of = {field.name: field.default for kind in defaults for field in fields(kind)}
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default_of[name], annotation=hint)
        for name, hint in get_type_hints(options).items()
    ]
    texts = get_type_hints(options, include_extras=True)

    def declared(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = [parameter.name for parameter in (*own, *listed)]

        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            for name in given:
                if name not in names:
                    guess = did_you_mean(name, names)
                    raise TypeError(f"{function.__name__}() has no option `{shown(name)}`{guess}")
            return function(*args, **given)

        spelled_out = signature.replace(parameters=[*own, *listed])
        checked.__signature__ = spelled_out  # type: ignore[attr-defined]
        checked.__doc__ = _with_texts(function, texts)
        return checked

    return declared
