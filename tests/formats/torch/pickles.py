"""Pickles written by hand, and files around them that are laid out as torch does it."""

import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.opening import open_source


@dataclass(frozen=True)
class Name:
    """A global, as GLOBAL names it."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    function: Any
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Persistent:
    value: Any


@dataclass(frozen=True)
class Raw:
    """Instructions as they are."""

    code: bytes


def code(value: Any) -> bytes:
    """The instructions that make a value."""
    match value:
        case Raw(instructions):
            return instructions
        case Name(module, name):
            return f"c{module}\n{name}\n".encode()
        case Call(function, arguments):
            return code(function) + code(arguments) + pickle.REDUCE
        case Persistent(inner):
            return code(inner) + pickle.BINPERSID
        case tuple():
            return pickle.MARK + b"".join(map(code, value)) + pickle.TUPLE
        case list():
            return pickle.EMPTY_LIST + pickle.MARK + b"".join(map(code, value)) + pickle.APPENDS
        case dict():
            return (
                pickle.EMPTY_DICT
                + pickle.MARK
                + b"".join(code(k) + code(v) for k, v in value.items())
                + pickle.SETITEMS
            )
    return pickle.dumps(value, 2)[2:-1]


def document(value: Any) -> bytes:
    return b"\x80\x02" + code(value) + pickle.STOP


USUAL = {"byteorder": b"little", "data/0": bytes(8), "version": b"3\n"}
"""Members beside the pickle."""


def archive(path: Path, pickled: bytes, members: Mapping[str, bytes] | None = None, **options: Any) -> Path:
    """A file as torch lays it out, with any pickle; `members` are named without the prefix."""
    with zipfile.ZipFile(path, "w", **options) as file:
        file.writestr("saved/data.pkl", pickled)
        for name, data in {**USUAL, **(members or {})}.items():
            file.writestr(f"saved/{name}", data)
    return path


V2, V3 = Name("torch._utils", "_rebuild_tensor_v2"), Name("torch._utils", "_rebuild_tensor_v3")
ORDERED = Call(Name("collections", "OrderedDict"), ())


def storage(kind: str = "ByteStorage", key: Any = "0", length: Any = 8, module: str = "torch") -> Persistent:
    return Persistent(("storage", Name(module, kind), key, "cpu", length))


def view(
    shape: Any, strides: Any, offset: Any = 0, stored: Any = None, rest: tuple[Any, ...] = (False, ORDERED)
) -> Call:
    """A tensor of bytes in a storage of eight."""
    return Call(V2, (storage() if stored is None else stored, offset, shape, strides, *rest))


def opened(path: Path) -> Source:
    """The file as this package opens it."""
    return open_source(os.fspath(path), "torch")
