"""The parts of a tensor bundle's reader: Snappy, tables, ordered codes; and indexes that lie."""

import contextlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.formats.tensorflow.index import fields, part_key
from ckpt_surgery.formats.tensorflow.table import decompress, table_entries
from ckpt_surgery.storage.reading import opened
from tests.formats.bounds import bounded
from tests.formats.tensorflow import bundles
from tests.formats.tensorflow.bundles import Piece, bundle, number
from tests.support.arrays import array
from tests.support.comparing import assert_same
from tests.support.conformance import SLACK_BYTES, allowance
from tests.support.effort import examples
from tests.support.reading import values
from tests.support.strategies import damaged

# --- Snappy -----------------------------------------------------------------------------------------------


def test_what_snappy_compressed() -> None:
    for data in (
        b"a",
        b"a" * 100_000,  # copies that overlap what they make
        b"abcdefg" * 10_000,
        os.urandom(100_000),  # literals with lengths of several bytes
        b"".join(b"layer_%03d/mlp/wi/kernel" % i for i in range(5000)),
        np.arange(50_000, dtype=np.int32).tobytes(),
    ):
        assert decompress(bundles.compressed(data)) == data


@pytest.mark.parametrize(
    ("stream", "data"),
    [
        (b"\x03\x08abc", b"abc"),
        (b"\x03\xf0\x02abc", b"abc"),  # a length in one byte of its own
        (b"\x03\xf4\x02\x00abc", b"abc"),
        (b"\x03\xf8\x02\x00\x00abc", b"abc"),
        (b"\x03\xfc\x02\x00\x00\x00abc", b"abc"),
        (b"\x08\x08abc\x05\x03", b"abcabcab"),  # 5 bytes from 3 before: they overlap
        (b"\x05\x04ab\x0a\x02\x00", b"ababa"),  # an offset of two bytes
        (b"\x05\x04ab\x0b\x02\x00\x00\x00", b"ababa"),  # and of four
    ],
)
def test_every_kind_of_tag(stream: bytes, data: bytes) -> None:
    assert decompress(stream) == data


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"", "no end"),
        (b"\xff" * 10, "no end"),
        (b"\xff\xff\xff\xff\x0f\x00a", "claim to be 4294967295"),
        (b"\x03\x08ab", "wrong before its byte"),  # a literal that ends early
        (b"\x02\x08abc", "wrong before its byte"),  # more than announced
        (b"\x04\x08abc", "3 bytes were decompressed where 4"),
        (b"\x08\x08abc\x05\x04", "wrong before its byte"),  # from before the beginning
        (b"\x08\x08abc\x05\x00", "from nowhere"),
        (b"\x08\x08abc\x05", "ends within a tag"),
        (b"\x08\x08abc\x06\x01", "ends within a tag"),
        (b"\x08\xf4\x01", "ends within a tag"),
        (b"\x08\xfc\xff\xff\xff\xffabc", "wrong before its byte"),
    ],
)
def test_streams_that_are_no_snappy(stream: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        decompress(stream)


@examples(120)
@given(stream=st.binary(max_size=60))
def test_any_stream_is_bounded(stream: bytes) -> None:
    with bounded(SLACK_BYTES), contextlib.suppress(SourceError):
        assert len(decompress(stream)) <= 22 * len(stream)


@examples(120)
@given(message=st.binary(max_size=40))
def test_messages_are_read_as_protobuf_reads_them(message: bytes) -> None:
    """What protobuf's own parser takes, with each field unknown, and nothing that it refuses."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    try:
        values = fields(message)
    except SourceError:
        return
    try:
        theirs = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return  # it is stricter about the numbers of fields
    named: dict[int, list[int | bytes]] = {}
    for field in theirs:
        named.setdefault(field.field_number, []).append(field.data)
    assert values == named


@pytest.mark.parametrize("start", [0, 1, 63, 64, 8191, 8192, 2**20, 2**31, 2**41, 2**55, 2**61])
@pytest.mark.parametrize("length", [1, 64, 9000])
@pytest.mark.parametrize("name", ["a/b", "é", "nul\0byte", "x" * 300])
def test_keys_of_parts_are_those_of_tensorflow(name: str, length: int, start: int, tmp_path: Path) -> None:
    value = np.zeros((length, 2), np.uint8)
    piece = Piece(name, value, f"{start + length + 1} 2 {start},{length}:-")
    bundles.save_pieces(tmp_path / "x", [piece])
    with opened(os.fspath(tmp_path / "x.index")) as file:
        keys = [key for key, _ in table_entries(file)]
    assert keys == [b"", part_key(name, [(start, length), (0, -1)]), name.encode()]


def test_tensorflow_reads_an_index_in_snappy_blocks_and_so_do_we(tmp_path: Path) -> None:
    """Of an index that TensorFlow wrote. It leaves blocks raw nowadays; in old checkpoints they are not."""
    arrays = {f"layer_{i:03}/kernel": array((3, 4), "float32", i) for i in range(200)}
    prefix = bundles.save_pieces(tmp_path / "x", [Piece(*item) for item in arrays.items()])
    bundles.compress_index(prefix)
    assert_same(values(open_source(os.fspath(prefix))), bundles.load(prefix))
    assert_same(bundles.load(prefix), arrays)


A, B = (b"a", b"1"), (b"b", b"2")
ONE, TWO = bundles.block([A]), bundles.block([B])


def long_keys(count: int) -> bytes:
    """Each key has 60,000 bytes, of which one is its own."""
    first = b"\0" + bundles.varint(60_000) + b"\0" + b"k" * 60_000
    rest = (bundles.varint(60_000 + i) + b"\x01\0" + b"k" for i in range(count))
    return first + b"".join(rest) + struct.pack("<II", 0, 1)


TABLES: Sequence[tuple[str, bytes, str]] = (
    ("nothing", b"", "0 bytes do not end"),
    ("a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "LFS"),
    ("a footer alone", bundles.footer(bundles.handle(0, 0)), "ends at byte 5 of 0"),
    ("an index beyond the file", bundles.footer(bundles.handle(2**40, 2**40)), "ends at byte 2199023255557"),
    ("handles without end", b"\xff" * 40 + bundles.MAGIC, "no end"),
    ("a wrong checksum", damaged(bundles.table([(ONE, 0)]), [(3, 9)]), "checksum"),
    ("a compression unknown here", bundles.table([(ONE, 4)]), "unknown compression 4"),
    ("a block that is no Snappy", bundles.table([(b"\x05\x01", 1)]), "ends within a tag"),
    ("a bomb", bundles.table([(b"\xff\xff\xff\xff\x0f\x00a", 1)]), "claim to be 4294967295"),
    ("a block without a trailer of its own", bundles.table([(b"", 0)]), "has 0 restarts"),
    ("more restarts than bytes", bundles.table([(struct.pack("<I", 2**30), 0)]), "1073741824 restarts"),
    ("a key that shares too much", bundles.table([(b"\x05\x01\x00a" + ONE[-8:], 0)]), "extends beyond it"),
    ("keys out of order", bundles.table([(bundles.block([B, A]), 0)]), "out of order"),
    ("a block twice", bundles.table([(ONE, 0)], [bundles.handle(0, len(ONE))] * 2), "table overlap"),
    ("a thousand times no block", bundles.table([(ONE, 0)], [b"\0\0"] * 1000), "restarts|overlap|checksum"),
    ("keys of four gigabytes", bundles.table([(long_keys(60_000), 0)]), "beyond its own size"),
)


@pytest.mark.parametrize(("data", "says"), [row[1:] for row in TABLES], ids=[row[0] for row in TABLES])
def test_tables_that_lie(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=says), bounded(allowance(path)), opened(os.fspath(path)) as file:
        list(table_entries(file))


FIELDS = (
    *(number(1, 4), number(1, 1), number(3, 1), number(4, 1), number(5, 2), number(5, 2**63)),
    *(bundles.nested(2, bundles.shape(2)), bundles.nested(2, bundles.shape(2**40))),
    *(bundles.slices((0, 1)), b"\x12\x02\x12\x7f"),
)


@examples(60)
@given(value=st.binary(max_size=30) | st.lists(st.sampled_from(FIELDS), max_size=6).map(b"".join))
def test_any_entry_is_a_typed_error_or_an_array(
    value: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Behind right checksums, too."""
    directory = bundle(tmp_path_factory.mktemp("entry"), [(b"a", value)], b"abcdefgh")
    with bounded(allowance(directory)):
        try:
            found = values(open_source(os.fspath(directory), "tensorflow"))
        except SourceError as error:
            assert len(str(error)) < 2000
            return
    spec = ArraySpec(found["a"].shape, found["a"].dtype)
    assert spec.nbytes <= 8
