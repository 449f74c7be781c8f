"""Headers of `.npy` files: what NumPy writes, what it would misread, and what no array may be."""

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.manifests import BIG, RAW
from ckpt_surgery.formats.shared.npy import (
    DESCRIPTIONS,
    MOST_HEADER_BYTES,
    NpyArray,
    leaf_of,
    npy_header,
    npy_string,
    read_npy,
)


def parsed(data: bytes) -> NpyArray:
    """The header of a file, which must be read forwards and not beyond its end."""
    last = 0

    def read(offset: int, length: int) -> bytes:
        nonlocal last
        assert last <= offset
        assert offset + length <= len(data)
        last = offset + length
        return data[offset:last]

    return read_npy(read, len(data))


def by_numpy(value: Any, version: tuple[int, int] | None = None) -> bytes:
    written = io.BytesIO()
    np.lib.format.write_array(written, np.asarray(value), version)
    return written.getvalue()


def file(text: str, data: bytes = b"", version: int = 1) -> bytes:
    """A file with any text as its header."""
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def header(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize(
    ("value", "permutation", "encoding"),
    [
        (np.ones((2, 3), "<f4"), (0, 1), RAW),
        (np.ones((2, 3), "<f4", order="F"), (1, 0), RAW),
        (np.ones((2, 3), ">i2"), (0, 1), BIG),
        (np.ones((2,), ">i1"), (0,), RAW),  # one byte has no order
        (np.ones((), "?"), (), RAW),
        (np.ones((0, 3), "<c8"), (0, 1), RAW),
        (np.ones((1,) * 32, "<u8"), tuple(range(32)), RAW),
    ],
    ids=["C", "F", "big", "byte", "scalar", "empty", "axes"],
)
def test_arrays_are_what_numpy_wrote(
    value: np.ndarray, permutation: tuple[int, ...], encoding: str, version: tuple[int, int]
) -> None:
    data = by_numpy(value, version)
    found = parsed(data)
    assert found.spec == ArraySpec(value.shape, value.dtype.newbyteorder("="))
    assert (found.codec.permutation, found.codec.encoding) == (permutation, encoding)
    assert found.data == len(data) - value.nbytes
    assert found.unreadable is None


@pytest.mark.parametrize("dtype", DESCRIPTIONS, ids=str)
def test_headers_are_written_as_numpy_writes_them(dtype: np.dtype[Any]) -> None:
    value = np.zeros((3, 2), dtype)
    found = npy_header(ArraySpec((3, 2), dtype))
    assert len(found) % 64 == 0
    data = found + value.tobytes()
    assert parsed(data).spec == ArraySpec((3, 2), dtype)
    assert data == by_numpy(value) or dtype == ml_dtypes.bfloat16
    assert np.load(io.BytesIO(data)).view(dtype).shape == (3, 2)


@pytest.mark.parametrize("text", ["", "a", "é λ 🙂", " x ", "x" * 1000])
def test_a_single_string_is_a_value(text: str) -> None:
    data = npy_string(text)
    assert np.load(io.BytesIO(data)).item() == text
    assert data == by_numpy(text)
    assert parsed(data).text == parsed(by_numpy(np.array(text, ">U1000"))).text == text
    assert leaf_of("a/b", parsed(data), "x", 5).string == text


def test_strings_that_are_no_text_or_too_long_are_refused() -> None:
    with pytest.raises(SourceError, match="not valid Unicode"):
        parsed(file(header("'<U1'", "()"), b"\0\xd8\0\0"))
    with pytest.raises(SourceError, match="a string of 8 bytes, and 4 follow it"):
        parsed(file(header("'<U2'", "()"), b"a\0\0\0"))
    with pytest.raises(SourceError, match="a string of 3999999996 bytes"):
        parsed(file(header("'<U999999999'", "()")))


LIES = (
    (b"", "does not begin as a .npy file"),
    (b"\x93NUMPY\1\0\0\0", "does not begin as a .npy file"),  # cut off
    (b"\x93NUMPY\1\0\0\0  ", "not a Python dictionary"),
    (b"\x93NUMPY\4\0\0\0  ", "version 4.0 of the .npy format"),
    (b"\x93NUMPY\1\1\0\0  ", "version 1.1 of the .npy format"),
    (b"\x93NUMPY\1\0\5\0{}  ", "header has 15 bytes, of 14"),
    (b"\x93NUMPY\2\0\xff\xff\xff\xff{}", "header has 4294967307 bytes, of 14"),
    (file(header() + " " * MOST_HEADER_BYTES, bytes(8)), "10000 are the limit"),
    (file(header(), bytes(7)), r"float32\[2\], which takes 8 bytes, and 7 follow it"),
    (file(header(), bytes(9)), "and 9 follow it"),
    (file(header()[:-1], bytes(8)), "not a Python dictionary"),
    (file("[" * 5000, bytes(8)), "not a Python dictionary"),
    (file("__import__('os')"), "not a Python dictionary"),
    (file("{'descr': '<f4', 'shape': (2,)}", bytes(8)), "not a dictionary of descr, fortran_order, shape"),
    (file(header(shape="[2]"), bytes(8)), "a shape that is not made of lengths"),
    (file(header(shape="(True,)"), bytes(4)), "a shape that is not made of lengths"),
    (file(header(shape="(-2,)"), bytes(8)), "a shape that is not made of lengths"),
    (file(header(order="0"), bytes(8)), "an order or a type of the wrong kind"),
    (file(header("5"), bytes(8)), "an order or a type of the wrong kind"),
    (file(header(shape="(" + "1," * 33 + ")"), bytes(4)), "has 33 axes; 32 is the limit"),
    (file(header(shape="(2**62,)"), bytes(8)), "not a Python dictionary"),
    (file(header(shape=f"({2**62},)"), bytes(8)), "beyond all memory"),
    (file(header(shape=f"(0, {2**62}, 4)")), "beyond all memory"),
)


@pytest.mark.parametrize(("data", "says"), LIES, ids=[says for _, says in LIES])
def test_headers_that_are_not_as_they_must_be_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says) as caught:
        parsed(data)
    assert len(str(caught.value)) < 500


def test_headers_of_python_2_are_read() -> None:
    assert parsed(file(header(shape="(2L, 3L)"), bytes(24))).spec.shape == (2, 3)


@pytest.mark.parametrize(
    ("descr", "size", "why", "dtype"),
    [
        ("'|O'", 5, "array of Python objects", "O"),
        ("'|S3'", 6, "array of byte strings", "S3"),
        ("'>U2'", 16, "array of strings", "U2"),
        ("'<M8[s]'", 16, "array of dates", "M8[s]"),
        ("'<m8'", 16, "array of time spans", "m8"),
        ("'|V3'", 6, "array of untyped bytes", "V3"),
        ("'|V1'", 2, "narrow type of ml_dtypes", "V1"),
        ("'<f1'", 2, "narrow type of ml_dtypes", "V1"),
        ("'<M8[x]'", 16, "array of dates", "V1"),
        ("'>V2'", 4, "has the unknown type '>V2'", "V2"),
        ("'<f2x'", 4, "has the unknown type '<f2x'", "V1"),
        ("'f4'", 8, "has the unknown type 'f4'", "V1"),  # without a byte order, NumPy writes none such
        ("[('a', '<i2'), ('b', '|O')]", 5, "array of records", "V1"),
    ],
)
def test_what_no_function_can_use_is_listed_with_the_reason(
    descr: str, size: int, why: str, dtype: str
) -> None:
    found = parsed(file(header(descr), bytes(size)))
    leaf = leaf_of("a", found, "x", 100)
    assert leaf.unreadable is not None
    assert why in leaf.unreadable.why
    assert (leaf.kind, leaf.spec, leaf.manifest) == (LeafKind.ARRAY, ArraySpec((2,), np.dtype(dtype)), None)


def test_elements_that_no_function_can_use_must_be_all_there_too() -> None:
    with pytest.raises(SourceError, match="takes 6 bytes, and 5 follow it"):
        parsed(file(header("'|S3'"), bytes(5)))


def test_leaves_say_where_elements_lie_unless_the_file_is_deflated() -> None:
    data = by_numpy(np.ones((2, 3), "<f4", order="F"))
    found = parsed(data)
    leaf = leaf_of("a/b", found, "x", 100)
    assert leaf.manifest is not None
    assert leaf.manifest.codec.order == "F"
    [chunk] = leaf.manifest.chunks.values()
    assert (chunk.file, chunk.offset, chunk.length) == ("x", 100 + found.data, 24)
    assert leaf_of("a/b", found, "x", None).manifest is None


def test_the_checksum_covers_the_header() -> None:
    """Different headers of equal meaning can be told apart."""
    one, other = file(header(), bytes(8)), file(header() + " ", bytes(8))
    assert parsed(one).spec == parsed(other).spec
    assert parsed(one).header_crc != parsed(other).header_crc


def test_elements_of_one_byte_have_no_byte_order() -> None:
    assert parsed(file(header("'>i1'"), bytes(2))).codec.encoding == RAW
