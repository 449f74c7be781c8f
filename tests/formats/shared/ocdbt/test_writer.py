"""Indexes written by this package, read by TensorStore, by stock Orbax and by our own reader."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.shared.ocdbt import writer
from ckpt_surgery.formats.shared.ocdbt.reader import begin_reading
from ckpt_surgery.formats.shared.ocdbt.writer import make_index
from tests.support import checkpoints
from tests.support.effort import examples
from tests.support.heavy import ts

TIME = 1_700_000_000_000_000_000

FOREIGN = {
    "model-00001-of-00002.safetensors": bytes(range(256)) * 40,
    "d/00000000000000000000000000000001": b"\xff\x00" * 300,
    "deep/er/ü %:.bin": b"elsewhere",
}
"""Files that entries refer to, by path."""


def write_index(
    directory: Path,
    entries: Mapping[bytes, bytes | Chunk],
    node_bytes: int = writer.NODE_BYTES,
    inline_bytes: int = writer.INLINE_BYTES,
) -> None:
    """Write a database, perhaps with another size of nodes."""
    with mock.patch.multiple(writer, NODE_BYTES=node_bytes, INLINE_BYTES=inline_bytes):
        index = make_index(entries)
    (directory / "d").mkdir(parents=True, exist_ok=True)
    (directory / index.name).write_bytes(b"".join(index.nodes))
    (directory / "manifest.ocdbt").write_bytes(index.manifest)


def base(directory: Path) -> "ts.KvStore":
    return ts.KvStore.open({"driver": "file", "path": f"{directory}/"}).result()


def opened(directory: Path, **options: Any) -> "ts.KvStore":
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{directory}/"}, **options}
    return ts.KvStore.open(spec, context=ts.Context()).result()


def contents(directory: Path) -> dict[bytes, bytes]:
    """Every key and value as TensorStore reads them."""
    store = opened(directory)
    keys = store.list().result()
    assert len(set(keys)) == len(keys)
    reads = [store.read(key) for key in keys]
    return {key: read.result().value for key, read in zip(keys, reads, strict=True)}


def place_foreign(directory: Path) -> None:
    for path, data in FOREIGN.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)


def content_of(value: bytes | Chunk) -> bytes:
    """What a value stands for."""
    if isinstance(value, bytes):
        return value
    return FOREIGN[value.file][value.offset : value.offset + value.length]


def below(directory: Path | str, chunk: Chunk) -> Chunk:
    """As readers have it what is relative to the database in its index."""
    return replace(chunk, file=os.path.join(directory, chunk.file))


@dataclass(frozen=True)
class Node:
    """A B+tree node as TensorStore decodes it."""

    height: int
    length: int
    entries: list[dict[str, Any]]
    statistics: dict[str, int]
    """What the parent says of its subtree."""

    @property
    def own_statistics(self) -> dict[str, int]:
        """The subtree's, from the entries."""
        if self.height:
            below = [entry["statistics"] for entry in self.entries]
            totals = {name: sum(s[name] for s in below) for name in self.statistics}
            return totals | {"num_tree_bytes": totals["num_tree_bytes"] + self.length}
        ranges = [entry["indirect_value"] for entry in self.entries if "indirect_value" in entry]
        return {
            "num_indirect_value_bytes": sum(int(text.rsplit(":", 1)[1]) for text in ranges),
            "num_keys": len(self.entries),
            "num_tree_bytes": self.length,
        }


def version(directory: Path) -> dict[str, Any]:
    manifest = ts.ocdbt.dump(base(directory)).result()
    assert manifest["version_tree_nodes"] == []
    (only,) = manifest["versions"]
    return dict(only)


def nodes(directory: Path) -> Iterator[Node]:
    """All nodes, parents before children."""
    newest, store = version(directory), base(directory)
    pending = [newest["root"]] if "location" in newest["root"] else []
    while pending:
        reference = pending.pop()
        node = ts.ocdbt.dump(store, reference["location"]).result()
        length = int(reference["location"].rsplit(":", 1)[1])
        yield Node(node["height"], length, node["entries"], reference["statistics"])
        if node["height"]:
            pending += node["entries"]


def check_tree(directory: Path, node_bytes: int) -> int:
    """Sizes are held and statistics are right; returns the root's height."""
    found = list(nodes(directory))
    for node in found:
        assert node.length <= node_bytes or len(node.entries) <= (2 if node.height else 1)
        assert node.statistics == node.own_statistics
    height = int(version(directory)["root_height"])
    assert height == max((node.height for node in found), default=0)
    return height


def check_both_readers(directory: Path, entries: Mapping[bytes, bytes | Chunk], inline_bytes: int) -> None:
    wanted = {key: content_of(entries[key]) for key in sorted(entries)}
    assert contents(directory) == wanted
    index = begin_reading(str(directory))()
    assert list(index.entries) == list(wanted)  # sorted bytewise
    for key, stored in entries.items():
        chunk, value = index.locate(key), wanted[key]
        if isinstance(stored, Chunk):
            assert chunk == below(directory, stored)
        elif len(value) <= inline_bytes:
            assert chunk == Chunk("", 0, len(value), value)
        else:
            with open(directory / chunk.file, "rb") as file:
                file.seek(chunk.offset)
                assert file.read(chunk.length) == value


EXAMPLES = {
    b"w/.zarray": b'{"zarr_format":2}',
    b"w/0.0": Chunk("model-00001-of-00002.safetensors", 8, 4096),
    b"w/0.1": Chunk("model-00001-of-00002.safetensors", 0, 10240),
    b"w/1.0": Chunk("d/00000000000000000000000000000001", 599, 1),
    b"w/1.1": Chunk("deep/er/ü %:.bin", 4, 5),
    b"v/c/0": b"abc",
    b"v/zarr.json": b"{" + b" " * 5000 + b"}",  # too long to be inline
    b"empty": b"",
    b"empty range": Chunk("deep/er/ü %:.bin", 9, 0),
    b"": b"the empty key",
    b"\x00": b"0",
    b"\xff\xff\x00": b"1",
}


@pytest.mark.parametrize(
    ("node_bytes", "height"),
    [
        (2**20, 0),  # one leaf, which is the root
        (0, 4),  # one entry to a leaf, two to an interior node: 12, 6, 3, 2, 1 nodes
    ],
)
def test_every_kind_of_value_is_read_back(node_bytes: int, height: int, tmp_path: Path) -> None:
    write_index(tmp_path, EXAMPLES, node_bytes)
    place_foreign(tmp_path)  # data files may come later
    check_both_readers(tmp_path, EXAMPLES, 1024)
    assert check_tree(tmp_path, node_bytes) == height
    assert opened(tmp_path).read(b"w/0.2").result().state == "missing"


FRAGMENTS = st.sampled_from(
    [b"\x00", b"\xff", b"\x7f\x80", b"a", b"layers_1", b"layers_10", b"/", b".zarray"]
)
KEYS = st.one_of(
    st.lists(FRAGMENTS, max_size=6).map(b"".join),  # many that share prefixes, or are prefixes
    st.binary(max_size=20),
    st.integers(0, 65534).map(lambda length: b"k" * length + b"\xff"),  # long ones
)


@st.composite
def ranges(draw: st.DrawFn) -> Chunk:
    file = draw(st.sampled_from(sorted(FOREIGN)))
    offset = draw(st.integers(0, len(FOREIGN[file])))
    return Chunk(file, offset, draw(st.integers(0, len(FOREIGN[file]) - offset)))


INLINE_SIZES = st.one_of(st.integers(0, 200), st.sampled_from([1023, 1024, 1025, 70_000]))
VALUES = st.one_of(ranges(), st.builds(lambda n: b"v" * n, INLINE_SIZES))


@examples(60)
@given(
    values=st.dictionaries(KEYS, VALUES, max_size=60),
    node_bytes=st.sampled_from([0, 100, 400, 3000, 2**20]),
    inline_bytes=st.sampled_from([0, 100, 1024, 2**20]),
)
def test_any_entries_are_read_back(
    values: dict[bytes, bytes | Chunk], node_bytes: int, inline_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        place_foreign(directory)
        write_index(directory, values, node_bytes, inline_bytes)
        check_both_readers(directory, values, inline_bytes)
        check_tree(directory, node_bytes)


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["d/a", "d/ab", "e"]), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)
        ),
        max_size=40,
    ),
    st.sampled_from([0, 300, 2**20]),
)
def test_any_range_is_kept(drawn: list[tuple[str, int, int]], node_bytes: int) -> None:
    chunks = [Chunk(file, min(a, b), abs(a - b)) for file, a, b in drawn]
    entries = {str(i).encode(): chunk for i, chunk in enumerate(chunks)}
    with tempfile.TemporaryDirectory() as name:
        write_index(Path(name), entries, node_bytes)
        index = begin_reading(name)()
        assert [index.locate(key) for key in entries] == [below(name, c) for c in chunks]
        total = sum(chunk.length for chunk in chunks)
        root = version(Path(name))["root"]["statistics"]
        assert root["num_indirect_value_bytes"] == min(total, 2**64 - 1)
        assert root["num_keys"] == len(entries)


def test_a_leaf_is_what_tensorstore_itself_writes(tmp_path: Path) -> None:
    values = {f"layers.{i}/{part}".encode(): bytes([i]) * i for i in range(200) for part in (".zarray", "0")}
    store = opened(tmp_path / "theirs", config={"compression": None, "max_inline_value_bytes": 1024})
    transaction = ts.Transaction(atomic=True)
    for key, value in values.items():
        store.with_transaction(transaction)[key] = value
    transaction.commit_async().result()
    write_index(tmp_path / "ours", values)
    written = []
    for directory in (tmp_path / "theirs", tmp_path / "ours"):
        root = ts.ocdbt.dump(base(directory)).result()["versions"][-1]["root"]
        _, path, offset, length = root["location"].split(":")[1:]
        written.append((directory / path).read_bytes()[int(offset) : int(offset) + int(length)])
        assert root["statistics"]["num_keys"] == 400
    assert written[0] == written[1]


def test_a_file_for_every_entry(tmp_path: Path) -> None:
    """As where the chunk files of a plain zarr checkpoint are linked: paths fill the nodes."""
    chunks = [Chunk(f"layers.{i * 7919 % 2003}/kernel/{'deep/' * (i % 9)}0.0", i, 1) for i in range(2000)]
    write_index(tmp_path, {b"%d" % i: c for i, c in enumerate(chunks)}, 1000)
    assert check_tree(tmp_path, 1000) >= 2
    leaves = [node.length for node in nodes(tmp_path) if node.height == 0]
    assert np.mean(leaves) > 0.25 * 1000  # not many tiny ones
    index = begin_reading(str(tmp_path))()
    assert [index.locate(b"%d" % i) for i in range(2000)] == [below(tmp_path, c) for c in chunks]
    some = opened(tmp_path).list(ts.KvStore.KeyRange(b"15", b"16")).result()
    assert sorted(some) == sorted(b"%d" % i for i in range(2000) if str(i).startswith("15"))


def test_bytes_beyond_four_gigabytes(tmp_path: Path) -> None:
    place = 5 * 2**30 + 7
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(6 * 2**30)
        file.seek(place)
        file.write(b"planted")
    write_index(tmp_path, {b"x/0": Chunk("sparse", place - 1, 9)})
    assert contents(tmp_path) == {b"x/0": b"\0planted\0"}


def test_the_configuration_is_the_one_that_orbax_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.save_pytree(tmp_path / "orbax", {"x": np.arange(3)})
    theirs = ts.ocdbt.dump(base(tmp_path / "orbax")).result()["config"]
    monkeypatch.setattr("ckpt_surgery.formats.shared.ocdbt.writer.time.time_ns", lambda: TIME)
    write_index(tmp_path / "ours", EXAMPLES)
    ours = ts.ocdbt.dump(base(tmp_path / "ours")).result()["config"]
    assert ours["uuid"] != theirs.pop("uuid")
    assert ours == theirs | {"uuid": ours["uuid"]}
    about = version(tmp_path / "ours")
    assert (about["generation_number"], about["commit_time"]) == (1, TIME)


def test_tensorstore_can_go_on_writing(tmp_path: Path) -> None:
    entries = {f"k{i:03d}".encode(): b"v" * (i % 50) for i in range(500)}
    write_index(tmp_path, entries, 300)
    config = {
        "max_inline_value_bytes": 1024,
        "max_decoded_node_bytes": 100_000_000,
        "manifest_kind": "single",
    }
    store = opened(tmp_path, config=config, assume_config=True)  # as Orbax opens it
    new = [b"", b"a", b"k100", b"k100x", b"z"]
    for key in new:
        store[key] = b"new"
    assert contents(tmp_path) == entries | dict.fromkeys(new, b"new")


def test_keys_that_an_index_cannot_hold() -> None:
    with pytest.raises(PlanError, match=r"`n{60}…n{59}` has 65536 bytes, and an index allows 65535"):
        make_index({b"n" * 65536: b""})
