"""The bytes of B+tree nodes and manifests, as TensorStore decodes them."""

from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import pytest
import tensorstore as ts
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.shared.ocdbt.nodes import (
    CHILD_BYTES,
    ENTRY_BYTES,
    HEADER_BYTES,
    NodeReference,
    common_bytes,
    encoded_path,
    file_bytes,
    interior_node,
    leaf_node,
    manifest_bytes,
    shared_bytes,
)

IDENTITY = bytes(range(16))
STORE = ts.KvStore.open("memory://", context=ts.Context()).result()
"""Where nodes lie that are decoded one by one."""

Value = bytes | Chunk


def dumped(node: bytes) -> dict[str, Any]:
    """A node as TensorStore decodes it; its parent has stored none of its keys."""
    STORE.write("n", node).result()
    return dict(ts.ocdbt.dump(STORE, f"btreenode::n:0:{len(node)}").result())


def leaf_of(entries: dict[bytes, Value], root: bool = True) -> bytes:
    keys = sorted(entries)
    return leaf_node(keys, shared_bytes(keys), [entries[key] for key in keys], root)


def reference(keys: list[bytes], name: str, node: bytes) -> NodeReference:
    """What a parent stores of a leaf node that is all of a file and has no other values."""
    return NodeReference(keys[0], keys[-1], Chunk(name, 0, len(node)), len(keys), len(node), 0)


# --- keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (b"", b"", 0),
        (b"", b"a", 0),
        (b"a", b"b", 0),
        (b"abc", b"abc", 3),
        (b"abc", b"abcd", 3),
        (b"abcd", b"abc", 3),
        (b"abx", b"aby", 2),
        (b"\0\0a", b"\0\0b", 2),  # zeros are bytes like any other
        (b"\x80b", b"\x00b", 0),
        (b"a" * 1000 + b"b", b"a" * 1000 + b"c", 1000),
    ],
)
def test_the_bytes_that_two_keys_have_in_common(one: bytes, other: bytes, common: int) -> None:
    assert common_bytes(one, other) == common


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=6), unique=True))
def test_what_each_key_shares_with_the_one_before_it(keys: list[bytes]) -> None:
    keys.sort()
    found = shared_bytes(keys)
    assert len(found) == len(keys)
    assert not found or found[0] == 0
    for (one, other), count in zip(pairwise(keys), found[1:], strict=True):
        assert one[:count] == other[:count]
        assert one[count : count + 1] != other[count : count + 1]


def test_paths_are_stored_as_the_bytes_of_the_file_system() -> None:
    assert encoded_path("ü\udcff") == b"\xc3\xbc\xff"
    with pytest.raises(UnicodeEncodeError):
        encoded_path("\ud800")
    assert file_bytes(None) == 0


# --- nodes ------------------------------------------------------------------------------------------------


def test_a_leaf_is_these_bytes() -> None:
    parts = (
        "0cdb20de 2800000000000000 0000",  # magic, length of 40 bytes, version, no compression
        "00",  # height
        "01 01 00 66",  # one file, whose path has one byte and no base path: `f`
        "02 02 02 01",  # two keys: the second has 2 bytes of the first one's; 2 and 1 bytes are left
        "6162 63",  # which are these
        "03 05 00 01",  # lengths of the values; the first is inline
        "00 c801",  # file and offset of the second
        "78797a",  # the inline value
        "3543f6f8",  # CRC-32C
    )
    assert leaf_of({b"ab": b"xyz", b"abc": Chunk("f", 200, 5)}) == bytes.fromhex("".join(parts))


def test_a_leaf_holds_inline_values_and_ranges_of_files() -> None:
    entries: dict[bytes, Value] = {
        b"abc/1": b"in the node",
        b"abc/22": Chunk("d/x", 300, 5),
        b"abd": Chunk("d/y", 0, 2**40),  # two files, whose paths share a beginning
        b"": b"",
        b"\xff": Chunk("d/x", 2**62, 2**62 - 1),
    }
    assert dumped(leaf_of(entries)) == {
        "height": 0,
        "entries": [
            {"key": b"", "inline_value": b""},
            {"key": b"abc/1", "inline_value": b"in the node"},
            {"key": b"abc/22", "indirect_value": "value::d/x:300:5"},
            {"key": b"abd", "indirect_value": f"value::d/y:0:{2**40}"},
            {"key": b"\xff", "indirect_value": f"value::d/x:{2**62}:{2**62 - 1}"},
        ],
    }


def test_a_leaf_with_a_parent_leaves_out_what_all_its_keys_share() -> None:
    entries: dict[bytes, Value] = {b"layers/1": b"", b"layers/12": b"", b"layers/2": b""}
    found = dumped(leaf_of(entries, root=False))
    assert [entry["key"] for entry in found["entries"]] == [b"1", b"12", b"2"]
    [alone] = dumped(leaf_of({b"layers/1": b"x"}, root=False))["entries"]
    assert alone == {"key": b"", "inline_value": b"x"}


@settings(deadline=None, max_examples=100)
@given(
    st.dictionaries(
        st.binary(max_size=300),
        st.binary(max_size=200)
        | st.builds(Chunk, st.sampled_from(["a", "ab", "ü" * 100]), *[st.integers(0, 2**61)] * 2),
        min_size=1,
        max_size=20,
    )
)
def test_leaves_of_any_entries_are_decoded_and_no_larger_than_is_said(entries: dict[bytes, Value]) -> None:
    node = leaf_of(entries)
    found = {
        entry["key"]: entry.get("inline_value", entry.get("indirect_value"))
        for entry in dumped(node)["entries"]
    }
    values = [*entries.values()]
    files = {value.file for value in values if isinstance(value, Chunk)}
    assert {key: _text(value) for key, value in found.items()} == {
        key: value if isinstance(value, bytes) else f"value::{value.file}:{value.offset}:{value.length}"
        for key, value in entries.items()
    }
    inline = sum(len(value) for value in values if isinstance(value, bytes))
    keys = sum(map(len, entries)) + ENTRY_BYTES * len(entries)
    assert len(node) <= HEADER_BYTES + keys + inline + sum(map(file_bytes, files))


def _text(value: Any) -> Any:
    """A location with the path as it is."""
    return unquote(value) if isinstance(value, str) else value


def test_a_flipped_bit_anywhere_is_seen_by_tensorstore() -> None:
    node = leaf_of({b"ab": b"xyz", b"abc": Chunk("f", 200, 5)})
    for i in range(len(node)):
        with pytest.raises(ValueError, match="decoding b-tree node"):
            dumped(node[:i] + bytes([node[i] ^ 1]) + node[i + 1 :])


def database_of(height: int, groups: list[list[bytes]]) -> dict[bytes, bytes]:
    """Every key and value that TensorStore reads from leaves with these keys, below `height` more nodes."""
    context = ts.Context()
    base = ts.KvStore.open("memory://", context=context).result()
    level = []
    for i, keys in enumerate(groups):
        node = leaf_node(keys, shared_bytes(keys), [b"v" + key for key in keys], root=not height)
        base.write(f"leaf{i}", node).result()
        level.append(reference(keys, f"leaf{i}", node))
    for up in range(1, height + 1):
        node = interior_node(level, shared_bytes([child.first for child in level]), up, root=up == height)
        assert len(node) <= HEADER_BYTES + sum(
            CHILD_BYTES + len(child.first) + file_bytes(child.location.file) for child in level
        )
        base.write(f"up{up}", node).result()
        count = sum(child.keys for child in level)
        level = [NodeReference(level[0].first, level[-1].last, Chunk(f"up{up}", 0, len(node)), count, 0, 0)]
    [root] = level
    base.write("manifest.ocdbt", manifest_bytes(IDENTITY, 100, 1, height, root)).result()
    store = ts.KvStore.open({"driver": "ocdbt", "base": "memory://"}, context=context).result()
    return {key: store.read(key).result().value for key in store.list().result()}


@pytest.mark.parametrize("height", [1, 2, 3])
@pytest.mark.parametrize(
    "groups",
    [
        [[b"a/1", b"a/2"], [b"a/3", b"b"]],  # two leaves with and without a common beginning
        [[b"layers/10", b"layers/11"], [b"layers/12"], [b"layers/2", b"layers/20"]],
        [[b"", b"x"], [b"y"]],
        [[b"only"]],  # a node with a single child
    ],
)
def test_keys_below_interior_nodes_are_found_again(height: int, groups: list[list[bytes]]) -> None:
    assert database_of(height, groups) == {key: b"v" + key for keys in groups for key in keys}


# --- manifests --------------------------------------------------------------------------------------------


def manifest_of(root: NodeReference | None, height: int = 0) -> dict[str, Any]:
    store = ts.KvStore.open("memory://", context=ts.Context()).result()
    store.write("manifest.ocdbt", manifest_bytes(IDENTITY, 1024, 17, height, root)).result()
    return dict(ts.ocdbt.dump(store).result())


def test_a_manifest_says_where_the_root_is_and_what_lies_below_it() -> None:
    found = manifest_of(NodeReference(b"a", b"b", Chunk("d/x", 2**40, 60), 3, 70, 2**64 - 1), height=2)
    assert found == {
        "config": {
            "uuid": IDENTITY.hex(),
            "compression": {"id": "zstd"},
            "max_inline_value_bytes": 1024,
            "max_decoded_node_bytes": 100_000_000,
            "version_tree_arity_log2": 4,
        },
        "version_tree_nodes": [],
        "versions": [
            {
                "generation_number": 1,
                "commit_time": 17,
                "root_height": 2,
                "root": {
                    "location": f"btreenode::d/x:{2**40}:60",
                    "statistics": {
                        "num_keys": 3,
                        "num_tree_bytes": 70,
                        "num_indirect_value_bytes": 2**64 - 1,
                    },
                },
            }
        ],
    }


def test_a_database_without_keys_has_a_root_without_a_location() -> None:
    [version] = manifest_of(None)["versions"]
    assert version["root"] == {
        "statistics": {"num_keys": 0, "num_tree_bytes": 0, "num_indirect_value_bytes": 0}
    }
