"""What expressions can call: one frozen dataclass per function, found by discovery.

A function describes an array that is computed from other arrays. Its fields are the call's static
arguments; its inputs are given to every method. It is pure: no I/O, no state, same result for any
chunking. To add one, write one class in a module of this package (or in another package, under the
entry point group `ckpt_surgery.functions`).
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.selections import Selection, bounding_box, broadcast, of_region
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.fields import Mismatch, typed, wanted

Specs = Sequence[ArraySpec]
Blocks = Sequence[np.ndarray]

Number = bool | int | float
"""A number as recipes write it: annotate a field so where an int has to stay an int."""

Operand = Annotated[Number | None, "operand"]
"""Annotates a field for a number in the place of an array: None where the array is an input.

Inputs keep the order of the parameters: `where(c, 0, x)` has the fields `None, 0, None` and two inputs.
"""


class Function:
    """Base of all array functions. Subclasses are frozen dataclasses.

    Laws, held by tests: `apply` of any region equals that region of the whole; `infer` agrees with
    the result; `needs` is enough and within bounds, and so is `uses`; `relink` decoded equals `apply`.
    """

    name: ClassVar[str] = ""
    """What expressions call; empty for those that only syntax reaches (operators, subscripts)."""
    kind: ClassVar[str] = ""
    """What saved plans call the class, and no other: its name, where it says nothing else."""
    external: ClassVar[tuple[str, ...]] = ()
    """Fields for what exists in one process only: a saved plan has none of them, who loads it fills them."""
    parameters: ClassVar[tuple[str, ...] | None] = None
    """The call's positional parameters, in order; None: `x`, then the fields. A name that is not a field
    is an array; `*name` is a list of arrays, or, in last place after others, all remaining arguments. Those
    before a `/` are given by place only, as in Python."""
    remaining: ClassVar[str | None] = None
    """The field that collects keywords of free names, as `tuple[tuple[str, value], ...]`."""
    context: ClassVar[tuple[str, ...]] = ()
    """Fields that the caller of `bind` fills (`leaf_key`, `places`): no call can name them."""
    parts: ClassVar[tuple[str, ...]] = ()
    """A call gives a list of arrays, one per name: the function with its field `part` set to that name."""
    list_form: ClassVar["type[Function] | None"] = None
    """The function that is meant where the first argument is a list: `mean(xs)` beside `mean(x, 0)`."""
    moves_only: ClassVar[bool] = False
    """Layout only: elements of the inputs, moved about, with fillers at most."""
    elementwise: ClassVar[bool] = False
    """Each element is computed from those at its place of the inputs, which broadcast: `needs` asks for
    no more. Such functions are evaluated together, in tiles, so that what is between them stays small."""
    exact_inputs: ClassVar[bool] = False
    """Inputs must be rounded to their nominal dtype first (bit casts), not left at computation width."""

    whole: ClassVar[int] = 0
    """How many copies of the whole result, of 4 bytes an element at least, `apply` holds whatever region is
    wanted; 0: it makes no more than the region."""

    def __init_subclass__(cls) -> None:
        if "kind" not in vars(cls):
            cls.kind = cls.name

    def takes(self, inputs: int) -> bool:
        """Whether it can have so many inputs."""
        return takes(self, inputs)

    def infer(self, ins: Specs) -> ArraySpec:
        """Shape and dtype of what `apply` gives. Raises FunctionError where the inputs do not fit."""
        raise NotImplementedError

    def nominal(self, dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
        """The dtype that the result has for the user, from the inputs' nominal dtypes.

        Arithmetic on narrow floats is *computed* in float32 (what `infer` says) and rounded once at
        the end of the expression to this type.
        """
        return dtypes[0]

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        """Which regions of which inputs an output region is computed from: the boxes of what it `uses`.

        A function defines one of the two; both where it can tell more of single elements than of a region.
        """
        if type(self).uses is Function.uses:
            raise NotImplementedError
        return [(i, bounding_box(part)) for i, part in self.uses(of_region(region), ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        """The output region; `blocks[i]` holds the i-th region that `needs` asked for."""
        raise NotImplementedError

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        """Which elements of which inputs these elements of the output, in ascending order, are computed from.

        Exact where a function says so itself; otherwise all of the box that `needs` asks for.
        """
        if self.elementwise:
            return [(i, broadcast(selection, spec.shape)) for i, spec in enumerate(ins)]
        return [(i, of_region(region)) for i, region in self.needs(bounding_box(selection), ins)]

    def window(self, ins: Specs) -> tuple["Function", Region] | None:
        """The same result as another function of one region of the only input: `x[3:5]` is `x[:]` of 3:5.

        None: there is no use in looking at the function like that.
        """
        return None

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        """Which axis of the only input an output axis is a stretch of, and where on it that begins.

        What `needs` gives for a region that is moved along the one is moved as far along the other, and
        nowhere else. None: nothing of that kind can be said.
        """
        return (axis, 0) if self.elementwise and len(ins) == 1 else None

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        """The whole result over stored bytes of the inputs, as they are. None: it takes new bytes."""
        return None

    def constant(self) -> Number:
        """The value where every operand is a number (`sqrt(2)`); for functions with `Operand` fields."""
        raise NotImplementedError


Plain = Callable[..., Any]
"""A function of names and numbers only, marked with `plain`: evaluated while planning."""


def plain(function: Plain) -> Plain:
    """Mark a Python function on strings and numbers as callable from expressions under its name."""
    function.expression_name = function.__name__.rstrip("_")  # type: ignore[attr-defined]
    return function


def _offers() -> Iterator[Any]:
    """Everything that the modules of this package and of entry points have."""
    package = importlib.import_module("ckpt_surgery.functions")
    for found in pkgutil.iter_modules(package.__path__):
        yield from vars(importlib.import_module(f"{package.__name__}.{found.name}")).values()
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.functions"):
        yield from vars(entry.load()).values()


@functools.cache
def registry() -> dict[str, type[Function] | Plain]:
    """Every callable name, from the modules of this package and from entry points."""
    found: dict[str, type[Function] | Plain] = {}
    for value in _offers():
        if isinstance(value, type) and issubclass(value, Function) and value.name:
            found[value.name] = value
        elif (name := getattr(value, "expression_name", None)) is not None:
            found[name] = value
    return found


@functools.cache
def kinds() -> dict[str, type[Function]]:
    """Every class of functions by its `kind`. Raises UsageError where two classes have one kind."""
    found: dict[str, type[Function]] = {}
    for value in _offers():
        if not (isinstance(value, type) and issubclass(value, Function) and value.kind):
            continue
        if found.setdefault(value.kind, value) is not value:
            raise UsageError(
                f"Two functions are of the kind `{value.kind}`: that of {found[value.kind].__module__}, "
                f"and that of {value.__module__}",
                hint="Uninstall the package that one of them comes with, or give it a `kind` of its own.",
            )
    return found


@dataclass(frozen=True)
class Bound:
    """A call with its arguments in place."""

    functions: tuple[Function, ...]
    """One, or one for each of the function's `parts`. Empty where the call has a `constant`."""
    inputs: tuple[Any, ...]
    """The arrays among the arguments, as they were given: the inputs of each of the functions."""
    listed: bool = False
    """The call's value is a list, even of one."""
    constant: Number | None = None
    """The value of a call without arrays that is a number."""


@dataclass(frozen=True)
class Parameter:
    name: str
    role: str
    """`array`, `arrays` (a list of them), `operand` (an array or a number), or `static`."""
    required: bool
    annotation: Any = None
    by_name: bool = True
    """It can be given as a keyword."""


@dataclass(frozen=True)
class Signature:
    name: str
    """What the call is called."""
    parameters: tuple[Parameter, ...]
    """In positional order."""
    collects: bool = False
    """The last parameter takes all the remaining positional arguments."""
    free: Any = None
    """The annotation of the values of keywords of free names; None where there are none."""

    @property
    def keywords(self) -> frozenset[str]:
        """The names of parameters that are not free."""
        return frozenset(p.name for p in self.parameters if p.by_name)


@functools.cache
def signature_of(cls: type[Function], called: str) -> Signature:
    hints = typing.get_type_hints(cls, include_extras=True)
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
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


def _plain_signature(function: Plain) -> Signature:
    parameters = tuple(
        Parameter(p.name, "static", p.default is inspect.Parameter.empty)
        for p in inspect.signature(function).parameters.values()
        if p.kind is not inspect.Parameter.VAR_POSITIONAL
    )
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    collects = inspect.Parameter.VAR_POSITIONAL in kinds
    return Signature(getattr(function, "expression_name", function.__name__), parameters, collects)


def takes(function: Function, inputs: int) -> bool:
    """Whether a function, as it is called, can have so many inputs."""
    signature = signature_of(type(function), function.kind)  # type: ignore[arg-type]
    roles = [(p.role, getattr(function, p.name, None)) for p in signature.parameters]
    single = sum(role == "array" or (role == "operand" and value is None) for role, value in roles)
    lists = sum(role == "arrays" for role, _ in roles)
    return inputs >= single + lists if lists else inputs == single


def signature_problem(
    function: type[Function] | Plain, positional: int, keywords: Iterable[str]
) -> str | None:
    """What is wrong with a call of this many positional arguments and these keywords, whatever the values.

    None: the call fits the signature.
    """
    if isinstance(function, type) and issubclass(function, Function):
        return call_problem(signature_of(function, function.name), positional, tuple(keywords))  # type: ignore[arg-type]
    return call_problem(_plain_signature(function), positional, tuple(keywords))


def call_problem(signature: Signature, positional: int, keywords: tuple[str, ...]) -> str | None:
    names = [p.name for p in signature.parameters]
    if positional > len(names) and not signature.collects:
        return f"`{signature.name}` takes {_counted(len(names))}, {positional} given: {_usage(signature)}"
    for keyword in keywords:
        if keyword in names[:positional] and keyword in signature.keywords:
            return f"`{signature.name}`: `{keyword}` is given twice"
        if keyword not in names and signature.free is None:
            return f"`{signature.name}` has no argument `{keyword}`{did_you_mean(keyword, names)}"
    for parameter in signature.parameters[positional:]:
        if not parameter.by_name and parameter.name in keywords:
            return f"`{signature.name}`: `{parameter.name}` is given by its place: {_usage(signature)}"
        if parameter.required and parameter.name not in keywords:
            return f"`{signature.name}` needs `{parameter.name}`: {_usage(signature)}"
    return None


def _counted(arguments: int) -> str:
    return {0: "no arguments", 1: "at most one argument"}.get(arguments, f"at most {arguments} arguments")


def _usage(signature: Signature) -> str:
    """`pad(x, axis, to, [value])`."""
    shown = [p.name if p.required else f"[{p.name}]" for p in signature.parameters]
    return f"{signature.name}({', '.join(shown)})"


def bind(
    cls: type[Function],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    is_array: Callable[[Any], bool],
    context: Mapping[str, Any],
) -> Bound:
    """Put the arguments of a call in their places.

    `arguments` and `keywords` hold arrays (whatever `is_array` says is one), numbers, strings, None, and
    lists or tuples of them. `context` has values for the fields that functions name in their `context`;
    those that `cls` does not name are ignored. Raises FunctionError for arguments that are missing,
    unexpected or of the wrong type, and for what the function's own checks refuse.
    """
    called = cls.name
    if cls.list_form is not None and arguments and isinstance(arguments[0], list | tuple):
        cls = cls.list_form
    signature = signature_of(cls, called)  # type: ignore[arg-type]
    if problem := call_problem(signature, len(arguments), tuple(keywords)):
        raise FunctionError(problem)
    given = _given(signature, arguments, keywords)
    fields = _context_fields(cls, called, context)
    inputs: list[Any] = []
    for parameter in signature.parameters:
        if parameter.name in given:
            _place(parameter, given[parameter.name], called, is_array, fields, inputs)
    if cls.remaining is not None:
        free = {k: v for k, v in keywords.items() if k not in signature.keywords}
        fields[cls.remaining] = tuple(
            (k, _static(v, signature.free, f"`{k}` of `{called}`", is_array)) for k, v in free.items()
        )
    return _bound(cls, signature, fields, tuple(inputs))


def _given(signature: Signature, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the name of their parameter."""
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
    parameter: Parameter,
    value: Any,
    called: str,
    is_array: Callable[[Any], bool],
    fields: dict[str, Any],
    inputs: list[Any],
) -> None:
    """Append to `inputs` what is an array, enter in `fields` what is not."""
    where = f"`{parameter.name}` of `{called}`"
    if parameter.role == "static":
        fields[parameter.name] = _static(value, parameter.annotation, where, is_array)
    elif parameter.role == "arrays":
        inputs.extend(_array_list(value, where, is_array))
    elif is_array(value):
        inputs.append(value)
    elif parameter.role == "operand" and isinstance(value, bool | int | float):
        fields[parameter.name] = value
    else:
        wanted = "an array" if parameter.role == "array" else "an array or a number"
        listed = isinstance(value, list | tuple) and bool(value) and all(map(is_array, value))
        hint = "stack(…) makes one array of them." if listed else None
        raise FunctionError(f"{where} has to be {wanted}, not {_told(value, is_array)}", hint=hint)


def _array_list(value: Any, where: str, is_array: Callable[[Any], bool]) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise FunctionError(f"{where} has to be a list of arrays, not {_told(value, is_array)}")
    if not value:
        raise FunctionError(f"{where} is an empty list; it has to have one array at least")
    for item in value:
        if not is_array(item):
            raise FunctionError(f"{where} has to be a list of arrays; {_told(item, is_array)} is in it")
    return list(value)


def _bound(
    cls: type[Function], signature: Signature, fields: Mapping[str, Any], inputs: tuple[Any, ...]
) -> Bound:
    if cls.parts:
        return Bound(tuple(cls(**{**fields, "part": part}) for part in cls.parts), inputs, listed=True)
    function = cls(**fields)
    if not inputs and any(p.role == "operand" for p in signature.parameters):
        return Bound((), (), constant=function.constant())
    return Bound((function,), inputs)


def _static(value: Any, annotation: Any, where: str, is_array: Callable[[Any], bool]) -> Any:
    """`value` as the annotation has it: lists become tuples, names dtypes. FunctionError where it is not."""
    try:
        return typed(value, annotation)
    except Mismatch:
        told = _told(value, is_array)
        raise FunctionError(f"{where} has to be {wanted(annotation)}, not {told}") from None


def _told(value: Any, is_array: Callable[[Any], bool]) -> str:
    if is_array(value):
        return "an array"
    if isinstance(value, list | tuple) and _has_array(value, is_array):
        return f"a list of {len(value)} {'arrays' if all(map(is_array, value)) else 'values'}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _has_array(values: Iterable[Any], is_array: Callable[[Any], bool]) -> bool:
    """Whether there is one in a list, or in a list of the list."""
    return any(
        is_array(value) or (isinstance(value, list | tuple) and _has_array(value, is_array))
        for value in values
    )
