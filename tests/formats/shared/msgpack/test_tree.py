"""Walking MessagePack documents, against the msgpack package and flax."""

import struct
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from flax import serialization
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.shared.boxes import Boxes
from ckpt_surgery.formats.shared.msgpack.source import stored_array
from ckpt_surgery.formats.shared.msgpack.tree import (
    CHUNKED,
    MOST_DEPTH,
    ArrayAt,
    BytesAt,
    Node,
    first_path,
    has_t5x_root,
    read_tree,
    read_value,
)
from ckpt_surgery.storage.reading import opened
from tests.formats.bounds import bounded
from tests.support.arrays import array
from tests.support.conformance import random_regions
from tests.support.effort import examples
from tests.support.strategies import Damages, damaged, damages, documents, shapes, unicode


def tree_of(path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    with opened(str(path)) as file:
        return read_tree(file)


def packed_array(shape: Any, dtype: Any, data: Any, code: int = 1) -> msgpack.ExtType:
    """An array's extension with any contents."""
    return msgpack.ExtType(code, msgpack.packb((shape, dtype, data)))


def one(value: Any) -> bytes:
    """A document with one leaf, `a`."""
    packed: bytes = msgpack.packb({"a": value})
    return packed


def chunked(shape: Any, chunks: Any) -> bytes:
    return one({CHUNKED: True, "shape": shape, "chunks": chunks})


PIECE = packed_array([2], "uint8", b"ab")

LIES = (
    ("a number", "which Flax does not use", one(msgpack.ExtType(7, b"ab"))),
    ("a byte that begins nothing", "0xc1 begins nothing", b"\x81\xa1a\xc1"),
    ("bytes after the document", "1 more bytes follow", one(1) + b"\0"),
    ("a map of four billion", "4294967295 members", b"\xdf\xff\xff\xff\xff"),
    ("a map of one too many", "1 bytes belong here, and 0 are left", b"\x82\xa1a\xa1a\xa1b"),
    ("a string of four gigabytes", "4294967295 bytes", b"\x81\xa1a\xdb\xff\xff\xff\xffxy"),
    ("an extension of four gigabytes", "4294967295 bytes", b"\x81\xa1a\xc9\xff\xff\xff\xff\x01xy"),
    ("an extension of one byte too many", "one more than are left", b"\x81\xa1a\xc7\x03\x01\x93\x90"),
    ("a string that is not UTF-8", "not valid UTF-8", b"\x81\xa1a\xa1\xff"),
    ("a key that is a truth", "a key is True", b"\x81\xc3\xc0"),
    ("a key that is a map", "a key is a map", b"\x81\x80\xc0"),
    ("a key twice", "`a` .*comes twice", b"\x82\xa1a\xc0\xa1a\xc0"),
    ("maps that nest deeply", "nested more than 100 deep", b"\x81\xa1a" * 5000 + b"\xc0"),
    ("a type that does not exist", "type `float33`", one(packed_array([2], "float33", b"ab"))),
    ("a type that is a number", "where a string belongs", one(packed_array([2], 1, b"ab"))),
    ("a type with a long name", "type `x+`", one(packed_array([2], "x" * 5000, b"ab"))),
    ("a size that the shape does not have", "takes 3 bytes", one(packed_array([3], "uint8", b"ab"))),
    ("a product that overflows", "beyond all memory", one(packed_array([2**32, 2**32, 2], "int8", b"ab"))),
    ("a negative axis", "not all of it integers", one(packed_array([-2], "uint8", b"ab"))),
    ("an axis that is a truth", "not all numbers", one(packed_array([True, 2], "uint8", b"ab"))),
    ("a shape that is a number", "where a list belongs", one(packed_array(2, "uint8", b"ab"))),
    ("too many axes", "a list of 33", one(packed_array([1] * 33, "uint8", b"a"))),
    ("elements that are a list", "a byte string belongs", one(packed_array([2], "uint8", [1, 2]))),
    (
        "elements past the array's end",
        "are left of the array",
        b"\x81\xa1a\xc7\x0a\x01\x93\x91\x02\xa5uint8\xc4\xff" + b"x" * 300,
    ),
    ("an array of two parts", "not a list of shape", one(msgpack.ExtType(1, msgpack.packb(([2], "uint8"))))),
    ("an array with more after it", "but its contents do not", one(msgpack.ExtType(1, PIECE.data + b"\0"))),
    ("an array without anything", "bytes are left|belong here", b"\x81\xa1a\xc7\x00\x01"),
    ("a complex number of one part", "has 1 parts", one(msgpack.ExtType(2, msgpack.packb([1.0])))),
    ("a complex number of strings", "not all numbers", one(msgpack.ExtType(2, msgpack.packb(["1", "2"])))),
    ("pieces without a shape", "needs `shape`", one({CHUNKED: True, "chunks": {"0": PIECE}})),
    ("no pieces at all", "not made of arrays", chunked({"0": 0}, {})),
    ("pieces with a gap", "keys 0, 1", chunked({"0": 4}, {"0": PIECE, "2": PIECE})),
    ("pieces that are numbers", "not made of arrays", chunked({"0": 2}, {"0": 1, "1": 2})),
    ("pieces of two axes", "one axis", chunked({"0": 2}, {"0": packed_array([1, 2], "uint8", b"ab")})),
    (
        "pieces of two types",
        "one type",
        chunked({"0": 4}, {"0": PIECE, "1": packed_array([2], "int8", b"ab")}),
    ),
    ("pieces that are too few", "its pieces have 2", chunked({"0": 3}, {"0": PIECE})),
)
"""Documents that flax would refuse, or worse; what is wrong with each; how the refusal reads."""


def test_every_cut_is_refused(tmp_path: Path) -> None:
    data = serialization.to_bytes(
        {"a": {"b": array((3, 4), "float32"), "c": np.float64(2)}, "d": [1, "x", None, 2j]}
    )
    for cut in range(len(data)):
        with pytest.raises(SourceError):
            tree_of(tmp_path / "x", data[:cut])


# --- what is there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1),
        *(-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)),
        *(1.5, float("inf"), -0.0, True, False, None),
        *("", "é", "x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 65535, "x" * 65536, "🙂" * 40_000),
        *([], [1, "a", [None]], list(range(15)), list(range(16))),
        *({}, {i - 9: i for i in range(15)}, {str(i): i for i in range(16)}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_every_form_of_plain_values(value: Any, tmp_path: Path) -> None:
    found = tree_of(tmp_path / "x", msgpack.packb({"a": value}))
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


@pytest.mark.parametrize("size", [*range(20), 200, 220, 230, 240, 255, 256, 65_500, 65_530, 65_536])
def test_arrays_of_every_length(size: int, tmp_path: Path) -> None:
    """The extension and the byte string in it have four forms each, by length."""
    value = array((size,), "uint8")
    assert restored(tmp_path / "x", serialization.to_bytes({"a": value, "b": 1})) == {
        "a": plain(value),
        "b": 1,
    }


def test_elements_as_old_versions_of_msgpack_wrote_them(tmp_path: Path) -> None:
    """Without a type for byte strings."""
    old = msgpack.packb(([2], "uint8", b"ab"), use_bin_type=False)
    assert restored(tmp_path / "x", one(msgpack.ExtType(1, old))) == {"a": ("uint8", (2,), b"ab")}


def test_short_lists_and_maps_in_the_form_of_long_ones(tmp_path: Path) -> None:
    assert tree_of(tmp_path / "x", b"\xdf\0\0\0\1\xa1a\xdd\0\0\0\2\1\2") == {"a": [1, 2]}


def test_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.tree.MOST_VALUES", 200)
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.tree.MOST_TEXT_BYTES", 1000)
    assert tree_of(tmp_path / "x", msgpack.packb([0] * 199)) == [0] * 199
    assert tree_of(tmp_path / "x", one("x" * 1000)) == {"a": "x" * 1000}
    found = tree_of(tmp_path / "x", b"\x81\xa1a" * MOST_DEPTH + b"\xc0")
    for _ in range(MOST_DEPTH):
        found = found["a"]
    assert found is None
    for data, says in (
        (msgpack.packb([0] * 200), "more than 200 values"),
        (one("x" * 1001), "1001 bytes; 1000 is"),
    ):
        with pytest.raises(SourceError, match=says):
            tree_of(tmp_path / "x", data)


def test_documents_within_a_file(tmp_path: Path) -> None:
    first, second = one(1), one(packed_array([3], "uint8", b"abc"))
    (tmp_path / "x").write_bytes(b"??" + first + second + b"\xff")
    with opened(str(tmp_path / "x")) as file:
        assert read_value(file, 2, 2 + len(first) + len(second)) == ({"a": 1}, 2 + len(first))
        found, end = read_value(file, 2 + len(first), 2 + len(first) + len(second))
        assert end == 2 + len(first) + len(second)
        assert isinstance(found, dict)
        with pytest.raises(SourceError, match="are left"):
            read_value(file, 2 + len(first), end - 1)


def test_payloads_are_jumped_over(tmp_path: Path) -> None:
    """A file of 6 GiB, nearly all of it a hole."""
    length = 2**31
    inner = b"\x93\x91\xce" + struct.pack(">I", length) + b"\xa5uint8\xc6" + struct.pack(">I", length)
    head = b"\xc9" + struct.pack(">I", len(inner) + length) + b"\x01" + inner
    with open(tmp_path / "x", "wb") as out:
        out.write(b"\x83")
        for name in b"abc":
            out.write(b"\xa1" + bytes((name,)) + head)
            out.truncate(out.tell() + length)
            out.seek(0, 2)
    with opened(str(tmp_path / "x")) as file, bounded(2**20):
        found = read_tree(file)
    assert list(found) == ["a", "b", "c"]
    assert {node.spec.nbytes for node in found.values() if isinstance(node, ArrayAt)} == {length}


# --- at random --------------------------------------------------------------------------------------------


def plain(value: np.ndarray) -> tuple[Any, ...]:
    return (value.dtype.name, value.shape, value.tobytes())


def restored(path: Path, data: bytes) -> Any:
    """A document with the arrays' bytes in place of their places."""

    def resolve(node: Node) -> Any:
        if isinstance(node, dict):
            return {key: resolve(member) for key, member in node.items()}
        if isinstance(node, list):
            return [resolve(member) for member in node]
        if isinstance(node, ArrayAt):
            stored = b"".join(data[piece.offset :][: piece.length] for piece in node.pieces)
            return (node.spec.dtype.name, node.spec.shape, stored)
        return data[node.offset :][: node.length] if isinstance(node, BytesAt) else node

    return resolve(tree_of(path, data))


def by_flax(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: by_flax(member) for key, member in node.items()}
    if isinstance(node, list):
        return [by_flax(member) for member in node]
    return plain(np.asarray(node)) if isinstance(node, np.ndarray | np.generic) else node


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    shape = draw(shapes(4, max_ndim=3))
    value = array(shape, draw(st.sampled_from(["float32", "bfloat16", "bool", "int4", "complex64", "uint8"])))
    return value if shape or draw(st.booleans()) else value[()]


TEXT = unicode(40).filter(lambda text: text != CHUNKED)
LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False) | TEXT | st.binary(max_size=40) | arrays()
)  # fmt: skip
TREES = st.dictionaries(
    TEXT | st.integers(-(2**63), 2**64 - 1),
    documents(LEAVES, TEXT),
    max_size=5,
)


@examples(60)
@given(tree=TREES)
def test_random_trees_are_read_as_flax_reads_them(
    tree: dict[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = msgpack.packb(tree, default=serialization._msgpack_ext_pack, strict_types=True)
    wanted = by_flax(serialization.msgpack_restore(data))
    assert restored(tmp_path_factory.getbasetemp() / "random.msgpack", data) == wanted


@examples(100)
@given(damages=damages(300, least=1))
def test_whatever_is_read_from_damaged_documents_flax_reads_too(
    damages: Damages, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tree = {"a": {"b": array((2, 3), "float32"), "c": np.float64(3)}, "d": [1, -5, "x"], "e": 2j, "f": {}}
    packed = msgpack.packb(tree, default=serialization._msgpack_ext_pack, strict_types=True)
    data = damaged(packed, damages)
    try:
        found = restored(tmp_path_factory.getbasetemp() / "damaged.msgpack", data)
    except SourceError:
        return
    assert repr(found) == repr(by_flax(serialization.msgpack_restore(data)))


# --- arrays in pieces -------------------------------------------------------------------------------------


def cut(path: Path, value: np.ndarray, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array as flax cuts it into pieces of so many bytes."""
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", nbytes)
    found = tree_of(path, serialization.to_bytes({"x": value}))
    return found["x"]


SHAPES = (
    # shape, bytes of a piece, chunks of the manifest
    ((4, 6), 96, (4, 6)),  # just not cut
    ((4, 6), 48, (2, 6)),  # pieces of two rows
    ((4, 6), 24, (1, 6)),
    ((4, 6), 12, (1, 3)),  # two pieces to a row
    ((4, 6), 40, (1, 2)),  # pieces of 10 elements: no row begins one
    ((6, 5), 80, (2, 5)),  # 4 rows, and 2: chunks of what both are made of
    ((7, 5), 80, (1, 5)),
    ((1, 1, 12), 16, (1, 1, 4)),
    ((3, 1, 4), 16, (1, 1, 4)),
    ((13,), 16, (1,)),
    ((2, 3, 4), 4, (1, 1, 1)),
    ((2, 3, 4), 2, (1, 1, 1)),  # less than an element
)


@pytest.mark.parametrize(("shape", "nbytes", "chunks"), SHAPES)
def test_manifests_of_arrays_in_pieces(
    shape: tuple[int, ...],
    nbytes: int,
    chunks: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value = array(shape, "float32")
    found = cut(tmp_path / "x", value, nbytes, monkeypatch)
    assert len(found.pieces) == -(-value.size // max(1, nbytes // 4))
    manifest = stored_array(found, str(tmp_path / "x"))
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.source.MOST_CHUNKS", 0)
    in_boxes = stored_array(found, str(tmp_path / "x"))
    assert isinstance(manifest, Manifest)
    assert isinstance(in_boxes, Boxes) == (len(found.pieces) > 1)
    assert manifest.chunk_shape == chunks
    assert manifest.complete
    assert not any(n % c for n, c in zip(shape, chunks, strict=True))
    data = (tmp_path / "x").read_bytes()
    for index, chunk in manifest.chunks.items():
        cell = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunks, strict=True))
        assert chunk.length == prod(chunks) * 4
        assert data[chunk.offset :][: chunk.length] == value[cell].tobytes()
    for region in random_regions(shape, 30):
        wanted = value[region.slices]
        assert np.array_equal(read_stored(manifest, region), wanted)
        if isinstance(in_boxes, Boxes):
            assert np.array_equal(in_boxes.read(region, {}), wanted)


def test_no_manifest_of_too_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.source.MOST_CHUNKS", 100)
    for rows, fine in ((100, True), (101, False)):
        value = array((rows, 3), "uint8")
        found = cut(tmp_path / "x", value, 15 if fine else 3 * 7, monkeypatch)
        stored = stored_array(found, str(tmp_path / "x"))
        assert isinstance(stored, Manifest) == fine
        for region in random_regions(value.shape, 10):
            read = partial(read_stored, stored) if isinstance(stored, Manifest) else stored.read
            assert np.array_equal(read(region, {}), value[region.slices])


def test_a_region_of_pieces_takes_its_own_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cut(tmp_path / "x", array((2048, 4096), "uint8"), 1_000_003, monkeypatch)
    stored = stored_array(found, str(tmp_path / "x"))
    assert isinstance(stored, Boxes)
    with bounded(3 * 2**20):
        assert stored.read(Region((100, 0), (600, 1000)), {}).shape == (500, 1000)


def test_how_a_document_begins(tmp_path: Path) -> None:
    t5x = {"version": 3, "optimizer": {"a": 1}}
    for value, path in (
        (t5x, ["version"]),
        ({"b": {"c": 1}}, ["b", "c"]),
        ({"version": 3}, ["version"]),
        ([1], None),
    ):
        (tmp_path / "x").write_bytes(msgpack.packb(value))
        with opened(str(tmp_path / "x")) as file:
            assert first_path(file) == path
            assert has_t5x_root(file) == (value == t5x)
