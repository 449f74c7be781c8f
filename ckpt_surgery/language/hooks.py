"""Functions of the user's own, in a Python file beside the recipe: `hooks.name(x)` in expressions.

A hook is a plain function of whole arrays (NumPy; narrow types are those of ml_dtypes) and constants.
Planning does not call it with values: its result is taken to have the shape and dtype of its first
array, unless the file has a function `infer_NAME` that says otherwise, from the same arguments with
each array replaced by its description (`.shape`, `.dtype`, `.ndim`, `.size`). What comes out is checked
against that. A hook that is given no array, and has no `infer_NAME`, is called while planning; it gives
text, a number or a list of those.
"""

import hashlib
import operator
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError, Interrupted, PlanError
from ckpt_surgery.core.text import abridged, did_you_mean, shown
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.graph.nodes import Array, Series, applied
from ckpt_surgery.language.values import bounded, gathered, told

INFER = "infer_"
"""`infer_NAME` says what `NAME` gives."""
HookFunction = Callable[..., Any]

_ONE_AT_A_TIME = threading.Lock()
"""Tasks run on several threads; a user's function need not know."""


Template = tuple[Any, ...]
"""A call's arguments: constants, and tuples where it has lists; `...` stands for each array, in order."""


@dataclass(frozen=True)
class HookCall(Function):
    """A call of a hook: computed as a whole, whatever region is wanted."""

    kind: ClassVar[str] = "hook"
    external: ClassVar[tuple[str, ...]] = ("hooks",)
    exact_inputs: ClassVar[bool] = True
    full_copies: ClassVar[int] = 2
    hooks: "HookFile"
    """The file that has the function."""
    function: str
    """The function's name."""
    arguments: Template
    shape: tuple[int, ...]
    """The result's shape."""
    dtype: np.dtype[Any]
    """The result's dtype."""

    def __post_init__(self) -> None:
        self.hooks.function(self.function)

    def takes(self, inputs: int) -> bool:
        return inputs == _arrays(self.arguments)

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self.shape, self.dtype)

    def declared_dtype(self, dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
        return self.dtype

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(i, Region.whole(spec.shape)) for i, spec in enumerate(ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        """Raises DataError where the hook fails, or gives something else than was planned."""
        given = _filled(self.arguments, blocks)
        with _ONE_AT_A_TIME:
            try:
                whole = np.asarray(self.hooks.function(self.function)(*given))
            except Interrupted:
                raise
            except (Exception, SystemExit) as error:
                raise DataError(_failure(self.function, self.hooks.file, error)) from error
        found, wanted = ArraySpec(whole.shape, whole.dtype), self.infer(ins)
        if found != wanted:
            raise DataError(
                f"`hooks.{self.function}` gave {found}; it was planned to give {wanted}",
                hint=f"A function `{INFER}{self.function}` in {self.hooks.name} tells the planner.",
            )
        return np.asarray(whole[region.slices])


def _arrays(template: Template) -> int:
    """How many arrays a template has a place for."""
    return sum(_arrays(item) if isinstance(item, tuple) else item is ... for item in template)


def _filled(template: Template, arrays: Iterable[Any]) -> list[Any]:
    """The arguments as the hook gets them: arrays in their places, lists again."""
    remaining = iter(arrays)

    def filled(item: Any) -> Any:
        if item is ...:
            return next(remaining)
        return [filled(inner) for inner in item] if isinstance(item, tuple) else item

    return [filled(item) for item in template]


def _failure(name: str, file: str, error: BaseException) -> str:
    """`hooks.scale` raised ValueError: … (my_hooks.py, line 3)."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" ({Path(file).name}, line {lines[-1]})" if lines else ""
    message = f": {error}" if str(error) else ""
    return f"`hooks.{name}` raised {type(error).__name__}{message}{where}"


class HookFile:
    """The functions of one file, loaded."""

    def __init__(self, path: Path, sha256: str | None = None):
        """Runs the file. Raises PlanError where it is not there, or does not run.

        With `sha256`, the digest of a file that somebody has looked at, also where it is another, which
        does not run then.
        """
        self.file = str(path)
        self.name = path.name
        text = _read(path)
        self.sha256 = hashlib.sha256(text).hexdigest()
        if sha256 not in (None, self.sha256):
            raise PlanError(
                f"the hooks {shown(self.file)} changed since the plan was made", hint="Make the plan again."
            )
        # What ran is what the digest is of: the file is not read a second time by an import.
        module = types.ModuleType(f"ckpt_surgery_hooks_{self.sha256[:16]}")
        module.__file__ = self.file
        sys.modules[module.__name__] = module  # dataclasses, among others, look their module up
        try:
            exec(compile(text, self.file, "exec", dont_inherit=True), module.__dict__)
        except Interrupted:
            raise
        except (Exception, SystemExit) as error:
            raise PlanError(f"the hooks do not load: {_load_failure(self.file, error)}") from error
        self.functions: dict[str, HookFunction] = {
            name: value
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        }

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """The lazy result of `hooks.name(…)`; a constant where no argument is an array.

        Raises FunctionError where there is no such function, or its result cannot be told.
        """
        self.function(name)
        inputs: list[Array] = []
        template = tuple(_template(argument, inputs) for argument in arguments)
        if not inputs and INFER + name not in self.functions:
            return _constant(name, self._called(name, _filled(template, ())))
        result = self._result(name, template, inputs)
        return applied(HookCall(self, name, template, result.shape, result.dtype), inputs)

    def function(self, name: str) -> HookFunction:
        """Raises FunctionError where there is none of this name."""
        if name not in self.functions:
            guess = did_you_mean(name, (n for n in self.functions if not n.startswith(INFER)))
            raise FunctionError(f"{self.name} has no function `{name}`{guess}")
        return self.functions[name]

    def _result(self, name: str, template: Template, inputs: Sequence[Array]) -> ArraySpec:
        """What the hook will give."""
        if INFER + name not in self.functions:
            return inputs[0].spec
        specs = [array.spec for array in inputs]
        return _spec(name, self._called(INFER + name, _filled(template, specs)))

    def _called(self, name: str, arguments: Sequence[Any]) -> Any:
        try:
            return self.functions[name](*arguments)
        except Interrupted:
            raise
        except (Exception, SystemExit) as error:
            raise FunctionError(_failure(name, self.file, error)) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanError(f"the hooks {path} cannot be read: {error.strerror or error}") from None


def _load_failure(file: str, error: BaseException) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    where = "" if line is None else f" ({Path(file).name}, line {line})"
    return f"{type(error).__name__}: {message}{where}"


def _template(argument: Any, inputs: list[Array]) -> Any:
    """The argument with its arrays taken out into `inputs`."""
    if isinstance(argument, Series):
        argument = gathered(argument)
    if isinstance(argument, Array):
        inputs.append(argument)
        return ...
    if isinstance(argument, list | tuple):
        return tuple(_template(item, inputs) for item in argument)
    if isinstance(argument, str | bool | int | float) or argument is None:
        return argument
    raise FunctionError(f"a hook takes arrays, text, numbers and lists of those, not {told(argument)}")


def _constant(name: str, value: Any) -> Any:
    """What a hook gave while planning, as expressions have it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return bounded([_constant(name, item) for item in value])
    if isinstance(value, str | bool | int | float):
        return bounded(value)
    raise FunctionError(
        f"`hooks.{name}` was given no array and gave a {type(value).__name__}, not text or a number",
        hint=f"For an array, `{INFER}{name}` has to say which shape and dtype.",
    )


def _spec(name: str, value: Any) -> ArraySpec:
    """What `infer_NAME` said: something with `.shape` and `.dtype`, or a pair of the two."""
    if isinstance(value, tuple) and len(value) == 2:
        shape, dtype = value
    else:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    try:
        if dtype is None:  # which NumPy takes for float64
            raise TypeError
        lengths = tuple(operator.index(n) for n in shape)
        return ArraySpec(lengths, dtype_named(dtype) if isinstance(dtype, str) else np.dtype(dtype))
    except (TypeError, ValueError):
        raise FunctionError(f"`{INFER}{name}` has to give (shape, dtype), not {abridged(value)}") from None
