"""Axis arguments of calls, and bounds on the array that a function gives, whatever a recipe says."""

from collections.abc import Callable, Sequence

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import bytes_text

MOST_BYTES = 1 << 40
"""Bytes above which an array must not have more than MOST_GROWTH times the bytes of its leaves."""
MOST_GROWTH = 16  # So that stacks of large arrays, and casts of those, may be of any size
MOST_AXES = 32  # Limit on the number of axes: what NumPy and TensorStore hold
LONGEST = 2**63 - 1  # Limit on the length of an axis, and on the bytes of an array


def check_axes(name: str, count: int) -> None:
    """Raises FunctionError if the function `name` is given, or would give, too many axes."""
    if count > MOST_AXES:
        raise FunctionError(f"`{name}`: {count:,} axes; the limit is {MOST_AXES}")


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` as a number from 0 to `ndim - 1`. Raises FunctionError if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise FunctionError(f"`{name}`: there is no axis {axis} in an array of {ndim} axes")
    return axis % ndim


def axes_of(axes: int | tuple[int, ...] | None, ndim: int, name: str) -> tuple[int, ...]:
    """One axis, several, or all (None), each as a number from 0 to `ndim - 1`, in the order given.

    Raises FunctionError if there is no such axis, or if one is given twice.
    """
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, tuple) else (axes,)
    check_axes(name, len(given))
    numbers = tuple(axis_of(axis, ndim, name) for axis in given)
    if len(set(numbers)) < len(numbers):
        raise FunctionError(f"`{name}`: an axis is given twice in {given}")
    return numbers


def check_alike(name: str, ins: Sequence[ArraySpec]) -> None:
    """Raises FunctionError if the arrays of a list, of the function `name`, have different shapes."""
    for i, spec in enumerate(ins):
        if spec.shape != ins[0].shape:
            message = f"array 0 is {ins[0]}, array {i} is {spec}; shapes have to be equal"
            raise FunctionError(f"`{name}`: {message}")


def broadcasts_to(shape: Shape, wanted: Shape) -> bool:
    """Whether an array of a shape broadcasts to the wanted one."""
    tail = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def check_size(name: str, spec: ArraySpec, bytes_read: Callable[[], int]) -> None:
    """Raises FunctionError if the result of the function `name` is too large to be computed or stored.

    `spec`: shape and dtype of the result. `bytes_read`: gives the bytes of all leaves that it is made of.
    """
    check_axes(name, spec.ndim)
    longest = max(spec.shape, default=0)
    if longest > LONGEST:
        length = f"2^{longest.bit_length() - 1} or more"
        raise FunctionError(f"`{name}` would make an axis of {length} elements; the limit is 2^63 - 1")
    nbytes = spec.nbytes
    if nbytes > MOST_BYTES and nbytes > min(MOST_GROWTH * (given := bytes_read()), LONGEST):
        size = bytes_text(nbytes) if nbytes <= LONGEST else f"2^{nbytes.bit_length() - 1} bytes"
        limit = f"{bytes_text(MOST_BYTES)}, or {MOST_GROWTH} times the leaves that it is made of"
        message = f"`{name}` would make {spec}, {size} out of {bytes_text(given)}; the limit is {limit}"
        raise FunctionError(message)
