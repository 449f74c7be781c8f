"""Checkpoints that older versions of Orbax and Flax wrote: `tests/data/orbax_versions/write.py`."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.planner.plan import Transfer
from tests.formats.orbax.test_source import assert_noticed, damages, refusal
from tests.support.comparing import assert_same
from tests.support.directories import copy_of
from tests.support.heavy import ts
from tests.support.json_files import edit_json
from tests.support.reading import read, values

DATA = Path(__file__).parents[2] / "data" / "orbax_versions"
WRITTEN = sorted(path.name for path in DATA.iterdir() if path.is_dir())
SPARSE = [name for name in WRITTEN if name.startswith(("0.5", "0.9")) and "zarr3" in name]
"""Chunks that have nothing but zeros are not stored."""
AGGREGATED = [name for name in WRITTEN if "aggregated" in name or "flax" in name]
"""Small values are in the structure file."""


def expected(name: str) -> dict[str, Any]:
    sparse = np.zeros((8, 3), np.float32)
    sparse[2:4] = 1.5
    values = {
        "params/w": np.arange(24, dtype=np.float32).reshape(8, 3),
        "params/sparse": sparse,
        "params/b": np.arange(4).astype(ml_dtypes.bfloat16),
        "layers/0": np.arange(5, dtype=np.int32),
        "layers/1/deep": np.array([0.5, -2.0]),
        "zeros": np.zeros((2, 2), np.float32),
        "step": np.array(7),
        "rate": np.array(0.25),
        "none": "<None>",
        "dict": "<Dict>",
        "list": "<List>",
    }
    with_strings = name.endswith("-flax") or not name.startswith(("0.2", "0.3"))
    return values | ({"name": "run"} if with_strings else {})


@pytest.mark.parametrize("name", WRITTEN)
def test_every_layout_is_read(name: str) -> None:
    source = open_source(str(DATA / name))
    assert_same(values(source), expected(name))
    leaves = source.leaves()
    assert leaves["layers/1/deep"].key.sequences == (False, True, False)
    # What was not aggregated before `_METADATA` was a scalar or an array without axes: nobody knows.
    known = LeafKind.ARRAY if name in ("0.2.7-plain", "0.3.5-ocdbt") else LeafKind.SCALAR
    assert [leaves[text].kind for text in ("step", "rate", "zeros")] == [known, known, LeafKind.ARRAY]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_lost_or_cut_file_is_never_read_as_something_else(name: str, tmp_path: Path) -> None:
    """But for chunks that may be left out: nothing tells them from those that were not stored."""
    sparse = name in SPARSE and "plain" in name
    found = [
        d for d in damages(DATA / name) if d[1] is not None or not (sparse and d[0].parts[1:2] == ("c",))
    ]
    assert_noticed(DATA / name, tmp_path / "c", expected(name), found, 4)


# --- values in the structure file ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGGREGATED)
def test_values_in_the_structure_file_have_manifests(name: str, tmp_path: Path) -> None:
    path = copy_of(DATA / name, tmp_path / "c")
    source = open_source(str(path))
    for text in ("params/b", "layers/0", "zeros"):
        leaf = source.leaves()[text]
        assert [os.path.basename(chunk.file) for chunk in leaf.manifest.chunks.values()] == ["checkpoint"]
    made = applying.plan(None, path, dst=tmp_path / "out")
    (transfer,) = {step.transfer for step in made.steps if step.leaf.key.text == "zeros"}
    assert transfer is not Transfer.COMPUTE
    part = source.read(source.leaves()["layers/0"], Region((1,), (4,)))
    assert part.tolist() == [1, 2, 3]


def test_a_structure_file_that_lacks_what_it_should_have(tmp_path: Path) -> None:
    path = copy_of(DATA / "0.4.8-flax", tmp_path / "c")
    (path / "checkpoint").unlink()
    assert "`layers/0`: its value is in the file checkpoint, which" in refusal(path)
    lacks = "`layers/0`: its value should be in .*checkpoint, which does not have it"
    for changed, message in (
        (b"\x85params", "malformed|left|byte"),
        (b"\x80", lacks),
        (b"\x81\xa6layers\x91\xc0", None),
        (b"\x81\xa6layers\x90", lacks),
        (b"\x81\xa6layers\x91\xaePLACEHOLDER://", "`layers/0`: .*which has a placeholder there"),
    ):
        (path / "checkpoint").write_bytes(changed)
        with pytest.raises(SourceError, match=message):
            open_source(str(path)).leaves()


# --- a tree without `_METADATA` -----------------------------------------------------------------------------


def test_steps_from_before_metadata(tmp_path: Path) -> None:
    for step in ("9", "10"):
        copy_of(DATA / "0.3.5-ocdbt", tmp_path / step / "default")
    source = open_source(str(tmp_path))
    assert (source.format, source.step, source.item) == ("orbax", 10, "default")
    assert_same(values(source), expected("0.3.5-ocdbt"))


def test_a_placeholder_of_no_array(tmp_path: Path) -> None:
    path = copy_of(DATA / "0.3.5-ocdbt", tmp_path / "c")
    structure = (path / "checkpoint").read_bytes()
    (path / "checkpoint").write_bytes(structure.replace(b"PLACEHOLDER://zeros", b"PLACEHOLDER://heros"))
    assert "`zeros`: it is in checkpoint, but there is no array `heros`" in refusal(path)


def test_what_wrote_metadata_must_have_it(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    """PRNG keys would become numbers without it."""
    path = copy_of(checkpoint("standard"), tmp_path / "c")
    (path / "_METADATA").unlink()
    shutil.copy2(DATA / "0.3.5-ocdbt" / "checkpoint", path / "checkpoint")
    assert "has no _METADATA" in refusal(path)
    path = copy_of(DATA / "0.4.8-ocdbt", tmp_path / "d")
    (path / "_METADATA").unlink()
    (path / "manifest.ocdbt").unlink()
    assert "1 process(es) were never merged" in refusal(path)


# --- chunks that are not stored -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPARSE)
def test_arrays_with_chunks_that_are_not_stored_are_computed(name: str, tmp_path: Path) -> None:
    source = open_source(str(DATA / name))
    manifests = {text: leaf.manifest for text, leaf in source.leaves().items() if leaf.manifest}
    lacking = {text: len(manifest.chunks) for text, manifest in manifests.items() if not manifest.complete}
    assert lacking == {"params/sparse": 2, "zeros": 0}
    made = applying.plan(None, DATA / name, dst=tmp_path / "c")
    computed = {step.leaf.key.text for step in made.steps if step.leaf.spec and step.stored is None}
    assert computed == set(lacking)


@pytest.mark.parametrize("filled", [None, False, True])
def test_a_chunk_that_is_not_stored_where_all_should_be(filled: bool | None, tmp_path: Path) -> None:
    """`_METADATA` says of newer checkpoints that every chunk was stored; zarr 2 never left one out."""
    path = copy_of(DATA / "0.10.3-zarr3-plain", tmp_path / "c")
    field = "store_array_data_equal_to_fill_value"
    said = {} if filled is None else {field: filled}
    edit_json(path / "_METADATA", lambda tree: (tree.pop(field), tree.update(said)))
    (path / "params.sparse" / "c" / "6" / "0").unlink()
    if not filled:
        assert_same(read(path), expected(path.name))
        return
    assert "`params/sparse`: its chunk c/6/0 is missing" in refusal(path)
    path = copy_of(DATA / "0.4.8-aggregated-plain", tmp_path / "d")
    (path / "params.sparse" / "3.0").unlink()
    assert "`params/sparse`: its chunk 3.0 is missing" in refusal(path)


@pytest.mark.parametrize("name", SPARSE)
def test_a_grid_that_is_said_to_be_huge_is_not_walked_through(name: str, tmp_path: Path) -> None:
    path = copy_of(DATA / name, tmp_path / "c")
    base = f"file://{path}/"
    store = ts.KvStore.open(base if "plain" in name else {"driver": "ocdbt", "base": base}).result()
    array = json.loads(store["params.sparse/zarr.json"])
    store["params.sparse/zarr.json"] = json.dumps({**array, "shape": [10**15, 3]}).encode()
    leaf = open_source(str(path)).leaves()["params/sparse"]
    assert (leaf.manifest.spec.shape, list(leaf.manifest.chunks)) == ((10**15, 3), [(2, 0), (3, 0)])


def test_names_that_are_the_beginning_of_others(tmp_path: Path) -> None:
    """`zeros` and `zeros-2` lie beside one another, and `-` comes before `/`."""
    path = copy_of(DATA / "0.9.1-zarr3-plain", tmp_path / "c")
    shutil.copytree(path / "params.w", path / "zeros-2")

    like = json.loads((path / "_METADATA").read_text())["tree_metadata"]["('zeros',)"]
    entry = like | {"key_metadata": [like["key_metadata"][0] | {"key": "zeros-2"}]}
    edit_json(path / "_METADATA", lambda document: document["tree_metadata"].update(more=entry))
    wanted = expected(path.name)
    assert_same(read(path), {**wanted, "zeros-2": wanted["params/w"]})
