"""Arrays that are read when their elements are asked for: a slice reads no more than it touches."""

import asyncio
import inspect
import sys
import uuid
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import DTYPES, DType, kind
from ckpt_surgery.core.errors import DataError, FunctionError, SourceError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, array_repr
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.functions.dtypes import Bitcast, Cast, overflow_reason
from ckpt_surgery.live.indexing import parse_index, read_picked
from ckpt_surgery.report.leaves import Statistics
from ckpt_surgery.system.resources import default_memory

_THREADS = ThreadPoolExecutor(32, thread_name_prefix="ckpt-surgery-read")
"""Threads for reads by `get_async` that run side by side."""


class LazyArray(ABC):
    """An array that is read when its elements are asked for; nothing is kept between two reads.

    A subclass says how a region is read. Safe to use from several threads.
    """

    _is_disguised = False
    """True if its uint16 integers are most likely the bits of bfloat16."""
    __array_priority__ = 1000  # `numpy_array + lazy` is a TypeError, as `lazy + numpy_array` is

    def __init__(
        self,
        spec: ArraySpec,
        *,
        key: str = "",
        chunks: Shape | None = None,
        sharding: str | None = None,
        prng_impl: str | None = None,
    ):
        introduce_to_t5x()
        self._spec = spec
        self._key = key
        self._chunks = chunks
        self._sharding = sharding
        self._prng_impl = prng_impl

    @staticmethod
    def of(
        shape: Shape, dtype: Any, get_fn: Callable[[], Any | Awaitable[Any]], *, key: str = ""
    ) -> "LazyArray":
        """Make a lazy array of a function that returns the whole array, or is a coroutine function.

        It is called at each read, also of a slice, and perhaps by several threads. Its result is cast to
        `dtype`, as `astype` casts; the read raises DataError if it has another shape.
        """
        return _Given(ArraySpec(tuple(shape), dtype_of(dtype)), get_fn, key)

    @abstractmethod
    def _read(self, region: Region) -> np.ndarray:
        """Elements of one region, which is not empty. Read-only if another object uses the same memory."""

    @property
    def key(self) -> str:
        """Text of its key in the checkpoint; empty if it is in none."""
        return self._key

    @property
    def shape(self) -> Shape:
        """Length of each axis."""
        return self._spec.shape

    @property
    def dtype(self) -> DType:
        """One of NumPy's dtypes, or of ml_dtypes'."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._spec.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._spec.size

    @property
    def nbytes(self) -> int:
        """Number of bytes in memory, once it is read."""
        return self._spec.nbytes

    @property
    def chunks(self) -> Shape | None:
        """Shape of the chunks that it is stored in; None if it is not stored on a grid of chunks."""
        return self._chunks

    @property
    def sharding(self) -> str | None:
        """Sharding that it was saved with, in Orbax's JSON text; None if none was recorded."""
        return self._sharding

    @property
    def prng_impl(self) -> str | None:
        """Implementation of the random keys whose raw data this is; None for other arrays."""
        return self._prng_impl

    @property
    def _unit(self) -> Shape | None:
        """Shape of the blocks that are read as a whole; None if any range of bytes can be read."""
        return self._chunks

    def __repr__(self) -> str:
        return array_repr("LazyArray", self.key, self._spec)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Read the elements that an index of NumPy's picks out, into memory of the caller's own.

        One axis may have an array of integers or booleans. Only the chunks that the index touches are read.
        Raises IndexError before anything is read, SurgeryError as reading does.
        """
        picked, rest = parse_index(index, self.shape)
        block = read_picked(picked, self._spec, self._unit, self._read)
        return np.require(block[rest], requirements="W")

    def get(self) -> np.ndarray:
        """Read the whole array, into memory of the caller's own."""
        return self[...]

    async def get_async(self) -> np.ndarray:
        """Read the whole array in a thread; concurrent reads run side by side."""
        return await asyncio.get_running_loop().run_in_executor(_THREADS, self.get)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("reading a lazy array always makes a copy: `copy=False` is not possible")
        if dtype is not None and np.dtype(dtype).name in DTYPES:
            return self.astype(dtype).get()
        return self.get() if dtype is None else self.get().astype(dtype)

    def __jax_array__(self) -> Any:
        import jax

        return jax.numpy.asarray(self.get())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(f"{self!r} has {self.size:,} elements, and only one element is true or false")
        return bool(self._element())

    def __int__(self) -> int:
        return int(self._element())

    def __float__(self) -> float:
        return float(self._element())

    def __index__(self) -> int:
        if self.dtype.name == "bool" or not isinstance(element := self._element(), int):
            raise TypeError(f"{self!r} is not an integer, and cannot be an index")
        return element

    def _element(self) -> Any:
        """The only element, as a Python number. Raises TypeError, before any read, if there are several."""
        if self.size != 1:
            raise TypeError(f"{self!r} has {self.size:,} elements, and only one element is a number")
        return self.get().item()

    def _refuse(self, *others: Any) -> Any:
        raise TypeError(f"{self!r} has to be read before it can be computed with: `.get()`")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __divmod__ = __rdivmod__ = __pow__ = __rpow__ = __lshift__ = __rlshift__ = _refuse
    __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = _refuse

    def astype(self, dtype: Any) -> "LazyArray":
        """Lazy array of the same shape, whose values are converted when they are read.

        Values are converted as `cast` does in recipes: floats are rounded once, and a value out of the range
        of `dtype` is a DataError, with the key. Raises UsageError for a dtype that has no such conversion,
        and PlanError for floats of integers that T5X kept in place of bfloat16.
        """
        wanted = dtype_of(dtype)
        if self._is_disguised and kind(wanted) in "fc":
            from ckpt_surgery.planner.disguised import misread  # imports planning

            raise misread([self.key])
        return self if wanted == self.dtype else _Converted(self, _CheckedCast(wanted, key=self.key))

    def view(self, dtype: Any) -> "LazyArray":
        """Lazy array of the same shape, whose bytes are interpreted as a dtype of the same width.

        Raises UsageError for a dtype of another width.
        """
        wanted = dtype_of(dtype)
        if wanted.itemsize != self.dtype.itemsize:
            raise UsageError(
                f"{self!r} has elements of {self.dtype.itemsize} bytes, and those of {wanted.name} have "
                f"{wanted.itemsize}",
                hint="Read it first: `.get().view(dtype)` changes the last axis, too.",
            )
        return self if wanted == self.dtype else _Converted(self, Bitcast(wanted))

    def statistics(self) -> Statistics:
        """Read the array in parts, and describe its values.

        Raises SourceError where it cannot be read, UsageError for an array that is not of numbers.
        """
        from ckpt_surgery.report.values import statistics

        leaf = Leaf(Key.parse(self.key), self._kind, self._spec, prng_impl=self.prng_impl)
        source: Any = SimpleNamespace(read=lambda leaf, region: self._read(region))
        outcome = statistics(source, default_memory(), [leaf])[leaf.key.text]
        if isinstance(outcome, Statistics):
            return outcome
        raise (SourceError if outcome.damaged else UsageError)(f"{self!r} has no statistics: {outcome.why}")

    @property
    def _kind(self) -> LeafKind:
        """Kind of the leaf that it is in a tree."""
        return LeafKind.ARRAY if self.prng_impl is None else LeafKind.PRNG_KEY

    def __copy__(self) -> "LazyArray":
        return self

    def __deepcopy__(self, memo: Any) -> "LazyArray":
        return self

    def __dask_tokenize__(self) -> str:
        token: str = vars(self).setdefault("_token", uuid.uuid4().hex)
        return token

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        hint = "Pickle the checkpoint, which opens again, or the elements: `.get()`."
        raise UsageError(f"{self!r} cannot be pickled: it is read from an open checkpoint", hint=hint)


class _Given(LazyArray):
    """Lazy array of a function that returns all of it."""

    def __init__(self, spec: ArraySpec, get_fn: Callable[[], Any | Awaitable[Any]], key: str):
        super().__init__(spec, key=key)
        self._get_fn = get_fn

    def _read(self, region: Region) -> np.ndarray:
        value = self._get_fn()
        index: Any = (*region.slices, ...)  # gives an array even where there are no axes
        part: np.ndarray = self._checked(wait_for(value) if inspect.isawaitable(value) else value)[index]
        return part

    async def get_async(self) -> np.ndarray:
        """Await the function if it is a coroutine function, in the loop of the caller."""
        if not inspect.iscoroutinefunction(self._get_fn):
            return await super().get_async()
        return np.require(self._checked(await self._get_fn()), requirements="W")

    def _checked(self, value: Any) -> np.ndarray:
        """The function's result, read-only, with the dtype of this array. Raises DataError."""
        array = np.asarray(value)
        if array.shape != self.shape:
            raise DataError(
                f"{self!r} was made with the shape {list(self.shape)}, and its function returned "
                f"{list(array.shape)}",
                hint="Make it with the shape that the function returns.",
            )
        cast, spec = _CheckedCast(self.dtype, key=self.key), ArraySpec(array.shape, array.dtype)
        converted = cast.apply(Region.whole(array.shape), [spec], [array])[...]
        converted.flags.writeable = False  # the function may keep it
        return converted


class _Converted(LazyArray):
    """Lazy array whose elements are those of another one, each converted by itself."""

    def __init__(self, array: LazyArray, function: Cast | Bitcast):
        try:
            spec = function.infer([array._spec])
        except FunctionError as error:
            raise UsageError(f"{array!r}: {error.problems[0].message}", hint=error.problems[0].hint) from None
        super().__init__(spec, key=array.key, chunks=array.chunks, sharding=array.sharding)
        self._array, self._function = array, function
        self._is_disguised = array._is_disguised and isinstance(function, Cast)

    @property
    def _unit(self) -> Shape | None:
        return self._array._unit

    def _read(self, region: Region) -> np.ndarray:
        return self._converted(self._array._read(region), region)

    async def get_async(self) -> np.ndarray:
        """Read the other array, and convert it."""
        block = self._converted(await self._array.get_async(), Region.whole(self.shape))
        return np.require(block, requirements="W")

    def _converted(self, block: np.ndarray, region: Region) -> np.ndarray:
        return self._function.apply(region, [self._array._spec], [block])


@dataclass(frozen=True)
class _CheckedCast(Cast):
    """Cast of the array with this key, outside of any recipe."""

    key: str = ""

    def out_of_range(self, number: np.ndarray, where: str) -> DataError:
        named = f"`{shown(self.key)}` as {self.dtype.name}" if self.key else f"as {self.dtype.name}"
        return DataError(f"{named}: {overflow_reason(number, where, self.dtype)}")


def dtype_of(dtype: Any) -> DType:
    """The dtype that a caller means: a name such as `bfloat16`, a class, a dtype. Raises UsageError."""
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    try:
        native: DType = np.dtype(dtype).newbyteorder("=")
    except TypeError:
        hint = "Types are written in full, such as float32 and bfloat16."
        raise UsageError(f"not a dtype: {abridged(dtype)}", hint=hint) from None
    return native


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Run an awaitable to its end, in a loop of its own, and return its result."""

    async def result() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # in this thread, which has the program's context and settings of JAX
        return asyncio.run(result())
    with ThreadPoolExecutor(1) as thread:  # this thread's loop cannot run while it waits here
        return thread.submit(asyncio.run, result()).result()


def introduce_to_t5x() -> None:
    """Let `isinstance` take lazy arrays for T5X's, if its importer is imported."""
    theirs = getattr(sys.modules.get("t5x.checkpoint_importer"), "LazyArray", None)
    ours: Any = LazyArray
    if isinstance(theirs, ABCMeta) and not issubclass(ours, theirs):
        theirs.register(ours)
