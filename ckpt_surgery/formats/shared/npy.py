"""The header of a `.npy` file, strictly: what array follows, and where its first element lies.

Source of the format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (magic, version,
length of the header, a Python dictionary as text; then the elements, in C or in Fortran order), and what
NumPy 2.4 writes for the types of ml_dtypes, whose names it drops.
"""

import ast
import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import DTYPES, NUMPY_NAMES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import BIG, RAW, Codec, contiguous
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.limits import MOST_BYTES, check_shape
from ckpt_surgery.storage.failures import damaged

MAGIC = b"\x93NUMPY"
"""The first bytes of every file."""
NPY_SUFFIX = ".npy"

MOST_HEADER_BYTES = 10_000
"""NumPy's limit for headers of files that are not trusted."""
MOST_STRING_BYTES = 2**20
"""Longest string, at four bytes per character as NumPy stores it: strings are read when they are listed."""
LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
"""Width of the number that gives the length of the header, by version."""

DESCRIPTIONS: Mapping[np.dtype[Any], str] = {DTYPES["bfloat16"]: "<V2"} | {
    DTYPES[name]: DTYPES[name].str for name in NUMPY_NAMES
}
"""Names in headers of the types that a `.npy` file holds. Only bfloat16 has two bytes without a name."""
_DTYPES = {description[1:]: dtype for dtype, description in DESCRIPTIONS.items()}
_TEXT = re.compile(r"[<>]U\d{1,9}")
_SIZED = re.compile(r"[<>|=]([SUV][1-9]\d{0,8}|[Mm]8(\[[\w/]{1,20}\])?)")
"""Descriptions of texts, untyped bytes, dates and time spans."""
OBJECTS: np.dtype[Any] = np.dtype("O")
UNTYPED: np.dtype[Any] = np.dtype("V1")
"""Type of arrays about which nothing is known. Its size is not 0, since sizes are divided by it."""

_NAMELESS = (
    "is stored as single bytes without a type: NumPy does not record which narrow type of ml_dtypes they are",
    "Save it in a wider type, or in another format.",
)
UNREADABLE = {
    "": ("is an array of records", "Save each of its fields as an array."),
    "O": ("is an array of Python objects, a pickle, which is never loaded", "Save its arrays by themselves."),
    "S": ("is an array of byte strings", "Save it as numbers, or leave it out."),
    "U": ("is an array of strings", "Save it as numbers, or leave it out."),
    "M": ("is an array of dates", "Save it as integers."),
    "m": ("is an array of time spans", "Save it as integers."),
    "V": ("is an array of untyped bytes", "Save it as numbers."),
    "V1": _NAMELESS,
    "f1": _NAMELESS,
}
"""Reason and remedy for arrays that no function can use, by their description or the kind in it."""


@dataclass(frozen=True, slots=True)
class NpyArray:
    """An array as the header of its `.npy` file describes it."""

    spec: ArraySpec
    """Shape and dtype. That of an array that cannot be read only tells kinds apart."""
    codec: Codec
    data: int
    """Offset of the first element, which is the length of the header."""
    header_crc: int
    """CRC-32 of everything before the first element."""
    text: str | None = None
    """The value of a single string."""
    unreadable: Unreadable | None = None


def read_npy(read: Callable[[int, int], bytes], size: int) -> NpyArray:
    """The header of a file of `size` bytes, and the text if it is a single string.

    `read`: (offset, length) → the file's bytes; it is called for one piece after another, which do not
    overlap.
    """
    begin = read(0, min(size, 128))  # all of the header of an array of few axes
    length = _header_length(begin, size)
    if length > len(begin):
        begin += read(len(begin), length - len(begin))
    head = begin[:length]
    shape, fortran, descr = _parse(head[8 + LENGTH_BYTES[head[6]] :], head[6])
    if shape == () and _TEXT.fullmatch(descr):
        nbytes = 4 * int(descr[2:])
        if nbytes > MOST_STRING_BYTES or length + nbytes != size:
            raise damaged(
                f"its header says a string of {nbytes} bytes, and {size - length} follow it; "
                f"{MOST_STRING_BYTES} are the limit"
            )
        # What was read with the header is not read again, because deflated files are read forwards.
        data = begin[length:] + read(len(begin), size - len(begin))
        try:
            text = data.decode("utf-32-be" if descr.startswith(">") else "utf-32-le").rstrip("\0")
        except UnicodeDecodeError as error:
            raise damaged("its string is not valid Unicode") from error
        spec = ArraySpec((), np.dtype("U"))
        return NpyArray(spec, Codec("raw", (), RAW), length, zlib.crc32(head), text=text)
    dtype, unreadable = _dtype(descr)
    check_shape(shape, dtype.itemsize)
    axes = tuple(range(len(shape)))
    encoding = BIG if descr.startswith(">") and dtype.itemsize > 1 else RAW
    codec = Codec("raw", axes[::-1] if fortran else axes, encoding)
    array = NpyArray(ArraySpec(shape, dtype), codec, len(head), zlib.crc32(head), unreadable=unreadable)
    known = dtype not in (OBJECTS, UNTYPED)
    end = array.data + array.spec.nbytes
    if known and end != size:
        if end < size and (begin[end:] or read(end, min(len(MAGIC), size - end))).startswith(MAGIC):
            raise SourceError(
                "it holds several arrays one after another, without names, as Equinox writes them",
                hint="Load them with the code that made them (`equinox.tree_deserialise_leaves`), and give "
                "the tree to `ckpt_surgery.apply`, which takes trees as checkpoints.",
            )
        raise damaged(
            f"its header says {array.spec}, which takes {array.spec.nbytes} bytes, "
            f"and {size - array.data} follow it"
        )
    return array


def npy_header(description: str, shape: Shape) -> bytes:
    """The header of an array in C order as NumPy writes it: the elements begin at a multiple of 64."""
    written = io.BytesIO()
    fields = {"descr": description, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, fields)
    return written.getvalue()


def npy_string(text: str) -> bytes:
    """A whole file that holds one string, as NumPy writes it."""
    return npy_header(f"<U{max(1, len(text))}", ()) + (text or "\0").encode("utf-32-le")


def _header_length(head: bytes, size: int) -> int:
    """The number of bytes before the first element."""
    if not head.startswith(MAGIC) or len(head) < 12:
        raise damaged("it does not begin as a .npy file does")
    major, minor = head[6], head[7]
    if major not in LENGTH_BYTES or minor:
        what = f"it is in version {major}.{minor} of the .npy format, which is not known"
        raise SourceError(what, hint="Save it again with a current NumPy.")
    count = LENGTH_BYTES[major]
    length = 8 + count + int.from_bytes(head[8 : 8 + count], "little")
    if length > min(size, MOST_HEADER_BYTES):
        what = f"it says that its header has {length} bytes, of {size}; {MOST_HEADER_BYTES} are the limit"
        raise damaged(what)
    return length


@lru_cache(maxsize=1024)
def _parse(header: bytes, version: int) -> tuple[Shape, bool, str]:
    """Shape, whether in Fortran order, and the description of the type in a header; empty for records."""
    try:
        text = header.decode("utf-8" if version == 3 else "latin-1")
        # Python 2 wrote long integers with an L, as in (3L, 4L).
        fields = ast.literal_eval(re.sub(r"\b(\d+)L\b", r"\1", text).strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        fields = None
    match fields:
        case {"descr": str() | list() | tuple() as kind, "fortran_order": bool(order), "shape": tuple(shape)}:
            if len(fields) == 3 and all(type(n) is int and 0 <= n <= MOST_BYTES for n in shape):
                return shape, order, kind if isinstance(kind, str) else ""
    said = shown(header[:200].decode("latin-1").strip())
    raise damaged(f"its header is not a dictionary of shape, order and type of an array: {said}")


def _dtype(descr: str) -> tuple[np.dtype[Any], Unreadable | None]:
    """The type that a description names, in native byte order; and why no function can use it, if so."""
    name = descr.lstrip("<>|=")
    if name in _DTYPES and descr[1:] == name and descr != ">V2":
        return _DTYPES[name], None
    why = None if descr == ">V2" else UNREADABLE.get(name) or UNREADABLE.get(name[:1])
    unreadable = Unreadable(
        *(why or (f"has the unknown type {shown(descr[:100])!r}", "Save it in another type."))
    )
    if name == "O":
        return OBJECTS, unreadable
    try:
        return np.dtype(descr).newbyteorder("=") if _SIZED.fullmatch(descr) else UNTYPED, unreadable
    except (ValueError, TypeError, OverflowError):
        return UNTYPED, unreadable


def leaf_of(text: str, array: NpyArray, file: str, offset: int | None) -> Leaf:
    """The leaf of an array. `offset`: where its `.npy` file begins in `file`; None where that is deflated."""
    if array.text is not None:
        return Leaf(Key.parse(text), LeafKind.STRING, string=array.text)
    manifest = None
    if offset is not None and array.unreadable is None:
        manifest = contiguous(array.spec, file, offset + array.data, array.codec)
    return Leaf(Key.parse(text), LeafKind.ARRAY, array.spec, manifest, unreadable=array.unreadable)
