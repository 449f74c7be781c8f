"""Listings as targets: what is read, and what is refused."""

import json
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.planner.listings import is_listing, read_listing

ENTRIES = [
    {"key": "a/b", "shape": [2, 3], "dtype": "bfloat16"},
    {"key": "n", "kind": "scalar", "shape": [], "dtype": "int64"},
    {"key": "k", "kind": "prng_key", "shape": [2], "dtype": "uint32"},
    {"key": "s", "kind": "string"},
    {"key": "e", "kind": "empty"},
]
YAML = "leaves:\n- {key: a, shape: [4], dtype: float32}\n"


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("document", [ENTRIES, {"leaves": ENTRIES, "format": "orbax"}])
def test_a_listing_in_json(tmp_path: Path, document: object) -> None:
    leaves = read_listing(written(tmp_path / "x.json", json.dumps(document)))
    assert list(leaves) == ["a/b", "n", "k", "s", "e"]
    assert {text: (leaf.kind, str(leaf.spec)) for text, leaf in leaves.items()} == {
        "a/b": (LeafKind.ARRAY, "bfloat16[2,3]"),
        "n": (LeafKind.SCALAR, "int64[]"),
        "k": (LeafKind.PRNG_KEY, "uint32[2]"),
        "s": (LeafKind.STRING, "None"),
        "e": (LeafKind.EMPTY, "None"),
    }
    assert leaves["a/b"].key.names == ("a", "b")


@pytest.mark.parametrize("name", ["x.yaml", "x.yml"])
def test_a_listing_in_yaml(tmp_path: Path, name: str) -> None:
    assert str(read_listing(written(tmp_path / name, YAML))["a"].spec) == "float32[4]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("3", "no list of leaves in it"),
        ('{"rules": []}', "no list of leaves in it"),
        ('[{"shape": []}]', r"leaves\[0\] has no `key`"),
        ('[{"key": "a", "kind": "tensor"}]', r"leaves\[0\]: not a kind of leaf: 'tensor'"),
        ('[{"key": "a", "dtype": "int8"}]', r"`a`\): `shape` has to be a list of integers, not None"),
        ('[{"key": "a", "shape": [-1], "dtype": "int8"}]', r"not \[-1\]"),
        ('[{"key": "a", "shape": [true], "dtype": "int8"}]', r"not \[True\]"),
        ('[{"key": "a", "shape": []}]', r"leaves\[0\] \(`a`\): .*None"),
        ('[{"key": "a", "shape": [], "dtype": "int9"}]', r"leaves\[0\] \(`a`\): .*int9"),
        ('[{"key": "a", "kind": "empty"}, {"key": "a", "kind": "empty"}]', "`a` is listed twice"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path / "x.json", text)
    with pytest.raises(SourceError, match=says) as caught:
        read_listing(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_listing_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_listing(str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("name", "listing"),
    [("x.json", True), ("x.yaml", True), ("x.yml", True), ("x.npz", False), ("model.index.json", False)],
)
def test_which_paths_are_those_of_listings(tmp_path: Path, name: str, listing: bool) -> None:
    assert not is_listing(str(tmp_path / name))  # there is no such file
    assert is_listing(written(tmp_path / name, "[]")) == listing
    (tmp_path / "directory.json").mkdir()
    assert not is_listing(str(tmp_path / "directory.json"))
