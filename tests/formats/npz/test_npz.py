"""`.npz` in and out, against NumPy."""

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output, Source
from ckpt_surgery.formats.npz import FORMAT
from ckpt_surgery.formats.opening import encoder, open_sink, open_source
from ckpt_surgery.formats.registry import SinkOptions
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.conformance import NAMES, Lie, random_regions
from tests.support.counting import lengths_read
from tests.support.effort import examples
from tests.support.reading import values
from tests.support.strategies import Damages, damaged, damages
from tests.support.writing import Arrays, Processes, leaf_of, write_all

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
NUL = "nul\0byte"
"""zipfile, and so NumPy, cuts names off there."""


def saved(path: Path, arrays: Mapping[str, Any], compressed: bool = False) -> Path:
    """As NumPy writes it."""
    file = path.with_name(path.name + ".npz")
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file


def loaded(file: Path) -> dict[str, np.ndarray]:
    """As NumPy reads it; two untyped bytes are how it keeps bfloat16."""
    with np.load(file) as found:
        arrays = {name: found[name] for name in found.files}
    return {n: v.view(ml_dtypes.bfloat16) if v.dtype == "V2" else v for n, v in arrays.items()}


def opened(path: Path) -> Source:
    return open_source(os.fspath(path), "npz")


def npy(descr: str, shape: str, data: bytes = b"", order: str = "False", version: int = 1) -> bytes:
    """A `.npy` file that says what it is told to say."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode("latin-1")
    return npy_of(text, data, version)


def npy_of(text: bytes, data: bytes = b"", version: int = 1) -> bytes:
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def zip_bytes(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return written.getvalue()


def zipped(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    path.write_bytes(zip_bytes(files, method))
    return path


def lie(reason: str, says: str, data: bytes, name: str = "x.npy") -> Lie:
    """One odd member among others."""
    fine = npy("'<f4'", "(2,)", bytes(8))
    return Lie(reason, lambda d: zipped(d / "x.npz", {"a.npy": fine, name: data, "z.npy": fine}), says)


LIES = (
    lie("a member that is no .npy file", "`notes.txt` is not a .npy file", b"text", "notes.txt"),
    lie("a member without the magic", r"x\.npy: it does not begin as", b"NUMPY" * 30),
    lie("a member that ends in its header", "its header has 68 bytes, of 60", npy("'<f4'", "(2,)")[:60]),
    lie("a header longer than is allowed", "10000 are the limit", npy_of(b" " * 20_000, b"", 2)),
    lie("a later version", "version 4.0", npy("'<f4'", "(2,)", bytes(8), version=4)),
    lie("a type without an order", "`x`: it has the unknown type 'f4'", npy("'f4'", "(2,)", bytes(8))),
    lie("a header that is not Python", "not a dictionary of", npy_of(b"{'descr': }")),
    lie("a header that is code", "not a dictionary of", npy_of(b"__import__('os').abort()")),
    lie("a header that nests deeply", "not a dictionary of", npy_of(b"[" * 9000)),
    lie("a header without an order", "not a dictionary of", npy_of(b"{'descr': '<f4', 'shape': (2,)}")),
    lie("an order that is a number", "not a dictionary of", npy("'<f4'", "(2,)", bytes(8), order="0")),
    lie("a negative length", "not a dictionary of", npy("'<f4'", "(-2,)", bytes(8))),
    lie("a length that is a truth", "not a dictionary of", npy("'<f4'", "(True, 2)", bytes(8))),
    lie("a length of ten thousand digits", "not a dictionary of", npy("'<f4'", f"({'9' * 9000},)")),
    lie("a product that overflows", "beyond all memory", npy("'<f4'", "(4294967296, 4294967296)")),
    lie("too many axes", "33 axes", npy("'<u1'", f"({'1, ' * 33})", b"a")),
    lie("fewer bytes than the shape needs", r"float32\[3\], which takes 12 bytes, and 8", npy(
        "'<f4'", "(3,)", bytes(8))),
    lie("gigabytes that are not there", "takes 4294967296 bytes, and 8", npy(
        "'<f4'", "(1073741824,)", bytes(8))),
    lie("a truth that is neither 0 nor 1", "`x`: .* has the byte 2", npy("'|b1'", "(3,)", b"\0\1\2")),
    lie("a pickle", "`x`: it is an array of Python objects, a pickle", npy("'|O'", "(1,)", b"\x80\4N.")),
    lie("float8_e5m2", "`x`: it is stored as single bytes without", npy("'<f1'", "(1,)", bytes(1))),
    lie("bfloat16 of the other order", "`x`: it has the unknown type", npy("'>V2'", "(1,)", bytes(2))),
    lie("records as text", "`x`: it has the unknown type '<f4,<f4'", npy("'<f4,<f4'", "(1,)", bytes(8))),
    lie("a string longer than the member", "a string of 40 bytes, and 4", npy("'<U10'", "()", bytes(4))),
    lie("a string that is no Unicode", "not valid Unicode", npy("'<U1'", "()", b"\0\xd8\0\0")),
)  # fmt: skip


class TestStored(Processes, conformance.Writing):
    """Members that lie in the archive as they are."""

    format = "npz"
    dtypes = DTYPES
    names = tuple(name for name in NAMES if name != NUL)
    refused_names = (NUL,)
    refused_kinds = (LeafKind.PRNG_KEY,)
    lies = LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(path, arrays)

    def load(self, path: Path) -> dict[str, np.ndarray]:
        assert [file.name for file in path.iterdir()] == ["checkpoint.npz"]
        with zipfile.ZipFile(path / "checkpoint.npz") as file:
            assert file.testzip() is None
        return loaded(path / "checkpoint.npz")


class TestDeflated(conformance.Reading):
    """Members that are streams."""

    format = "npz"
    dtypes = DTYPES
    names = TestStored.names
    lies = LIES[:1]

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(path, arrays, compressed=True)

    def test_manifests_cover_the_array(self, saved: Path) -> None:
        """There are none: the bytes are nowhere."""
        assert [leaf.manifest for leaf in self.open(saved).leaves().values()] == [None] * len(self.sample())

    def test_manifests_point_at_the_bytes(self, saved: Path) -> None:
        self.test_manifests_cover_the_array(saved)


# --- what arrays look like --------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i2", ">c8", ">c16", "|b1", ">u8", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (6, 5, 4)])
def test_orders_of_axes_and_bytes(
    shape: tuple[int, ...], dtype: str, order: Any, compressed: bool, tmp_path: Path
) -> None:
    native = np.dtype(getattr(ml_dtypes, dtype, dtype)).newbyteorder("=")
    value = array(shape, native.name)
    stored = np.array(value, np.dtype(getattr(ml_dtypes, dtype, dtype)), order=order)
    source = opened(saved(tmp_path / "x", {"before": np.arange(3), "x": stored}, compressed))
    for region in random_regions(shape, 20):
        assert same(source.read(source.leaves()["x"], region), value[region.slices]), region


def test_the_manifest_of_an_array_in_fortran_order(tmp_path: Path) -> None:
    value = np.asfortranarray(array((4, 5, 6), "float32"))
    path = saved(tmp_path / "x", {"x": value, "big": value.astype(">f4", order="F")})
    x, big = (leaf.manifest for leaf in opened(path).leaves().values())
    assert (x.codec.order, x.codec.raw, big.codec.order, big.codec.raw) == ("F", True, "F", False)
    (chunk,) = x.chunks.values()
    assert path.read_bytes()[chunk.offset :][: chunk.length] == value.tobytes("F")


def test_headers_of_other_programs(tmp_path: Path) -> None:
    """Python 2's long integers; other orders and spaces; a header of its own length."""
    texts = {
        "old.npy": b"{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 1L), }",
        "dense.npy": b"{'shape':(2,1),'fortran_order':False,'descr':\"<i4\"}",
        "long.npy": b"{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1)}" + b" " * 5000 + b"\n",
    }
    files = {name: npy_of(text, b"\1\0\0\0\2\0\0\0") for name, text in texts.items()}
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        found = values(opened(zipped(tmp_path / "x.npz", files, method)))
        assert {name: value.tolist() for name, value in found.items()} == {
            name: [[1], [2]] for name in ("old", "dense", "long")
        }


def test_a_deflated_string_after_a_short_header_is_read_forwards(tmp_path: Path) -> None:
    """NumPy pads headers, other programs do not: the string begins in the bytes that are read with it."""
    for text in ("ab", "x" * 500):
        data = {"x.npy": npy(f"'<U{len(text)}'", "()", text.encode("utf-32-le"))}
        path = zipped(tmp_path / "x.npz", data, zipfile.ZIP_DEFLATED)
        assert values(opened(path)) == {"x": text} == {"x": loaded(path)["x"].item()}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_single_string_is_a_string(compressed: bool, tmp_path: Path) -> None:
    texts = {"name": "big_vision é 🙂", "empty": "", "big": "x" * 5000}
    arrays = {**texts, "other": np.array("wörd", ">U9"), "x": np.ones(3)}
    leaves = opened(saved(tmp_path / "x", arrays, compressed)).leaves()
    assert {t: leaf.string for t, leaf in leaves.items() if leaf.kind is LeafKind.STRING} == {
        **texts,
        "other": "wörd",
    }
    assert [leaf.spec for leaf in leaves.values() if leaf.kind is LeafKind.STRING] == [None] * 4


@pytest.mark.parametrize("compressed", [False, True])
def test_what_cannot_be_read_does_not_hide_the_rest(compressed: bool, tmp_path: Path) -> None:
    arrays = {
        "objects": (np.array([{}, None], object), "object", "an array of Python objects, a pickle"),
        "words": (np.array([["abc", "b"], ["", "ö"]]), "str96", "an array of strings"),
        "bytes": (np.array([b"abc", b"d"]), "bytes24", "an array of byte strings"),
        "dates": (np.array(["2020-01-01", "NaT"], ">M8[25D]"), "datetime64[25D]", "an array of dates"),
        "records": (np.array([(1, "a", [1.5, 2])], "i2,U1,(2,)f8"), "void8", "an array of records"),
        "none": (np.zeros((0, 3), "U5"), "str160", "an array of strings"),
        "untyped": (np.zeros(3, "V3"), "void24", "an array of untyped"),
        "narrow": (np.ones(3, ml_dtypes.float8_e4m3fn), "void8", "stored as single bytes without"),
        "x": (array((2, 3), "float32"), "float32", ""),
    }
    source = opened(saved(tmp_path / "x", {name: value for name, (value, *_) in arrays.items()}, compressed))
    assert list(source.leaves()) == list(arrays)
    for (value, dtype, what), leaf in zip(arrays.values(), source.leaves().values(), strict=True):
        assert (leaf.spec.dtype.name, leaf.spec.shape) == (dtype, value.shape)
        whole = Region.whole(value.shape)
        if not what:
            assert same(source.read(leaf, whole), value)
            continue
        assert leaf.manifest is None
        assert leaf.unreadable is not None
        with pytest.raises(SourceError, match=f"`{leaf.key.text}`: it is {what}"):
            source.read(leaf, whole)


# --- streams, checksums -----------------------------------------------------------------------------------


def test_going_on_in_a_stream_does_not_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = array((600, 500), "float32")
    source = opened(saved(tmp_path / "x", {"x": value}, compressed=True))
    leaf = source.leaves()["x"]
    taken = lengths_read(monkeypatch)
    for start in range(0, 600, 10):
        region = Region((start, 0), (start + 10, 500))
        assert same(source.read(leaf, region), value[region.slices])
    assert 0 < sum(taken) < 2 * (tmp_path / "x.npz").stat().st_size


@pytest.mark.parametrize("compressed", [False, True])
def test_a_flipped_bit_is_seen_by_the_checksum(compressed: bool, tmp_path: Path) -> None:
    value = np.random.default_rng(0).integers(0, 256, (600, 500)).astype(np.uint8)
    path = saved(tmp_path / "x", {"x": value}, compressed)
    data = bytearray(path.read_bytes())
    data[200_000] ^= 1
    path.write_bytes(data)
    source = opened(path)
    with pytest.raises(SourceError, match=r"`x`: .*(CRC-32|inflated|should have)"):
        source.read(source.leaves()["x"], Region.whole((600, 500)))


# --- which file -------------------------------------------------------------------------------------------

ONE = npy("'<f4'", "(2,)", bytes(8))


def test_detection_is_by_content(tmp_path: Path) -> None:
    whole, pickled = zip_bytes({"a.npy": ONE}), zip_bytes({"archive/data.pkl": b""})
    known = {"a.npz": whole, "a": whole, "b.npz": zip_bytes({}), "c.npz": b""}
    known |= {"d.npz": whole[:50], "e.npz": whole[:32]}  # cut off, and within the first name
    unknown = {"f.npz": pickled, "f.pt": pickled, "g.zip": zip_bytes({}), "x.npy": ONE, "x": b""}
    for name, data in (known | unknown).items():
        (tmp_path / name).write_bytes(data)
        assert FORMAT.recognizes(tmp_path / name) == (name in known), name
    assert not FORMAT.recognizes(tmp_path / "missing.npz")


def test_a_directory_with_one_file(tmp_path: Path) -> None:
    saved(tmp_path / "x", {"a": np.ones(3)})
    assert FORMAT.recognizes(tmp_path)
    assert list(opened(tmp_path).leaves()) == ["a"]
    (tmp_path / "_METADATA").write_text("{}")
    assert not FORMAT.recognizes(tmp_path)
    assert list(opened(tmp_path).leaves()) == ["a"]
    saved(tmp_path / "y", {"a": np.ones(3)})
    with pytest.raises(SourceError, match=r"holds 2 \.npz files: x\.npz, y\.npz"):
        opened(tmp_path)


# --- writing ----------------------------------------------------------------------------------------------


def test_strings_go_round(tmp_path: Path) -> None:
    texts = {"a": "text", "b": "", "c/d": "é λ 🙂\n", "e": "inner\0nul"}
    outputs = [Output(Leaf(Key.parse(k), LeafKind.STRING, string=v), ()) for k, v in texts.items()]
    assert encoder("npz", SinkOptions()).unsupported([output.leaf for output in outputs]) == []
    write_all(open_sink("npz", tmp_path, SinkOptions(), outputs), {})
    assert {name: str(v) for name, v in loaded(tmp_path / "checkpoint.npz").items()} == texts
    leaves = opened(tmp_path).leaves()
    assert {text: leaf.string for text, leaf in leaves.items()} == texts
    assert {leaf.kind for leaf in leaves.values()} == {LeafKind.STRING}


def test_what_would_not_come_back_is_refused() -> None:
    texts = ("ends\0", "lone\ud800", "x" * 2**20)
    for leaves, says in (
        *(([Leaf(Key.parse("a/b"), LeafKind.STRING, string=text)], "`a/b`") for text in texts),
        ([leaf_of("x.npy", np.ones(2)), leaf_of("x", np.ones(2))], "`x.npy` could not be told from `x`"),
        ([leaf_of("x" * 70_000, np.ones(2))], "has 70004 bytes, too many for a name"),
    ):
        (told,) = encoder("npz", SinkOptions()).unsupported(leaves)
        assert says in told
        assert len(told) < 1000


def test_wide_numbers_where_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As beyond 4 GiB and 65535 arrays, with lower limits."""
    import ckpt_surgery.formats.shared.zip.writing as module

    arrays = {f"x{i}": array((20 * i + 1,), "uint8", i) for i in range(20)}
    monkeypatch.setattr(module, "WIDE_FROM", 400)
    monkeypatch.setattr(module, "MOST_ENTRIES", 20)
    path = TestStored().write(arrays, tmp_path / "x") / "checkpoint.npz"
    data = path.read_bytes()
    assert data.count(b"PK\6\6") == data.count(b"PK\6\7") == 1
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert {info.extract_version for info in file.infolist()} == {20, 45}
    assert_same(loaded(path), arrays)
    assert_same(values(opened(path)), arrays)


def test_metadata_of_any_form(tmp_path: Path) -> None:
    metadata = {"a": {"b": [1, 2.5, None, True]}, "end": "PK\x05\x06"}
    write_all(open_sink("npz", tmp_path, SinkOptions(metadata=metadata), []), {})
    assert opened(tmp_path).metadata == metadata
    with pytest.raises(UsageError, match=r"takes 70008 bytes; an \.npz file holds 65535"):
        encoder("npz", SinkOptions(metadata={"a": "x" * 70_000}))


@pytest.mark.parametrize("comment", [b"a word", b"[1]", b"{", b"[" * 60_000, b"\xff"])
def test_comments_of_others_are_no_metadata(comment: bytes, tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.npz", {"a.npy": ONE})
    with zipfile.ZipFile(path, "a") as file:
        file.comment = comment
    assert opened(path).metadata == {}


PLAIN = npy("'<u2'", "(3, 2)", bytes(range(12)))
HEADERS = b"0123456789'\"[]{}(),:<>|=LVUOSbfi \0\xff"
"""Bytes that mean something in a header, and two that do not."""


@examples(150)
@given(damages=damages(79, written=HEADERS))
def test_whatever_is_read_from_damaged_headers_numpy_reads_too(
    damages: Damages, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Overwritten bytes: a refusal, or exactly what NumPy finds. Only that may be more lenient."""
    path = zipped(tmp_path_factory.getbasetemp() / "damaged.npz", {"x.npy": damaged(PLAIN, damages)})
    try:
        source = opened(path)
        texts = {text: leaf.string for text, leaf in source.leaves().items() if leaf.string is not None}
        found = {} if texts else values(source)
    except SourceError:
        return
    wanted = loaded(path)
    if texts:
        assert texts == {name: str(value) for name, value in wanted.items()}
    else:
        assert_same(found, {name: v.astype(v.dtype.newbyteorder("=")) for name, v in wanted.items()})
