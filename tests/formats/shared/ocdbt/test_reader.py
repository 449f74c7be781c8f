"""The index of OCDBT databases, against what TensorStore itself reads from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.ocdbt.reader import Database, begin_reading, store_message
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.heavy import ts
from tests.support.reading import read


def database(directory: Path, values: dict[bytes, bytes], **config: Any) -> None:
    base = {"driver": "file", "path": f"{directory}/"}
    spec = {"driver": "ocdbt", "base": base, "config": config}
    store = ts.KvStore.open(spec, context=ts.Context()).result()
    transaction = ts.Transaction(atomic=True)
    for key, value in values.items():
        store.with_transaction(transaction)[key] = value
    transaction.commit_async().result()


@pytest.mark.parametrize(
    ("node_bytes", "compression"),
    [
        (100_000_000, {"id": "zstd"}),  # one node, as Orbax writes it
        (20_000, {"id": "zstd"}),  # two levels
        (2_000, None),  # many levels
    ],
)
def test_every_value_is_located(node_bytes: int, compression: object, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = {f"a/{i % 7}/{i}\u00e9".encode(): random.bytes(50 if i % 5 else 300) for i in range(2000)}
    config = {"max_decoded_node_bytes": node_bytes, "max_inline_value_bytes": 100, "compression": compression}
    database(tmp_path, values, **config)
    index = begin_reading(str(tmp_path))()
    assert set(index.entries) == set(values)
    for key, value in values.items():
        chunk = index.locate(key)
        if len(value) == 50:
            assert (chunk.inline, chunk.file) == (value, "")
        else:
            with open(tmp_path / chunk.file, "rb") as file:
                file.seek(chunk.offset)
                assert file.read(chunk.length) == value
    files = [chunk.file for key in values if (chunk := index.locate(key)) is not None and chunk.file]
    assert len({id(file) for file in files}) == len(set(files))  # one string for all chunks of a file
    some = [*list(values)[:10], b"absent"]
    assert {key: index.value(key) for key in some} == {key: values.get(key) for key in some}
    assert index.locate(b"absent") is None


def test_the_newest_version_counts(tmp_path: Path) -> None:
    for i in range(20):  # more versions than the manifest holds itself
        database(tmp_path, {b"key": str(i).encode()})
    index = begin_reading(str(tmp_path))()
    assert index.entries == {b"key": b"19"}


def test_flipped_bits_in_manifest_or_node(tmp_path: Path) -> None:
    database(tmp_path, {f"{i:03d}".encode(): b"x" * 60 for i in range(200)})
    files = [tmp_path / "manifest.ocdbt", *sorted((tmp_path / "d").iterdir())]
    for file in files:
        whole = file.read_bytes()
        for place in np.random.default_rng(0).integers(0, 8 * len(whole), 40):
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << (place % 8)
            file.write_bytes(damaged)
            with pytest.raises(SourceError):
                begin_reading(str(tmp_path))()
        file.write_bytes(whole)
    assert len(begin_reading(str(tmp_path))().entries) == 200


@pytest.mark.parametrize("path", ["..%2Fx", "d%2F..%2F..%2Fx", "%2Fetc%2Fpasswd", "", "a%00b"])
def test_a_value_outside_the_database_is_refused(path: str, tmp_path: Path) -> None:
    index = Database(str(tmp_path), {b"k": f"value:{path}::0:1"})
    for read_value in (index.locate, index.value):
        with pytest.raises(SourceError, match="which is not below it"):
            read_value(b"k")


def test_a_value_that_claims_more_than_its_file_holds(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"xyz")
    index = Database(str(tmp_path), {b"k": "value::d:1:2", b"l": f"value::d:1:{2**60}"})
    assert index.value(b"k") == b"yz"
    with pytest.raises(SourceError, match="d ends at byte 3"):
        index.value(b"l")


def test_metadata_too_large_to_be_inline(tmp_path: Path) -> None:
    path = tmp_path / "c"
    arrays = {"x": np.arange(4.0), "y": np.arange(6).reshape(2, 3)}
    checkpoints.save_pytree(path, arrays)
    index = begin_reading(str(path))()
    values = {key: index.value(key) for key in index.entries}
    (path / "manifest.ocdbt").unlink()
    database(path, values, max_inline_value_bytes=1)
    assert isinstance(begin_reading(str(path))().entries[b"x/.zarray"], str)  # a location, not the text
    assert_same(read(path), arrays)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'DATA_LOSS: Error reading "w/c/0/0" in version v1 of OCDBT database at local file "/x/": Digest '
            "mismatch, stored digest is 0x24ef2449 but computed digest is 0x7b0ec3dd [gl_status=1]",
            '"w/c/0/0": Digest mismatch, stored digest is 0x24ef2449 but computed digest is 0x7b0ec3dd',
        ),
        (
            'DATA_LOSS: Error reading "k" in OCDBT database at local file "/x/": Error reading Byte range '
            '[1, 9) of local file "/x/d/b7": Error decoding b-tree node: Expected more; at byte 4',
            '"/x/d/b7": Error decoding b-tree node: Expected more; at byte 4',
        ),
        ('Error parsing member "chunks": bad', 'Error parsing member "chunks": bad'),
        ("plain: text", "plain: text"),
    ],
)
def test_what_tensorstore_says_is_cut_to_the_reason(text: str, reason: str) -> None:
    assert store_message(ValueError(text)) == reason
