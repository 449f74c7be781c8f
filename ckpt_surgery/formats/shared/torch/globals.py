"""The names that a pickle of tensors can use: storages, dtypes, and torch's functions that rebuild tensors.

Each function here stands for one of torch's, and makes an inert value from arguments that it has checked.
Pickles of other things have a `Vocabulary` of their own.

Source of the format: what torch's serialization.py, _utils.py and _tensor.py (2.13) write and read.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from ckpt_surgery.core import dtypes
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import damaged

MOST_NUMBER = 2**63 - 1
"""Largest size, stride or offset."""

RESAVE = (
    "None of it was run. Load it with torch if you trust it, and save its tensors alone: "
    "`torch.save(model.state_dict(), path)`."
)
EXPLAINED = {
    "__torch__.": "From TorchScript, save the tensors alone: "
    "`torch.save(torch.jit.load(path).state_dict(), other_path)`.",
    "torch._utils._rebuild_qtensor": "Save quantized tensors as `tensor.dequantize()`.",
    "torch._utils._rebuild_sparse_": "Save sparse tensors as `tensor.to_dense()`.",
    "torch._utils._rebuild_nested_": "Save nested tensors as their components, `tensor.unbind()`.",
    "torch._utils._rebuild_meta_": "Tensors on the meta device have no values.",
}
"""Advice on globals whose names begin like this."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that tensors are views of: the file `data/KEY` of the archive."""

    key: str
    dtype: np.dtype[Any] | None
    """Element type; None for untyped storages, whose elements are bytes."""
    length: int
    """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.length * (1 if self.dtype is None else self.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage, not yet checked against it. Offset and strides count elements of `dtype`."""

    storage: Storage
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pending: tuple[str, ...]
    """Operations that torch has yet to apply when it reads elements: `conj`, `neg`."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Placeholder for a pickled value that is not read, with its description."""

    what: str
    """Description with an article: `a set`."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """An instance of a class, which is not made: only what the pickle says of it is kept. Equal to itself."""

    name: str
    """Name of the class, with its module."""
    fields: dict[str | int, Any]
    """The attributes that it was given, by name; by number where its state is a tuple."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name on the allow-list, as a value on the stack of the unpickler."""

    name: str
    """Name with its module: `torch._utils._rebuild_tensor_v2`."""


DTYPES: Mapping[str, np.dtype[Any]] = {
    f"torch.{name}": dtypes.DTYPES[name]
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
}
STORAGES: Mapping[str, np.dtype[Any] | None] = {"torch.storage.UntypedStorage": None} | {
    f"torch.{kind}Storage": DTYPES[f"torch.{name}"]
    for kind, name in (
        *(("Bool", "bool"), ("Byte", "uint8"), ("Char", "int8"), ("Short", "int16"), ("Int", "int32")),
        *(("Long", "int64"), ("Half", "float16"), ("BFloat16", "bfloat16"), ("Float", "float32")),
        *(("Double", "float64"), ("ComplexFloat", "complex64"), ("ComplexDouble", "complex128")),
    )
}
TYPES = ("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
"""Classes that `_rebuild_from_type_v2` accepts."""


def what_is(value: object) -> str:
    """The kind of a value, for messages."""
    match value:
        case Unsupported(what):
            return what
        case Global(name):
            return f"`{name}`"
        case np.dtype():
            return f"`torch.{value.name}`"
        case Storage():
            return "a storage without a tensor"
        case Record(name):
            return f"an instance of `{name}`"
    return f"a value of type {type(value).__name__}"


@dataclass(frozen=True)
class Vocabulary:
    """The globals that one kind of pickle can name, and what becomes of them."""

    values: Mapping[str, object]
    """Globals that stand for values."""
    calls: Mapping[str, Callable[[tuple[Any, ...]], object]]
    """Functions that REDUCE can apply to a tuple of arguments. They return None where those do not fit."""
    classes: Collection[str]
    """Globals that are only named."""
    records: Collection[str]
    """Classes whose instances become records."""
    persistent: Callable[[object], object]
    """The value of a persistent identifier."""
    of: str
    """Content of the pickle, in the plural: `tensors`."""
    most_instructions: int
    """Limit on the instructions of one pickle."""

    def find(self, name: str) -> object:
        """The value of a global. Raises SourceError with its name where it is none of these."""
        if name in self.values:
            return self.values[name]
        if name in self.calls or name in self.classes or name in self.records:
            return Global(name)
        hints = (hint for start, hint in EXPLAINED.items() if name.startswith(start))
        raise damaged(f"it asks for `{shown(name[:200])}`, which {self.of} do not need", next(hints, RESAVE))


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value can be a size, stride or offset."""
    return type(value) is int and 0 <= value <= MOST_NUMBER


def is_numbers(value: object) -> TypeGuard[tuple[int, ...]]:
    """Whether a value can be a shape, strides or offsets."""
    return type(value) is tuple and all(map(is_number, value))


def find_storage(persistent: object) -> Storage:
    """The storage of `('storage', type, key, location, length)`; the location is the device it was on."""
    match persistent:
        case ("storage", Global(name), str(key), str(), int(length)) if name in STORAGES and is_number(
            length
        ):
            return Storage(key, STORAGES[name], length)
    raise damaged("a storage is not described by its type, key, location and length")


_LENGTHS = {1: (4, 4), 2: (6, 7), 3: (7, 8)}
"""Number of arguments of each version of `_rebuild_tensor`, without and with pending operations."""


def _tensor(version: int, arguments: tuple[Any, ...]) -> Tensor | None:
    """The tensor of (storage, offset, shape, strides).

    In version 2 requires_grad and hooks follow, in version 3 also a dtype, for types without typed storages;
    then sometimes pending operations.
    """
    count, most = _LENGTHS[version]
    if not count <= len(arguments) <= most:
        return None
    storage, offset, shape, strides = arguments[:4]
    dtype = arguments[6] if version == 3 else getattr(storage, "dtype", None)
    pending = arguments[count] if len(arguments) > count else None
    if not isinstance(storage, Storage) or not isinstance(dtype, np.dtype):
        return None
    numbers = is_number(offset) and is_numbers(shape) and is_numbers(strides)
    if not numbers or len(shape) != len(strides) or not isinstance(pending, dict | None):
        return None
    operations = tuple(str(k)[:20] for k, v in (pending or {}).items() if v)
    return Tensor(storage, dtype, offset, shape, strides, operations)


def _parameter(arguments: tuple[Any, ...]) -> Tensor | None:
    """The tensor of (data, requires_grad, hooks) and sometimes attributes."""
    match arguments:
        case (Tensor() as data, _, _) | (Tensor() as data, _, _, _):
            return data
    return None


def _from_type(arguments: tuple[Any, ...]) -> Tensor | None:
    """The tensor of (function, class, arguments, attributes): one that was given attributes."""
    match arguments:
        case (Global(function), Global(kind), tuple(inner), _) if function in _TENSORS and kind in TYPES:
            return _TENSORS[function](inner)
    return None


def size(arguments: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The shape of a `torch.Size`."""
    return tuple(arguments[0]) if len(arguments) == 1 and is_numbers(arguments[0]) else None


def ordered_dict(arguments: tuple[Any, ...]) -> dict[str | int, Any] | None:
    """An empty dictionary."""
    return None if arguments else {}


_TENSORS: Mapping[str, Callable[[tuple[Any, ...]], Tensor | None]] = {
    "torch._utils._rebuild_tensor": partial(_tensor, 1),
    "torch._utils._rebuild_tensor_v2": partial(_tensor, 2),
    "torch._utils._rebuild_tensor_v3": partial(_tensor, 3),
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
_CALLS: Mapping[str, Callable[[tuple[Any, ...]], object]] = {
    **_TENSORS,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": size,
    "collections.OrderedDict": ordered_dict,
}
TENSORS = Vocabulary(
    DTYPES, _CALLS, (*STORAGES, *TYPES), (), find_storage, "tensors", most_instructions=2**22
)
"""Globals that `torch.save` names. A tensor takes about 30 instructions; ten thousand take 300,000."""
