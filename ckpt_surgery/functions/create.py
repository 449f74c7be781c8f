"""Functions that create arrays: constants, ranges, and random values of JAX's initializers."""

import functools
import hashlib
import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import DType, computation, converted, is_integer, kind, rank
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array, apply, check_axes, check_size
from ckpt_surgery.functions.base import Blocks, Function, LeafKey, Number, Specs, in_expressions
from ckpt_surgery.functions.dtypes import Cast, number_as


def _shape_of(shape: int | tuple[int, ...], name: str) -> Shape:
    """The shape argument of the function `name` as a tuple. Raises FunctionError for a negative length."""
    lengths = shape if isinstance(shape, tuple) else (shape,)
    check_axes(name, len(lengths))
    if min(lengths, default=0) < 0:
        raise FunctionError(f"`{name}`: the shape has the negative length {min(lengths)}")
    return lengths


@dataclass(frozen=True)
class Full(Function):
    """An array whose elements are all one number."""

    shape: Shape
    value: Number
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        number_as(self.value, self.dtype)
        return ArraySpec(self.shape, self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return np.full(region.shape, number_as(self.value, self.dtype))


@in_expressions
def full(shape: int | tuple[int, ...], value: Number, dtype: DType) -> Array:
    """`full(shape, value, dtype)`: an array whose elements are all this number.

    Raises FunctionError if the number is out of range of `dtype`, or a fraction and `dtype` an integer.
    """
    return _filled("full", shape, value, dtype)


@in_expressions
def zeros(shape: int | tuple[int, ...], dtype: DType) -> Array:
    """`zeros(shape, dtype)`: an array of zeros.

    Raises FunctionError if `dtype` has no zero, as float8_e8m0fnu.
    """
    return _filled("zeros", shape, 0, dtype)


@in_expressions
def ones(shape: int | tuple[int, ...], dtype: DType) -> Array:
    """`ones(shape, dtype)`: an array of ones."""
    return _filled("ones", shape, 1, dtype)


def _filled(name: str, shape: int | tuple[int, ...], value: Number, dtype: DType) -> Array:
    lengths = _shape_of(shape, name)
    check_size(name, ArraySpec(lengths, dtype), lambda: 0)
    return apply(Full(lengths, value, dtype))


@dataclass(frozen=True)
class InPlaceOf(Function):
    """The first input, in the place of the second, of which no element is read.

    The planner adds it where a rule gives a leaf a value that follows from no leaf, so
    that the plan tells what was there before.
    """

    is_layout: ClassVar[bool] = True

    def infer(self, ins: Specs) -> ArraySpec:
        return ins[0]

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, selection)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return blocks[0]


@dataclass(frozen=True)
class Arange(Function):
    """Evenly spaced numbers: element `i` is `start + i * step`."""

    start: int | float
    stop: int | float
    step: int | float
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        start, stop, step, dtype = self.start, self.stop, self.step, self.dtype
        if step == 0 or not all(map(math.isfinite, (start, stop, step))):
            raise FunctionError(f"`arange` from {start} to {stop} in steps of {step} has no end")
        exact = not any(isinstance(number, float) for number in (start, stop, step))
        if is_integer(dtype) and not exact:
            raise FunctionError(f"`arange` of {dtype.name} needs integers, not {start}, {stop}, {step}")
        # Integers are divided as integers, because they can be larger than a float can represent.
        count = int(-((start - stop) // step)) if exact else math.ceil((stop - start) / step)
        if count > 0:
            number_as(start, dtype)
            number_as(start + (count - 1) * step, dtype)
        return ArraySpec((max(0, count),), dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        index = np.arange(region.starts[0], region.stops[0], dtype=np.uint64)
        if is_integer(self.dtype):
            # Computed modulo 2**64, where neither a negative step nor a large uint64 overflows.
            values = index * np.uint64(int(self.step) % 2**64) + np.uint64(int(self.start) % 2**64)
            return converted(values if kind(self.dtype) == "u" else values.view(np.int64), self.dtype)
        return converted(np.float64(self.start) + index.astype(np.float64) * self.step, self.dtype)


@in_expressions
def arange(
    start: int | float, stop: int | float | None = None, step: int | float = 1, dtype: DType | None = None
) -> Array:
    """`arange(stop, dtype='int32')`, `arange(start, stop, step=1, dtype='float32')`: evenly spaced numbers.

    Element `i` is `start + i * step`, up to but not including `stop`: `ceil((stop - start) / step)`
    elements. `dtype` is required, an integer or float dtype. Floats are computed in float64 and rounded
    once. Raises FunctionError if the first or last element is out of range of `dtype`, and for floats as
    arguments if `dtype` is an integer.
    """
    if dtype is None or rank(dtype) not in (1, 2):
        raise FunctionError("`arange` needs an integer or float `dtype`: arange(10, dtype='int32')")
    bounds = (0, start) if stop is None else (start, stop)
    return apply(Arange(*bounds, step, dtype))


Option = Number | str | tuple[int, ...]
Options = tuple[tuple[str, Option], ...]  # Keyword arguments of an initializer


@dataclass(frozen=True)
class Init(Function):
    """Values of an initializer of `jax.nn.initializers` for a leaf."""

    full_copies: ClassVar[int] = 4  # random bits, uniform and transformed numbers, the result
    initializer: str
    shape: Shape
    dtype: DType
    leaf_key: str
    seed: int = 0
    options: Options = ()

    def infer(self, ins: Specs) -> ArraySpec:
        if kind(self.dtype) != "f":
            raise FunctionError(f"`init` needs a float dtype, not {self.dtype.name}")
        if not 0 <= self.seed < 2**32:
            raise FunctionError(f"`init`: seed should be from 0 to {2**32 - 1}, not {self.seed}")
        spec = ArraySpec(self.shape, self.dtype)
        check_size(self.name, spec, lambda: 0)
        _check(self.initializer, self.options, spec.shape)
        return spec

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = _initialized(self)[region.slices]
        with suppress(DataError):  # its message names a cast, but the recipe has none
            if np.isfinite(block).all():
                return Cast(self.dtype).apply(region, (), [block])
        raise DataError(
            f"`init`: `{self.initializer}` gives magnitudes up to {float(np.abs(block).max())!r}, "
            f"which {self.dtype.name} cannot represent",
            hint="Change the options of the initializer, or use a wider dtype.",
        )


@in_expressions
def init(
    initializer: str,
    shape: int | tuple[int, ...],
    dtype: DType,
    seed: int = 0,
    *,
    leaf_key: LeafKey,
    **options: Option,
) -> Array:
    """`init(initializer, shape, dtype, seed=0, …)`: values of an initializer of `jax.nn.initializers`.

    The initializer is given by its name. Further keywords are its own arguments:
    `init('normal', (8, 8), 'float32', stddev=0.02)`. The PRNG key is made of `seed` and the SHA-256 of the
    leaf's key, so values depend only on the seed, the key, the shape, the options and JAX's version. JAX
    computes the whole array on the CPU, in float64 if that is `dtype` and in float32 otherwise, and it is
    rounded once. Raises FunctionError if the initializer does not accept its arguments, DataError if a value
    is not finite or out of range of `dtype`.
    """
    return apply(Init(initializer, _shape_of(shape, "init"), dtype, leaf_key, seed, tuple(options.items())))


def _built(initializer: str, options: Options) -> Callable[..., Any]:
    """The initializer, a function `(key, shape, dtype) -> array`.

    Raises FunctionError for an unknown name or option.
    """
    from jax.nn import initializers

    public = {name for name, f in vars(initializers).items() if inspect.isfunction(f) and name[0] != "_"}
    if initializer not in public:
        guess = did_you_mean(initializer, public)
        raise FunctionError(f"`init`: no initializer `{initializer}` in jax.nn.initializers{guess}")
    factory = getattr(initializers, initializer)
    known = set(inspect.signature(factory).parameters) - {"dtype"}
    ready = "key" in known  # `zeros` and `ones` are initializers themselves, all others return one
    for name, _ in options:
        if ready or name not in known:
            guess = did_you_mean(name, () if ready else known)
            raise FunctionError(f"`init`: `{initializer}` has no option `{name}`{guess}")
    built: Callable[..., Any] = factory if ready else factory(**dict(options))
    return built


@functools.lru_cache(maxsize=1024)
def _check(initializer: str, options: Options, shape: Shape) -> None:
    """Raise FunctionError if the initializer does not accept its options or the shape. Computes no values.

    Raises MissingLibraryError without jax.
    """
    with report_missing("jax", "`init` needs jax"):
        import jax
    try:
        built = _built(initializer, options)
        for name, value in options:
            for axis in value if isinstance(value, tuple) else (value,):
                if name.endswith("_axis") and type(axis) is int and not -len(shape) <= axis < len(shape):
                    message = f"`init`: `{name}` is {axis}, but the shape {list(shape)} has {len(shape)} axes"
                    raise FunctionError(message)
        with np.errstate(all="ignore"):
            jax.eval_shape(lambda key: built(key, shape, np.float32), jax.random.key(0))
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError, AssertionError) as error:
        raise FunctionError(f"`init`: `{initializer}` for shape {list(shape)}: {error}") from None


def leaf_prng_key(seed: int, leaf_key: str) -> Any:
    """The JAX PRNG key of a leaf, of the implementation threefry2x32.

    It starts from `seed`; the first two big-endian words of the SHA-256 of `leaf_key` in UTF-8 are folded in.
    """
    import jax

    words = np.frombuffer(hashlib.sha256(leaf_key.encode()).digest()[:8], ">u4").astype(np.uint32)
    return functools.reduce(jax.random.fold_in, words, jax.random.key(np.uint32(seed), impl="threefry2x32"))


# A task computes one region at a time. The last array is kept, so that its other regions need no computation.
@functools.lru_cache(maxsize=1)
def _initialized(function: Init) -> np.ndarray:
    """The whole array of an initializer, computed by JAX on the CPU."""
    import jax

    dtype = computation(function.dtype)
    cpu, wide = jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(dtype == np.float64)
    with cpu, wide, np.errstate(all="ignore"):
        key = leaf_prng_key(function.seed, function.leaf_key)
        return np.asarray(_built(function.initializer, function.options)(key, function.shape, dtype))
