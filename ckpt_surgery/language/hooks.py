"""Functions of the user's own, `hooks.name(x)` in expressions: those of a Python file beside the recipe.

A hook is a plain Python function of whole NumPy arrays (narrow types are those of ml_dtypes) and constants.
Planning does not call it with values: the result is assumed to have the shape and dtype of the first array. A
function `infer_NAME` in the file can say otherwise; it gets the same arguments, with a description in place
of each array (`.shape`, `.dtype`, `.ndim`, `.size`). The result is checked against the plan. A hook without
array arguments and without an `infer_NAME` is called while planning, and gives text, a number or a list of
those.
"""

import functools
import hashlib
import operator
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import (
    Code,
    DataError,
    FunctionError,
    Interrupted,
    PlanError,
    SurgeryError,
    UsageError,
    access_error,
)
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.libraries import install_hint
from ckpt_surgery.core.text import abridged, did_you_mean, shown
from ckpt_surgery.functions.arrays import Array, Series, apply, require_no_gaps
from ckpt_surgery.functions.base import MARK, Blocks, Function, Specs, expression_name
from ckpt_surgery.language.expressions.calls import call, signature_of
from ckpt_surgery.language.expressions.scope import bounded, described

INFER = "infer_"
"""Prefix of the functions that give shape and dtype of a hook's result: `infer_NAME` for `NAME`."""
HookFunction = Callable[..., Any]
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_ONE_AT_A_TIME = threading.Lock()
"""Held while a hook runs: tasks run on several threads, for which a user's function need not be made."""


@dataclass(frozen=True)
class HookCall(Function):
    """A call of a hook. It computes the whole result for any region."""

    name: ClassVar[str] = "hook"
    exact_inputs: ClassVar[bool] = True
    full_copies: ClassVar[int] = 2
    hooks: "HookSet" = field(repr=False, compare=False)  # Functions of which this is one
    function: str  # Name of the function
    arguments: tuple[Any, ...]  # Constants, tuples for lists, and `...` for each array in order
    shape: tuple[int, ...]  # Shape of the result
    dtype: np.dtype[Any]  # Dtype of the result
    of_program: HookFunction | None = None
    """The function itself where no file has it: no other process is known to have the same."""

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self.shape, self.dtype)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(i, Region.whole(spec.shape)) for i, spec in enumerate(ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        """The region of the result. Raises DataError if the hook fails, or its result is not as planned."""
        views = [np.asarray(block).view() for block in blocks]  # one number may come as a scalar of NumPy
        for view in views:  # others may need the same block, and a hook must not change it
            view.flags.writeable = False
        with _ONE_AT_A_TIME:
            given = _filled(self.arguments, views)
            whole = self.hooks.called(self.function, given, DataError, np.asarray)
        actual, planned = ArraySpec(whole.shape, whole.dtype), self.infer(ins)
        if actual != planned:
            message = f"{self.hooks.label(self.function)} gave {actual}, but the plan expects {planned}"
            raise DataError(message, hint=self.hooks.shape_hint(self.function))
        return np.asarray(whole[region.slices])

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        """A hook sees all elements, so each element of its result is made of all of them."""
        joined = functools.reduce(operator.or_, [np.bitwise_or.reduce(block, axis=None) for block in marks])
        return np.full(region.shape, joined, MARK)


def _filled(template: Any, arrays: Iterable[Any]) -> Any:
    """The arguments as the hook gets them: with arrays in their places, and lists for tuples."""
    remaining = iter(arrays)
    if template is ...:
        return next(remaining)
    return [_filled(item, remaining) for item in template] if isinstance(template, tuple) else template


class HookSet:
    """Functions of the user's own, by name."""

    name: str  # Name of where they come from, for messages
    file: str  # Path of their file, or the name again where there is none
    sha256: str  # Digest, hexadecimal
    functions: Mapping[str, HookFunction]
    of_program = False  # True if they are functions of the running program rather than of a file

    def label(self, name: str) -> str:
        """Name of this function in messages: where a hook was made of the caller's function, that one's."""
        function = _made_of(self.functions[name])
        if function is None:
            return f"`hooks.{name}`"
        title = getattr(function, "__qualname__", type(function).__qualname__)
        return f"the function `{title.rpartition('<locals>.')[2]}`"

    def shape_hint(self, name: str) -> str:
        """Advice for a function that gives another shape or dtype than was expected."""
        advice = f"Add a function `{INFER}{name}` to {self.name} for its shape and dtype."
        if self.of_program:
            advice = "It has to give the same shape and dtype for all values of an array."
        return getattr(self.functions[name], "shape_hint", advice)

    def failure(self, name: str, error: BaseException) -> str:
        """The message for a hook that raised: `hooks.scale` raised ValueError: … (my_hooks.py, line 3)."""
        function = self.functions[name]
        code = getattr(_made_of(function) or function, "__code__", None) if self.of_program else None
        file = code.co_filename if isinstance(code, types.CodeType) else self.file
        return f"{self.label(name)} raised {_error_in(file, error)}"

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """The lazy result of `hooks.name(…)`, or a constant if no argument is an array.

        A function that `in_expressions` marks gets lazy arrays, as those of the package do. Raises
        FunctionError if there is no such function, or if its result has no known shape and dtype.
        """
        if name not in self.functions:
            guess = did_you_mean(name, (n for n in self.functions if not n.startswith(INFER)))
            raise FunctionError(f"{self.name} has no function `{name}`{guess}", code=Code.HOOKS)
        function = self.functions[name]
        if expression_name(function):
            if key := signature_of(function).leaf_key:
                raise FunctionError(f"{self.label(name)} has a parameter `{key}`, which no hook is given")
            return call(function, arguments, {}, "")
        inputs: list[Array] = []
        template = _template(list(arguments), inputs)
        if INFER + name in self.functions:
            result = _spec(name, self.called(INFER + name, _filled(template, [a.spec for a in inputs])))
        elif inputs:
            result = inputs[0].spec
        else:
            return _constant(name, self.called(name, _filled(template, ())))
        given = function if self.of_program else None
        return apply(HookCall(self, name, template, result.shape, result.dtype, given), *inputs)

    def called(
        self,
        name: str,
        arguments: Sequence[Any],
        error: type[SurgeryError] = FunctionError,
        read: Callable[[Any], Any] = lambda result: result,
    ) -> Any:
        """Result of a function, as `read` takes it. Where either raises, that is an `error` of ours."""
        code = Code.HOOKS if error is FunctionError else None
        with _failing_as(error, functools.partial(self.failure, name), code):
            return read(self.functions[name](*arguments))


class HookFile(HookSet):
    """A file of hooks that has been run, with its functions."""

    def __init__(self, path: Path, sha256: str | None = None):
        """Runs the file. Raises PlanError if it is missing, or fails; StorageError if it may not be read.

        `sha256` is the digest that a plan was made with: a file with another one is not run (PlanError).
        """
        self.file = str(path)
        self.name = path.name
        try:
            text = path.read_bytes()
        except OSError as error:
            message = f"the hooks {path} cannot be read: {error.strerror or error}"
            raise access_error(str(path), error) or PlanError(message, code=Code.HOOKS) from None
        self.sha256 = hashlib.sha256(text).hexdigest()
        if sha256 not in (None, self.sha256):
            message = f"the hooks {shown(self.file)} changed since the plan was made"
            raise PlanError(message, hint="Make the plan again.")
        # The code that runs is the text that was digested: an import would read the file a second time.
        module = types.ModuleType(f"ckpt_surgery_hooks_{self.sha256[:16]}")
        module.__file__ = self.file
        sys.modules[module.__name__] = module  # dataclasses, among others, look their module up
        failure = "the hooks do not load: {}".format
        with _failing_as(PlanError, lambda error: failure(_error_in(self.file, error)), Code.HOOKS):
            exec(compile(text, self.file, "exec", dont_inherit=True), module.__dict__)
        public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        self.functions = {name: value for name, value in public.items() if callable(value)}


class HookFunctions(HookSet):
    """Functions that the caller gives together with a recipe. They run because the caller gave them."""

    of_program = True

    def __init__(self, functions: Mapping[str, HookFunction]):
        """Raises UsageError for a name that no expression can call, and for what is not a function."""
        for name, function in functions.items():
            if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is None:
                raise UsageError(f"a hook cannot be called {abridged(name)}: use letters, digits and `_`")
            if not callable(function):
                raise UsageError(f"the hook `{name}` is not a function, but {abridged(function)}")
        self.name = self.file = "(hooks)"
        self.functions = dict(functions)
        # The same in every process that runs the same program. What functions refer to is not looked at, so
        # equal digests do not prove that they do the same.
        codes = [(name, _described(getattr(functions[name], "__code__", None))) for name in sorted(functions)]
        self.sha256 = hashlib.sha256(repr(codes).encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def _failing_as(
    kind: type[SurgeryError], message: Callable[[BaseException], str], code: Code | None = None
) -> Iterator[None]:
    """Run the user's code in this context: an exception in it, `SystemExit` too, becomes a SurgeryError."""
    try:
        yield
    except (Interrupted, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise kind(message(error), hint=install_hint(error), code=code) from error


def _error_in(file: str, error: BaseException) -> str:
    """`ValueError: … (my_hooks.py, line 3)`: an error of the user's code, with its line in this file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    message = str(error)
    if isinstance(error, SyntaxError) and error.filename == file:
        message, lines = error.msg, [error.lineno]
    where = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}{f': {message}' if message else ''}{where}"


def _template(argument: Any, inputs: list[Array]) -> Any:
    """The argument with `...` for each array; the arrays are appended to `inputs`."""
    if isinstance(argument, Array):
        inputs.append(argument)
        return ...
    if isinstance(argument, list | tuple | Series):
        items = require_no_gaps(argument) if isinstance(argument, Series) else argument
        return tuple(_template(item, inputs) for item in items)
    if isinstance(argument, str | bool | int | float) or argument is None:
        return argument
    raise FunctionError(f"a hook takes arrays, text, numbers and lists of those, not {described(argument)}")


def _constant(name: str, value: Any) -> Any:
    """The result of a hook that was called while planning, as a value of expressions."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return bounded([_constant(name, item) for item in value])
    if isinstance(value, str | bool | int | float | Leaf):  # a leaf is a text or an empty node
        return bounded(value)
    raise FunctionError(
        f"`hooks.{name}` was given no array and gave a {type(value).__name__}, not text or a number",
        hint=f"For an array, add `{INFER}{name}`, which gives its shape and dtype.",
        code=Code.HOOKS,
    )


def _spec(name: str, value: Any) -> ArraySpec:
    """The result of `infer_NAME`: anything with `.shape` and `.dtype`, or a pair of the two."""
    try:
        shape, dtype = value if isinstance(value, tuple) else (value.shape, value.dtype)
        if dtype is not None:  # which NumPy takes for float64
            lengths = tuple(operator.index(n) for n in shape)
            return ArraySpec(lengths, dtype_named(dtype) if isinstance(dtype, str) else np.dtype(dtype))
        raise TypeError
    except (TypeError, ValueError, AttributeError):
        message = f"`{INFER}{name}` has to give (shape, dtype), not {abridged(value)}"
        raise FunctionError(message, code=Code.HOOKS) from None


def _made_of(hook: Any) -> Any:
    """The caller's own function that a hook, or its `infer`, was made of; None where the caller named it."""
    owner = getattr(hook, "__self__", hook)
    function = getattr(owner, "made_of", None)
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _described(value: Any) -> Any:
    """Code, and constants in it, as text without addresses in memory or positions in files."""
    if isinstance(value, types.CodeType):
        return value.co_code.hex(), value.co_names, [_described(item) for item in value.co_consts]
    return repr(value) if isinstance(value, _PLAIN) else type(value).__name__
