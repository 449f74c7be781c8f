"""Replace library functions that do not dispatch to stand-ins while a user's function is traced.

NumPy's functions ask stand-ins; `np.asarray`, those of JAX and `isinstance` do not. They are replaced in the
libraries' modules and in all modules of the user's, for all threads: without a stand-in among its arguments
a replacement is the function itself. A function of JAX that is not replaced asks for `__jax_array__`.
"""

import builtins
import dis
import inspect
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import CellType, FrameType, FunctionType, ModuleType
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


def is_operator(frame: FrameType) -> bool:
    """True if a frame is at an operator, such as `+`, and not at a call."""
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return name.startswith(("BINARY_", "COMPARE_", "INPLACE_"))


def user_place(error: BaseException | None = None) -> str | None:
    """`FILE:LINE` of the user's program that runs, or that an error passed, the innermost; None if none."""
    if error is None:
        frames = [*traceback.walk_stack(sys._getframe(1))]
    else:
        frames = [*traceback.walk_tb(error.__traceback__)][::-1]
    places = (f"{f.f_code.co_filename}:{line}" for f, line in frames if not is_library(f.f_code.co_filename))
    return next(places, None)


def user_call() -> str:
    """Text of the innermost call in the user's program, such as `jax.nn.relu(x)`; empty if it is unknown."""
    frames = (frame for frame, _ in traceback.walk_stack(sys._getframe(1)))
    frame = next((frame for frame in frames if not is_library(frame.f_code.co_filename)), None)
    if frame is None:
        return ""
    place = inspect.getframeinfo(frame, context=1)
    at = place.positions
    if at is None or not place.code_context or at.lineno != at.end_lineno or at.lineno != place.lineno:
        return ""
    line = place.code_context[0].encode()  # of which columns are counted in bytes
    return line[at.col_offset : at.end_col_offset].decode(errors="replace").strip()


_OF_NUMPY = (
    *("asarray", "array", "asanyarray", "ascontiguousarray", "asfortranarray", "copy"),
    *("sum", "mean", "max", "min", "amax", "amin"),
)
"""Functions of NumPy that do not dispatch to their arguments, or not to those in a list."""
OF_JAX = ("device_get", "device_put", "block_until_ready")
"""Functions of JAX that return trees of arrays unchanged."""


class FunctionReplacement:
    """A function that is recorded if it is called with stand-ins, and called unchanged otherwise."""

    def __init__(self, function: Callable[..., Any], name: str):
        """`name`: the name in the table of calls."""
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", name)
        self.__doc__ = function.__doc__
        self._name = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        array = next(stand_ins_in((arguments, keywords)), None)
        if array is None:
            return self.__wrapped__(*arguments, **keywords)
        return array._recorder.called(self._name, arguments, keywords, self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)


class _Installation:
    """Installs all replacements while at least one function is being traced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._undo: list[tuple[MutableMapping[str, Any], str, Any, Any]] = []
        """Names in modules, and what they stood for before and now."""
        self._cells: list[tuple[CellType, Any, Any]] = []
        """Variables of closures, and what they stood for before and now."""
        self._known: dict[int, FunctionReplacement] = {}
        """Replacements by the identity of the function."""

    def enter(self, functions: tuple[Any, ...]) -> None:
        with self._lock:
            if not self._users:
                self._install()
            self._users += 1
            for function in functions:  # which may be of no module: code that was executed as text
                self._replace_reached(function, set())

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                for names, name, before, now in reversed(self._undo):
                    if names.get(name) is now:
                        names[name] = before
                for cell, before, now in self._cells:
                    with suppress(ValueError):  # the function has deleted it
                        if cell.cell_contents is now:
                            cell.cell_contents = before
                self._undo.clear()
                self._cells.clear()
                self._known.clear()

    def _install(self) -> None:
        jax = sys.modules.get("jax.numpy") and sys.modules["jax"]
        for name in _OF_NUMPY:
            self._replace(np, name, name)
        for name in OF_JAX if jax else ():
            self._replace(jax, name, name)
        for module, prefix in ((jax.numpy, ""), (jax.lax, "lax.")) if jax else ():
            for name, value in list(vars(module).items()):
                is_function = callable(value) and not isinstance(value, type)
                if is_function and name[0] != "_" and not type(value).__module__.startswith("typing"):
                    self._replace(module, name, prefix + name)
        self._set(vars(builtins), "isinstance", _isinstance)
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            is_users = getattr(module, "__name__", None) == "__main__" or (file and not is_library(file))
            if isinstance(module, ModuleType) and is_users:
                self._replace_in(vars(module))

    def _replace(self, module: Any, name: str, called: str) -> None:
        """Replace a function of a library. `called`: its name in the table of calls."""
        function = getattr(module, name)
        self._known[id(function)] = FunctionReplacement(function, called)
        self._set(vars(module), name, self._known[id(function)])

    def _replace_in(self, names: MutableMapping[str, Any]) -> None:
        """Replace functions among the globals of one of the user's modules."""
        for name, value in list(names.items()):
            if id(value) in self._known:
                self._set(names, name, self._known[id(value)])

    def _replace_reached(self, function: Any, seen: set[int]) -> None:
        """Replace functions in the globals and the closure of a user's function, also in its inner ones."""
        function = getattr(function, "func", function)
        function = getattr(function, "__func__", function)
        known = id(function) in seen or not isinstance(function, FunctionType)
        if known or is_library(function.__code__.co_filename):
            return
        seen.add(id(function))
        self._replace_in(function.__globals__)
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # nothing is assigned to it yet
                value = cell.cell_contents
                if id(value) in self._known:
                    self._cells.append((cell, value, self._known[id(value)]))
                    cell.cell_contents = self._known[id(value)]
                self._replace_reached(value, seen)

    def _set(self, names: MutableMapping[str, Any], name: str, replacement: Any) -> None:
        self._undo.append((names, name, names[name], replacement))
        names[name] = replacement


def asked_by_jax() -> bool:
    """True if a function of JAX asks for values. Its operators ask, too, to leave it to the other operand."""
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
    try:
        yield
    finally:
        _installation.leave()
