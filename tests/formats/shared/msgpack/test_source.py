"""Leaves of MessagePack trees as flax writes them, beside zarr arrays, and what cannot be a leaf."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
from flax import serialization

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.listed_source import ListedSource
from ckpt_surgery.formats.registry import Listing
from ckpt_surgery.formats.shared.msgpack.nodes import BytesAt, Node
from ckpt_surgery.formats.shared.msgpack.source import (
    FoundNode,
    flattened,
    leaf_of,
    list_tree,
)
from ckpt_surgery.formats.shared.msgpack.tree import read_tree
from ckpt_surgery.storage.reading import opened, stat_file
from tests.support.arrays import array
from tests.support.reading import values


def saved(path: Path, tree: Any) -> list[FoundNode]:
    """The leaves of a file that flax writes."""
    path.write_bytes(serialization.msgpack_serialize(tree))
    with opened(str(path)) as file:
        return [FoundNode(key, node, str(path)) for key, node in flattened(read_tree(file))]


def found(node: Node, name: str = "a") -> FoundNode:
    return FoundNode(Key.parse(name), node, "x")


def listed(nodes: list[FoundNode], path: Path = Path(), zarr: str | None = None) -> Listing:
    return list_tree(nodes, str(path), lambda found: zarr)


def source_of(path: Path, nodes: list[FoundNode]) -> ListedSource:
    files = {str(path): stat_file(str(path))}
    return ListedSource(str(path), "toy", replace(listed(nodes), files=files))


def test_empty_containers_are_leaves_and_list_indices_are_marked() -> None:
    tree: Node = {"b": [1, {}], "a": {2: [], "c": None}}
    assert [*flattened(tree)] == [
        (Key(("b", "0"), (False, True)), 1),
        (Key(("b", "1"), (False, True)), {}),
        (Key(("a", "2"), (False, False)), []),
        (Key(("a", "c"), (False, False)), None),
    ]
    assert [*flattened({}, ("x",), (True,))] == [(Key(("x",), (True,)), {})]


def test_a_format_says_which_containers_are_leaves() -> None:
    tree: Node = {"a": {"driver": "zarr", "path": "p"}, "b": {"c": 1}}
    leaves = flattened(tree, is_leaf=lambda node: isinstance(node, dict) and "driver" in node)
    assert [key.text for key, _ in leaves] == ["a", "b/c"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (-(2**63), "int64"),
        (2**63 - 1, "int64"),
        (2**63, "uint64"),  # too large for the other
        (1.5, "float64"),
        (1 - 2j, "complex128"),
    ],
)
def test_python_numbers_are_scalars_in_the_index(value: Any, dtype: str) -> None:
    leaf = leaf_of(found(value))
    assert (leaf.kind, leaf.spec) == (LeafKind.SCALAR, ArraySpec((), np.dtype(dtype)))
    assert leaf.manifest is not None
    assert read_stored(leaf.manifest, Region((), ())).item() == value


def test_nodes_without_elements_keep_their_kind() -> None:
    assert [leaf_of(found(node)).empty for node in (None, {}, [])] == ["None", "Dict", "List"]
    assert leaf_of(found("text")).string == "text"


def test_a_placeholder_is_refused_with_the_way_out() -> None:
    with pytest.raises(SourceError, match="Orbax stored elsewhere") as caught:
        leaf_of(found("PLACEHOLDER://a.b"))
    assert caught.value.problems[0].hint == "Open the directory that the file is in."
    assert leaf_of(found(" PLACEHOLDER://a.b")).string == " PLACEHOLDER://a.b"


def test_two_keys_that_are_the_same_as_text_are_refused() -> None:
    nodes = [found(1, "a/b"), FoundNode(Key.of(["a/b"]), 2, "x")]
    with pytest.raises(SourceError, match=r"two leaves have the key `a/b`: \['a', 'b'\] and \['a/b'\]"):
        listed(nodes)


def test_what_is_wrong_with_a_node_is_said_with_its_key() -> None:
    with pytest.raises(SourceError, match=r"^`b/c`: it stands for an array"):
        listed([found(1), found("PLACEHOLDER://", "b/c")])


def test_everything_that_flax_writes_is_read_back(tmp_path: Path) -> None:
    tree = {
        "w": array((3, 4), "bfloat16"),
        "none": np.zeros((0, 4), np.float32),
        "step": np.int32(7),
        "count": 2**64 - 1,
        "name": "adam",
        "nothing": {},
    }
    read = values(source_of(tmp_path / "x", saved(tmp_path / "x", tree)))
    assert read.keys() == tree.keys()
    assert read["w"].tobytes() == tree["w"].tobytes()  # type: ignore[attr-defined]
    assert (read["none"].shape, read["step"], read["count"]) == ((0, 4), 7, 2**64 - 1)
    assert (read["name"], read["nothing"]) == ("adam", "<Dict>")


def test_an_array_in_pieces_without_a_grid_is_read_and_refused_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_surgery.formats.shared.msgpack.nodes.MOST_CHUNKS", 4)
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 40)
    value = array((7, 6), "float32")
    source = source_of(tmp_path / "x", saved(tmp_path / "x", {"w": value}))
    leaf = source.leaves()["w"]
    assert leaf.manifest is None
    np.testing.assert_array_equal(source.read(leaf, Region((1, 2), (6, 5))), value[1:6, 2:5])
    with open(tmp_path / "x", "ab") as file:
        file.write(b"?")
    with pytest.raises(SourceError, match=r"^`w`: .*has changed since it was listed"):
        source.read(leaf, Region.whole((7, 6)))


def test_a_byte_string_is_listed_but_not_read(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x", saved(tmp_path / "x", {"b": b"\0abc"}))
    leaf = source.leaves()["b"]
    with pytest.raises(SourceError, match="`b`: it is a byte string of the length 4, which no other format"):
        source.read(leaf, Region.whole((4,)))
    assert leaf_of(found(BytesAt(0, 0))).spec == ArraySpec((0,), np.dtype("S1"))


def zarr_at(path: Path) -> np.ndarray:
    value = array((4, 2), "float32")
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{path}/"}}
    spec["metadata"] = {"chunks": [2, 2], "dtype": "<f4", "shape": [4, 2]}
    ts.open(spec, create=True).result().write(value).result()
    return value


def test_a_node_stands_for_a_zarr_array_beside_the_file(tmp_path: Path) -> None:
    value = zarr_at(tmp_path / "w")
    nodes = saved(tmp_path / "x", {"w": "somewhere"})
    source = ListedSource(str(tmp_path), "toy", listed(nodes, tmp_path, "w"))
    np.testing.assert_array_equal(values(source)["w"], value)
    names = {Path(file).relative_to(tmp_path).as_posix() for file in source.files()}
    assert names == {"w/.zarray", "w/0.0", "w/1.0"}


def test_a_zarr_array_that_lacks_a_chunk_is_refused(tmp_path: Path) -> None:
    zarr_at(tmp_path / "w")
    (tmp_path / "w/1.0").unlink()
    with pytest.raises(SourceError, match=r"its chunk 1\.0 is missing"):
        listed([found("somewhere")], tmp_path, "w")
