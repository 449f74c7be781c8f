"""Arrays that come from no other array."""

import functools
import hashlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import computation, converted, is_integer, kind, rank
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.base import Blocks, Function, Number, Specs
from ckpt_surgery.functions.dtypes import Cast, number_as

DType = np.dtype[Any]


def _shape_of(shape: int | tuple[int, ...], name: str) -> Shape:
    lengths = shape if isinstance(shape, tuple) else (shape,)
    if min(lengths, default=0) < 0:
        raise FunctionError(f"`{name}`: {min(lengths)} in the shape; no axis has a negative length")
    return lengths


@dataclass(frozen=True)
class _Created(Function):
    """Base of functions without inputs."""

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return []

    def declared_dtype(self, dtypes: Sequence[DType]) -> DType:
        return self.infer(()).dtype


@dataclass(frozen=True)
class Full(_Created):
    """`full(shape, value, dtype)`: the number everywhere. FunctionError where `dtype` has no such value."""

    name: ClassVar[str] = "full"
    parameters: ClassVar[tuple[str, ...] | None] = ("shape", "value", "dtype")
    shape: int | tuple[int, ...]
    value: Number
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        number_as(self.value, self.dtype)
        return ArraySpec(_shape_of(self.shape, self.name), self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return np.full(region.shape, number_as(self.value, self.dtype))


@dataclass(frozen=True)
class Zeros(_Created):
    """`zeros(shape, dtype)`."""

    name: ClassVar[str] = "zeros"
    parameters: ClassVar[tuple[str, ...] | None] = ("shape", "dtype")
    shape: int | tuple[int, ...]
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(_shape_of(self.shape, self.name), self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return np.zeros(region.shape, self.dtype)


@dataclass(frozen=True)
class Ones(_Created):
    """`ones(shape, dtype)`."""

    name: ClassVar[str] = "ones"
    parameters: ClassVar[tuple[str, ...] | None] = ("shape", "dtype")
    shape: int | tuple[int, ...]
    dtype: DType

    def infer(self, ins: Specs) -> ArraySpec:
        number_as(1, self.dtype)
        return ArraySpec(_shape_of(self.shape, self.name), self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        return np.ones(region.shape, self.dtype)


@dataclass(frozen=True)
class Arange(_Created):
    """`arange(stop, dtype='int32')`, `arange(start, stop, step=1, dtype='float32')`: `start + i * step`.

    There are `ceil((stop - start) / step)` elements. Float types are computed in float64 and rounded once.
    Raises FunctionError where `dtype` does not hold the first and the last element, or is an integer type
    and a bound or the step is a float.
    """

    name: ClassVar[str] = "arange"
    parameters: ClassVar[tuple[str, ...] | None] = ("start", "stop", "step", "dtype")
    start: int | float
    stop: int | float | None = None
    step: int | float = 1
    dtype: DType | None = None

    def infer(self, ins: Specs) -> ArraySpec:
        start, stop, dtype = *self._bounds(), self._dtype()
        numbers = (start, stop, self.step)
        if self.step == 0 or not all(map(math.isfinite, numbers)):
            raise FunctionError(f"`arange` from {start} to {stop} in steps of {self.step} does not end")
        exact = not any(isinstance(number, float) for number in numbers)
        if is_integer(dtype) and not exact:
            raise FunctionError(f"`arange` of {dtype.name} takes integers, not {start}, {stop}, {self.step}")
        length = stop - start
        # Integers may be beyond what a float holds.
        count = max(0, int(-(-length // self.step)) if exact else math.ceil(length / self.step))
        if count:
            number_as(start, dtype)
            number_as(start + (count - 1) * self.step, dtype)
        return ArraySpec((count,), dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        (start, _), dtype = self._bounds(), self._dtype()
        index = np.arange(region.starts[0], region.stops[0], dtype=np.uint64)
        if is_integer(dtype):
            # Modulo 2**64, so that neither a negative step nor a large uint64 overflows on the way.
            values = index * np.uint64(int(self.step) % 2**64) + np.uint64(int(start) % 2**64)
            return converted(values if kind(dtype) == "u" else values.view(np.int64), dtype)
        return converted(np.float64(start) + index.astype(np.float64) * np.float64(self.step), dtype)

    def _bounds(self) -> tuple[int | float, int | float]:
        return (0, self.start) if self.stop is None else (self.start, self.stop)

    def _dtype(self) -> DType:
        if self.dtype is None or rank(self.dtype) not in (1, 2):
            raise FunctionError("`arange` needs an integer or float `dtype`: arange(10, dtype='int32')")
        return self.dtype


Option = Number | str | tuple[int, ...]
Options = tuple[tuple[str, Option], ...]


@dataclass(frozen=True)
class Init(_Created):
    """`init(initializer, shape, dtype, seed=0, …)`: random values of an initializer of `jax.nn.initializers`.

    Further keywords are the initializer's own: `init('normal', (8, 8), 'float32', stddev=0.02)`. The PRNG
    key is `seed` with the SHA-256 of the leaf's key folded in, so a value depends on nothing but seed, key,
    shape, options and JAX's version. Computed by JAX on the CPU as a whole, in float64 where `dtype` is
    that and in float32 otherwise, and rounded once. Raises FunctionError for what the initializer refuses,
    DataError where a value is not finite or beyond what `dtype` holds.
    """

    name: ClassVar[str] = "init"
    parameters: ClassVar[tuple[str, ...] | None] = ("initializer", "shape", "dtype", "seed")
    remaining: ClassVar[str | None] = "options"
    context: ClassVar[tuple[str, ...]] = ("leaf_key",)
    full_copies: ClassVar[int] = 4  # random bits, uniform and transformed numbers, the result
    initializer: str
    shape: int | tuple[int, ...]
    dtype: DType
    leaf_key: str
    seed: int = 0
    options: Options = ()

    def infer(self, ins: Specs) -> ArraySpec:
        if kind(self.dtype) != "f":
            raise FunctionError(f"`init` is for float types, not {self.dtype.name}")
        if not 0 <= self.seed < 2**32:
            raise FunctionError(f"`init`: seed has to be 0 to {2**32 - 1}, not {self.seed}")
        shape = _shape_of(self.shape, self.name)
        _check(self.initializer, self.options, shape)
        return ArraySpec(shape, self.dtype)

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        shape = _shape_of(self.shape, self.name)
        whole = _initialized(
            self.initializer, self.options, shape, computation(self.dtype), self.seed, self.leaf_key
        )
        block = whole[region.slices]
        try:
            if np.isfinite(block).all():
                return Cast(self.dtype).apply(region, (), [block])
        except DataError as error:  # it speaks of a cast, and there is none in the recipe
            raise self._beyond(block) from error
        raise self._beyond(block)

    def _beyond(self, block: np.ndarray) -> DataError:
        largest = float(np.abs(block).max())
        found = "NaN" if math.isnan(largest) else f"magnitudes up to {largest!r}"
        return DataError(
            f"`init`: `{self.initializer}` gives {found}; {self.dtype.name} does not hold that",
            hint="Other options of the initializer help, or a wider dtype.",
        )


def _factories() -> dict[str, Callable[..., Any]]:
    """The public functions of `jax.nn.initializers` by name."""
    from jax.nn import initializers

    return {name: f for name, f in vars(initializers).items() if inspect.isfunction(f) and name[0] != "_"}


def _built(initializer: str, options: Options) -> Callable[..., Any]:
    """The initializer itself: `(key, shape, dtype) -> array`. FunctionError for an unknown name or option."""
    factories = _factories()
    if initializer not in factories:
        raise FunctionError(
            f"`init`: no initializer `{initializer}` in jax.nn.initializers"
            f"{did_you_mean(initializer, factories)}"
        )
    factory = factories[initializer]
    known = set(inspect.signature(factory).parameters) - {"dtype"}
    ready = "key" in known  # `zeros` and `ones` are initializers, not makers of one
    for name, _ in options:
        if ready or name not in known:
            raise FunctionError(
                f"`init`: `{initializer}` has no option `{name}`{did_you_mean(name, () if ready else known)}"
            )
    built: Callable[..., Any] = factory if ready else factory(**dict(options))
    return built


@functools.lru_cache(maxsize=1024)
def _check(initializer: str, options: Options, shape: Shape) -> None:
    """FunctionError where the initializer refuses its options or the shape. Computes nothing."""
    import jax

    try:
        built = _built(initializer, options)
        _check_axes(options, shape)
        with np.errstate(all="ignore"):
            jax.eval_shape(lambda key: built(key, shape, np.float32), jax.random.key(0))
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError, AssertionError) as error:
        raise FunctionError(f"`init`: `{initializer}` for shape {list(shape)}: {error}") from None


def _check_axes(options: Options, shape: Shape) -> None:
    """FunctionError where `in_axis`, `out_axis` or the like names an axis that the shape does not have."""
    for name, value in options:
        for axis in value if isinstance(value, tuple) else (value,):
            if name.endswith("_axis") and type(axis) is int and not -len(shape) <= axis < len(shape):
                raise FunctionError(
                    f"`init`: there is no `{name}` {axis} in {list(shape)}, of {len(shape)} axes"
                )


def leaf_prng_key(seed: int, leaf_key: str) -> Any:
    """The JAX PRNG key of a leaf: threefry2x32 of `seed`, with 64 bits of the leaf's key folded in.

    The bits are the first 8 bytes of SHA-256 of the key's UTF-8 text, as two big-endian 32-bit words.
    """
    import jax

    digest = hashlib.sha256(leaf_key.encode()).digest()
    key = jax.random.key(np.uint32(seed), impl="threefry2x32")
    for word in np.frombuffer(digest[:8], ">u4").astype(np.uint32):
        key = jax.random.fold_in(key, word)
    return key


# A task asks for one region at a time; one array is kept so that its other regions cost nothing.
@functools.lru_cache(maxsize=1)
def _initialized(
    initializer: str, options: Options, shape: Shape, dtype: DType, seed: int, leaf_key: str
) -> np.ndarray:
    import jax

    cpu, wide = jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(dtype == np.float64)
    with cpu, wide, np.errstate(all="ignore"):
        values = _built(initializer, options)(leaf_prng_key(seed, leaf_key), shape, dtype)
        return np.asarray(values)
