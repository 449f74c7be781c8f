"""Replace library functions that do not dispatch to stand-ins while a user's function is traced.

NumPy's functions ask stand-ins; those of JAX, `np.asarray` and `isinstance` do not. They are replaced in the
libraries' modules, in all modules of the user's, and in closures, for all threads: without a stand-in among
its arguments a replacement is the function itself.
"""

import builtins
import dis
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ckpt_surgery.migration.standins import Traced, stand_ins_in

_PACKAGE = str(Path(__file__).parents[1])
_LIBRARIES = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


@cache
def is_library(file: str) -> bool:
    """True if a file belongs to Python, an installed library or this package."""
    if file.startswith(("<frozen ", "<__array_function__")):
        return True
    inside = (f"{root}/" for root in (*_LIBRARIES, _PACKAGE))
    return file.startswith(tuple(inside)) or "/site-packages/" in file or "/dist-packages/" in file


def is_users(code: CodeType) -> bool:
    """True if code is the user's own."""
    return not is_library(code.co_filename)


def is_operator(frame: FrameType) -> bool:
    """True if a frame is at an operator, such as `+`, and not at a call."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return name.startswith(("BINARY_", "COMPARE_", "INPLACE_"))


def user_place() -> str | None:
    """`FILE:LINE` of the user's program that is being executed, the innermost; None if there is none."""
    return _first_place(traceback.walk_stack(sys._getframe(1)))


def place_of(error: BaseException) -> str | None:
    """`FILE:LINE` of the user's program that an error passed, the innermost; None if there is none."""
    return _first_place(reversed([*traceback.walk_tb(error.__traceback__)]))


def _first_place(frames: Iterable[tuple[FrameType, int]]) -> str | None:
    places = (f"{f.f_code.co_filename}:{line}" for f, line in frames if is_users(f.f_code))
    return next(places, None)


_WRITTEN_DOWN = {"numpy": "", "jax.numpy": "", "jax.lax": "lax.", "jax": ""}
"""Modules whose functions can be recorded, with the prefix of their names in the table of calls."""
_REFUSED = (
    *("jax.nn", "jax.numpy.linalg", "jax.numpy.fft", "jax.lax.linalg", "jax.image", "jax.scipy.special"),
    "jax.random",
)
"""Modules whose functions are refused."""
_OF_NUMPY = (
    *("asarray", "array", "asanyarray", "ascontiguousarray", "asfortranarray", "copy"),
    *("sum", "mean", "max", "min", "amax", "amin"),
)
"""Functions of NumPy that do not dispatch to their arguments, or not to those in a list."""
_OF_JAX = (
    "device_get",
    "device_put",
    "block_until_ready",
    "eval_shape",
    "make_jaxpr",
    "jvp",
    "vjp",
    "linearize",
)
_TRANSFORMATIONS = (
    *("jit", "vmap", "pmap", "grad", "value_and_grad", "jacfwd", "jacrev", "jacobian", "hessian"),
    *("checkpoint", "remat", "custom_jvp", "custom_vjp", "named_call", "custom_gradient"),
)
"""Functions of JAX that transform functions."""

_traced_here: ContextVar[bool] = ContextVar("traced_here", default=False)
"""True while a function is being traced in this thread."""


class FunctionReplacement:
    """A function that is recorded if it is called with stand-ins, and called unchanged otherwise."""

    def __init__(self, function: Callable[..., Any], name: str | None, called: str):
        """`name`: the name in the table of calls, None if it is refused. `called`: its name in messages."""
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", called)
        self.__doc__ = function.__doc__
        self._name, self._called = name, called

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        array = next(stand_ins_in((arguments, keywords)), None)
        if array is None:
            given = [_original(value) for value in arguments]
            return self.__wrapped__(*given, **{n: _original(value) for n, value in keywords.items()})
        if self._name is None:
            raise array._recorder.refused(f"it calls `{self._called}`", *arguments, *keywords.values())
        return array._recorder.called(self._name, arguments, keywords, self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.__wrapped__.__get__(instance, owner)


class Transformation(FunctionReplacement):
    """`jax.vmap` and the like, whose transformed functions refuse stand-ins."""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        result = super().__call__(*arguments, **keywords)
        return _refusing(result) if _traced_here.get() and callable(result) else result


def _refusing(function: Any) -> FunctionReplacement:
    return FunctionReplacement(function, None, getattr(function, "__name__", "a function of JAX"))


def _original(value: Any) -> Any:
    return value.__wrapped__ if isinstance(value, FunctionReplacement) else value


# --- what is replaced ---


def _in_modules() -> Iterator[tuple[ModuleType, str, FunctionReplacement]]:
    """Yield the functions of libraries to replace, with module and name; JAX's if it is imported."""
    for name in _OF_NUMPY:
        yield np, name, FunctionReplacement(getattr(np, name), name, f"numpy.{name}")
    if "jax.numpy" not in sys.modules:
        return
    jax = sys.modules["jax"]
    for name in _OF_JAX:
        yield jax, name, FunctionReplacement(getattr(jax, name), name, f"jax.{name}")
    for name in filter(lambda n: hasattr(jax, n), _TRANSFORMATIONS):
        yield jax, name, Transformation(getattr(jax, name), None, f"jax.{name}")
    for module in ("jax.numpy", "jax.lax", *_REFUSED):
        if module in sys.modules:
            yield from _of_module(sys.modules[module], _WRITTEN_DOWN.get(module))


def _of_module(
    module: ModuleType, prefix: str | None
) -> Iterator[tuple[ModuleType, str, FunctionReplacement]]:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or isinstance(value, type | ModuleType) or not callable(value):
            continue
        if not str(type(value).__module__).startswith("typing"):
            known = None if prefix is None else prefix + name
            yield module, name, FunctionReplacement(value, known, f"{module.__name__}.{name}")


class _Installation:
    """Installs all replacements while at least one function is being traced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._undo: list[Callable[[], None]] = []
        self._known: dict[int, FunctionReplacement] = {}
        self._seen: set[int] = set()

    def enter(self, functions: tuple[Any, ...]) -> None:
        with self._lock:
            if not self._users:
                self._install()
            self._users += 1
            for function in functions:
                self._replace_reached(function)

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                while self._undo:
                    self._undo.pop()()
                self._known.clear()
                self._seen.clear()

    def _install(self) -> None:
        for module, name, replacement in _in_modules():
            self._known[id(replacement.__wrapped__)] = replacement
            self._set(vars(module), name, replacement)
        self._set(vars(builtins), "isinstance", _isinstance)
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            is_main = getattr(module, "__name__", None) == "__main__"
            if isinstance(module, ModuleType) and (is_main or (file is not None and not is_library(file))):
                self._replace_in(vars(module))

    def _replace_in(self, names: MutableMapping[str, Any]) -> None:
        """Replace functions among the globals of one of the user's modules."""
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        for name, value in list(names.items()):
            replacement = self._replacement_of(value)
            if replacement is not None:
                self._set(names, name, replacement)

    def _replace_reached(self, function: Any) -> None:
        """Replace functions in a function's globals and closure, and recursively in those of the closure."""
        function = getattr(function, "func", function)
        function = getattr(function, "__func__", function)
        if not isinstance(function, FunctionType) or id(function) in self._seen:
            return
        if not is_users(function.__code__):
            return
        self._seen.add(id(function))
        self._replace_in(function.__globals__)
        for cell in function.__closure__ or ():
            self._replace_in_cell(cell)

    def _replace_in_cell(self, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # nothing is assigned to it yet
            return
        replacement = self._replacement_of(value)
        if replacement is None:
            self._replace_reached(value)
            return
        cell.cell_contents = replacement

        def undo() -> None:
            if cell.cell_contents is replacement:
                cell.cell_contents = value

        self._undo.append(undo)

    def _replacement_of(self, value: Any) -> FunctionReplacement | None:
        known = self._known.get(id(value))
        if known is not None:
            return known
        return _refusing(value) if _is_made_by_jax(value) else None

    def _set(self, names: MutableMapping[str, Any], name: str, replacement: Any) -> None:
        value = names[name]
        names[name] = replacement

        def undo() -> None:
            if names.get(name) is replacement:
                names[name] = value

        self._undo.append(undo)


def _is_made_by_jax(value: Any) -> bool:
    """True if a value is a function transformed by `jax.jit`, `jax.vmap` or the like."""
    if isinstance(value, type):
        return False
    if type(value).__module__.startswith(("jaxlib", "jax.", "jax._src")) and callable(value):
        return hasattr(value, "__wrapped__") or hasattr(value, "lower")
    if not isinstance(value, FunctionType):
        return False
    return value.__code__.co_filename.replace("\\", "/").endswith("/jax/_src/traceback_util.py")


def asked_by_jax() -> bool:
    """True if the caller's caller is a function of JAX that needs values.

    The operators of its arrays ask, too, to leave the operation to the other operand.
    """
    file = sys._getframe(2).f_code.co_filename.replace("\\", "/")
    return "/jax/_src/" in file and not file.endswith("/array_methods.py")


_real_isinstance = isinstance
_installation = _Installation()


def _isinstance(value: Any, kind: Any, /) -> bool:
    """`isinstance` for the user's code, to which stand-ins are arrays of NumPy and of JAX."""
    if _real_isinstance(value, kind):
        return True
    if not _real_isinstance(value, Traced) or is_library(sys._getframe(1).f_code.co_filename):
        return False
    if issubclass(np.ndarray, kind):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and issubclass(jax.Array, kind)


@contextmanager
def replaced(*functions: Any) -> Iterator[None]:
    """Replace functions that do not dispatch to stand-ins, while these functions of the user's are called."""
    _installation.enter(functions)
    token = _traced_here.set(True)
    try:
        yield
    finally:
        _traced_here.reset(token)
        _installation.leave()
