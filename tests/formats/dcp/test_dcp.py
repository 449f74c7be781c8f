"""PyTorch's distributed checkpoints, against torch; and directories that want more than tensors."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from ckpt_surgery.api import applying
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.formats.opening import detect_format
from ckpt_surgery.storage.reading import OpenFile
from tests.formats.dcp.lies import LIES
from tests.formats.dcp.parts import DATA, METADATA, OBJECT, VALUE, Parts, described, rows, usual
from tests.formats.torch.pickles import Name, code
from tests.formats.torch.test_torch import DTYPES, tensor
from tests.support import conformance
from tests.support.arrays import array
from tests.support.calls import record_calls
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same, same
from tests.support.conformance import Arrays, random_regions
from tests.support.libraries import load_npz, save_state
from tests.support.reading import opened, values
from tests.support.trees import nested


class TestDcp(conformance.Reading):
    format = "dcp"
    dtypes = DTYPES
    names = tuple(name for name in conformance.NAMES if name not in ("..", "a", "model.layers.0.weight"))
    """A name cannot be a tensor's and a dictionary's at once; torch joins names by dots."""
    lies = LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        return save_state(nested({name: tensor(value) for name, value in arrays.items()}), path)


STORED = Path(__file__).parents[2] / "data" / "dcp"


def read(source: Source, keys: Iterable[str]) -> dict[str, Any]:
    """Some of the leaves, by their keys; others cannot be read."""
    found: dict[str, Any] = {}
    for key in keys:
        leaf = source.leaves()[key]
        found[key] = source.read(leaf, Region.whole(leaf.spec.shape)) if leaf.spec else leaf.string
    return found


# --- what people save -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.2.2", "2.4.1"])
def test_what_older_versions_have_written(version: str) -> None:
    """Values as `tests/data/dcp/write.py` makes them. Up to 2.3, lists without tensors were objects."""
    source = opened(STORED / version)
    tensors = {
        "model/layers.0.weight": np.arange(14, dtype=np.float32).reshape(7, 2),
        "model/bias": np.arange(3).astype(ml_dtypes.bfloat16),
        "model/count": np.array(3),
        "model/none": np.zeros((0, 3), np.float32),
        "model/transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "model/part": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1:3],
        "optim/state/0/step": np.array(2, np.float32),
        "optim/state/0/exp_avg": np.arange(2, dtype=np.float32),
    }
    assert_same(read(source, tensors), tensors)
    group = [f"optim/param_groups/0/{name}" for name in ("lr", "betas/0", "betas/1", "params/0", "name")]
    leaves = source.leaves()
    assert list(leaves) == [*tensors, *group, "step", "name", "kinds"]
    assert read(source, (group[0], "step", "name")) == {group[0]: 0.1, "step": 5, "name": "run 7"}
    assert leaves[group[-1]].empty == "None"
    assert leaves[group[0]].key.sequences == (False, False, True, False)
    transposed = leaves["model/transposed"].manifest
    assert transposed.codec.order == "F"


def test_what_four_ranks_have_written() -> None:
    """Rows, columns, squares, replicas, uneven shares, and FSDP's module and optimizer."""
    source = opened(STORED / "2.13.0-ranks")
    expected, found = load_npz(STORED / "2.13.0-ranks.npz"), values(source)
    arrays = [leaf for leaf in source.leaves().values() if leaf.kind is LeafKind.ARRAY]
    assert_same({leaf.key.text: found[leaf.key.text] for leaf in arrays}, expected)
    assert len(expected) == 20
    chunks = {leaf.key.text: leaf.manifest and leaf.manifest.chunk_shape for leaf in arrays}
    assert {key: shape for key, shape in chunks.items() if key.startswith("divided/")} == {
        "divided/rows": (2, 3),
        "divided/columns": (3, 2),
        "divided/replicated": (2, 3),
        "divided/last row short": None,
        "divided/last rank empty": None,
        "divided/square": (2, 3),
        "divided/uneven square": None,
        "divided/half replicated": (2, 2),
    }
    for leaf in arrays:
        for region in random_regions(leaf.spec.shape, 12):
            assert same(source.read(leaf, region), expected[leaf.key.text][region.slices]), (leaf.key, region)
    group = "optim/param_groups/0"
    assert (found[f"{group}/lr"], found[f"{group}/params/2"], found["step"]) == (0.5, "2.weight", 5)


@pytest.mark.slow("writes checkpoints by many processes")
def test_ranks_of_the_installed_torch(tmp_path: Path) -> None:
    """The processes of `tests/data/dcp/write.py`, with the version of torch that is installed."""
    script = STORED / "write.py"
    subprocess.run([sys.executable, script, "ranks", "now"], cwd=tmp_path, check=True, capture_output=True)
    expected = load_npz(tmp_path / "now.npz")
    source = opened(tmp_path / "now")
    assert_same(read(source, expected), expected)


def test_objects_are_leaves_where_they_are_plain_values(tmp_path: Path) -> None:
    state = {
        "betas": (0.9, 0.95),
        "texts": ["a", "λ"],
        "pair": (torch.arange(4), torch.arange(6).reshape(2, 3)[:, ::2], 7),
        "size": torch.Size([2, 3]),
        "list": [],
        "flag": True,
    }
    source = opened(save_state(state, tmp_path / "saved"))
    found = values(source)
    assert {key: value if isinstance(value, str) else value.tolist() for key, value in found.items()} == {
        "betas/0": 0.9,
        "betas/1": 0.95,
        "texts/0": "a",
        "texts/1": "λ",
        "pair/0": [0, 1, 2, 3],
        "pair/1": [[0, 2], [3, 5]],
        "pair/2": 7,
        "size/0": 2,
        "size/1": 3,
        "list": "<List>",
        "flag": True,
    }
    leaves = source.leaves()
    assert {leaves[key].kind for key in ("betas/0", "pair/2", "size/0", "flag")} == {LeafKind.SCALAR}
    assert same(source.read(leaves["pair/1"], Region((0, 1), (2, 2))), np.array([[2], [5]]))
    assert leaves["pair/1"].key.sequences == (False, True)


class Trap:
    """An object that runs something when Python loads it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def test_other_objects_are_listed_and_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"w": torch.ones(2), "trap": Trap(), "set": {1}, "bytes": b"x"}
    source = opened(save_state(state, tmp_path / "saved"))
    trap = r"asks for `posix.mkdir`, .*\n.*None of it was run"
    for key, says in {"trap": trap, "set": "", "bytes": ""}.items():
        assert source.leaves()[key].spec == ArraySpec((), np.dtype(object))
        with pytest.raises(SourceError, match=f"^`{key}`: it is a Python object that is not read: .*{says}"):
            source.read(source.leaves()[key], Region((), ()))
    assert_same(read(source, ["w"]), {"w": np.ones(2, np.float32)})
    assert os.listdir(tmp_path) == ["saved"]


def test_objects_of_more_leaves_than_bytes_are_refused(tmp_path: Path) -> None:
    """Each has fewer than what is too much for one."""
    parts = Parts()
    for i in range(10):
        parts.entries[f"many{i}"] = OBJECT
        parts.put(f"many{i}", [[0] * 30] * 30)
    with pytest.raises(SourceError, match="all objects up to here have more leaves together than their size"):
        opened(parts.write(tmp_path / "saved"))


def test_keys_without_paths_are_names(tmp_path: Path) -> None:
    """As Megatron-LM saves: names alone, in metadata of its own class."""
    parts = Parts(more={"mcore_data": {"model.w": {"shape": (4, 6)}}})
    for name in ("model.w", "optimizer/model.w"):
        parts.add(name, VALUE, rows(4))
    parts.paths = {"optimizer/model.w": ("optimizer", 0, "a/b")}
    path = parts.write(tmp_path / "saved")
    ours, root = (path / ".metadata").read_bytes(), code(Name(METADATA, "Metadata"))
    assert ours.count(root) == 1
    theirs = code(Name("megatron.core.dist_checkpointing.strategies.torch", "MCoreMetadata"))
    (path / ".metadata").write_bytes(ours.replace(root, theirs))
    assert [leaf.key for leaf in opened(path).leaves().values()] == [
        Key(("model.w",), (False,)),
        Key(("optimizer", "0", "a/b"), (False, True, False)),
    ]


def test_a_directory_without_data_files_is_a_damaged_one(tmp_path: Path) -> None:
    path = usual().write(tmp_path / "saved")
    (path / DATA).unlink()
    assert detect_format(os.fspath(path)).name == "dcp"


# --- chunks -----------------------------------------------------------------------------------------------


def test_chunks_stored_in_any_order_of_axes(tmp_path: Path) -> None:
    """Of one order they are a grid; of several, or with gaps, they are read one by one."""
    parts, boxes = Parts(), rows(2, 4)
    for name, layouts in {
        "columns": (lambda x: x.t().contiguous().t(),) * 2,
        "mixed": (lambda x: x, lambda x: x.t().contiguous().t()),
        "gaps": (lambda x: torch.stack([x, x], -1)[..., 0], lambda x: x),
    }.items():
        parts.entries[name] = described("int32", (4, 6), [(box.starts, box.shape) for box in boxes])
        for box, layout in zip(boxes, layouts, strict=True):
            parts.put(name, layout(tensor(VALUE[box.slices])), box.starts)
    source = opened(parts.write(tmp_path / "saved"))
    assert_same(values(source), dict.fromkeys(("columns", "mixed", "gaps"), VALUE))
    orders = {key: leaf.manifest and leaf.manifest.codec.order for key, leaf in source.leaves().items()}
    assert orders == {"columns": "F", "mixed": None, "gaps": None}


def test_a_large_checkpoint_is_listed_in_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of chunks that lie beside each other are read together, and no chunk is read whole."""
    parts, value = Parts(), np.zeros((64, 2**14), np.uint8)
    parts.add("w", value, rows(*range(1, 65), columns=2**14))
    path = parts.write(tmp_path / "saved")
    calls = record_calls(monkeypatch, OpenFile, "read", lambda file, _, length: (file.path, length))
    assert opened(path).leaves()["w"].manifest is not None
    read = [length for name, length in calls if name.endswith(DATA)]
    assert len(read) == 65
    assert sum(read) <= 64 * 8192  # two pages at most


def test_orbax_links_the_files_of_the_ranks(tmp_path: Path) -> None:
    """Chunks of one shape are where they were, whatever the key; the others are computed."""
    parts, value = Parts(), array((96, 4096), "float32")
    parts.add("even", value, rows(24, 48, 72, 96, columns=4096), ["__0_0.distcp", "__1_0.distcp"])
    parts.add("uneven", value[:7], rows(2, 4, 6, 7, columns=4096))
    source = parts.write(tmp_path / "saved")
    plan = applying.apply(None, source, dst=tmp_path / "out", link_mode="hardlink").plan
    stored = {step.leaf.key.text: step.stored is not None for step in plan.steps}
    assert (stored, plan.costs.bytes_linked) == ({"even": True, "uneven": False}, value.nbytes)
    shutil.rmtree(source)
    assert_same(restored(tmp_path / "out"), {"even": value, "uneven": value[:7]})
