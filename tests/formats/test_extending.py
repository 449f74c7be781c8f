"""The format of docs/extending.md, installed as another package would be: an entry point and one module."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.formats.known import formats
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.storage.record_files import RECORD_NAME
from tests.support import conformance
from tests.support.conformance import Lie
from tests.support.raw_files import DATA, INDEX, load_raw, save_raw
from tests.support.writing import Arrays
from tests.test_docs import code

PACKAGE = "garage_raw"
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


def install(site: Path) -> None:
    """What `pip install` makes of a package of one module with an entry point."""
    (site / f"{PACKAGE}.py").write_text(code("formats"))
    about = site / f"{PACKAGE}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[ckpt_surgery.formats]\nraw = {PACKAGE}\n")


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of installed packages with this one in it, which every test here has on its path."""
    directory = tmp_path_factory.mktemp("site-packages")
    install(directory)
    sys.path.insert(0, str(directory))
    formats.cache_clear()
    yield directory
    sys.path.remove(str(directory))
    sys.modules.pop(PACKAGE, None)
    formats.cache_clear()


def lie(reason: str, change: Callable[[dict[str, Any]], object], says: str = "") -> Lie:
    """An index with something changed in it."""

    def make(directory: Path) -> Path:
        path = save_raw({"x": np.ones((2, 3), np.float32), "y": np.ones(4, np.int8)}, directory / "lie")
        document = json.loads((path / INDEX).read_text())
        change(document)
        (path / INDEX).write_text(json.dumps(document))
        return path

    return Lie(reason, make, says)


def entry(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["arrays"]["x"].update(changes)


class TestRaw(conformance.Writing):
    """The suite that the package's own formats go through."""

    format = "raw"
    dtypes = DTYPES
    lies: ClassVar = [
        lie("no table", lambda document: document.pop("arrays"), "no table of arrays"),
        lie("metadata that is no object", lambda document: document.update(metadata=[])),
        lie("a list of arrays", lambda document: document.update(arrays=[])),
        lie("a dtype that nobody has", entry(dtype="float33"), "entry of 'x'"),
        lie("a dtype of objects", entry(dtype="object")),
        lie("more elements than there are", entry(shape=[2**40, 2**40])),
        lie("fewer elements than there are", entry(shape=[2, 2])),
        lie("an offset inside another array", entry(offset=4)),
        lie("bytes that no array has", lambda document: document["arrays"].pop("y"), "end at byte 24"),
    ]

    def save(self, arrays: Arrays, path: Path) -> Path:
        return save_raw(arrays, path)

    def load(self, path: Path) -> dict[str, np.ndarray]:
        return load_raw(path)


def test_the_program_finds_it(site: Path, tmp_path: Path) -> None:
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    save_raw({"dense/kernel": kernel, "dense/bias": np.zeros(3, np.float16)}, tmp_path / "model")
    (tmp_path / "recipe.yaml").write_text(
        "{version: 1, rules: [{match: '(.*)/kernel', to: '\\1/w'}, {match: 'dense/bias', value: x + 1}]}"
    )
    command = [sys.executable, "-m", "ckpt_surgery", "apply", "recipe.yaml", "model", "result.raw"]
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths}, cwd=tmp_path)
    assert {name: value.tolist() for name, value in load_raw(tmp_path / "result.raw").items()} == {
        "dense/w": kernel.tolist(),
        "dense/bias": [1, 1, 1],
    }
    assert ckpt_surgery.inspect(tmp_path / "model").format == "raw"
    assert ckpt_surgery.verify(tmp_path / "result.raw").flaws == ()
    assert ckpt_surgery.diff(tmp_path / "model", tmp_path / "model", values=True).changed == ()


def test_stored_bytes_are_adopted(tmp_path: Path) -> None:
    """Those of other formats, too: nothing is decoded on the way."""
    arrays: Mapping[str, np.ndarray] = {"a": np.arange(5000, dtype=np.int16), "b/c": np.ones((3, 4))}
    save_raw(arrays, tmp_path / "model", metadata={"author": "λ"})
    plan = ckpt_surgery.plan(None, tmp_path / "model", dst=tmp_path / "x.safetensors")
    assert plan.costs.bytes_copied == plan.costs.bytes_out == 10096
    ckpt_surgery.convert(tmp_path / "model", tmp_path / "x.safetensors")
    back = ckpt_surgery.convert(tmp_path / "x.safetensors", tmp_path / "back.raw")
    assert back.plan.costs.bytes_copied == 10096
    loaded = load_raw(tmp_path / "back.raw")
    assert {name: (value.dtype, value.tolist()) for name, value in loaded.items()} == {
        name: (value.dtype, value.tolist()) for name, value in arrays.items()
    }
    assert sorted(os.listdir(tmp_path / "back.raw")) == sorted([DATA, INDEX, RECORD_NAME])
    metadata: Mapping[str, Any] = open_source(str(tmp_path / "back.raw")).metadata
    assert metadata["author"] == "λ"


def test_what_it_cannot_hold_is_refused_by_key(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.array("text"))
    with pytest.raises(PlanError, match="`a` is a string; raw checkpoints hold plain arrays only; drop it"):
        ckpt_surgery.plan(None, tmp_path / "x.npz", dst=tmp_path / "x.raw")
