"""PyTorch's zip files, against torch; and pickles that want more than tensors."""

import json
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.formats.torch import FORMAT
from tests.formats.bounds import bounded
from tests.formats.torch.lies import FILE_LIES, PICKLE_LIES, TENSOR_LIES
from tests.formats.torch.pickles import Call, Name, archive, document, opened, storage
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same, same
from tests.support.conformance import Arrays, random_regions
from tests.support.reading import values
from tests.support.trees import nested

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
INDEX = "pytorch_model.bin.index.json"


def tensor(value: np.ndarray) -> torch.Tensor:
    """A tensor with its own storage."""
    if value.dtype.kind in "biufc" and value.dtype.type.__module__ == "numpy":
        return torch.from_numpy(value.copy())
    bits = torch.from_numpy(value.view(f"u{value.dtype.itemsize}").copy())
    return bits.view(getattr(torch, value.dtype.name))


def state_of(arrays: Arrays) -> dict[str, Any]:
    """A state as people save it: names split on `/` into dictionaries."""
    return nested({name: tensor(value) for name, value in arrays.items()})


def saved(value: object, path: Path, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


class TestTorch(conformance.Reading):
    format = "torch"
    dtypes = DTYPES
    names = tuple(name for name in conformance.NAMES if name not in ("..", "a"))
    """A name cannot be a tensor's and a dictionary's at once: `../../etc/passwd`, `a//b`."""
    lies = (*TENSOR_LIES, *PICKLE_LIES, *FILE_LIES)

    def save(self, arrays: Arrays, path: Path) -> Path:
        return saved(state_of(arrays), path.with_suffix(".pt"))


# --- what people save -------------------------------------------------------------------------------------


def test_nested_states(tmp_path: Path) -> None:
    """Containers are components, dots are plain characters; what is no tensor is a scalar, text or empty."""
    state = {
        "state_dict": OrderedDict([("layers.0.weight", torch.arange(6.0).reshape(2, 3))]),
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0)}},
            "param_groups": [{"lr": 0.5, "params": [0]}],
        },
        "epoch": 3,
        "seed": 2**64 - 1,
        "least": -(2**63),
        "done": True,
        "name": "λ",
        "nothing": None,
        "empties": ({}, [], ()),
        "a/b": 1,
        "size": torch.ones(2).shape,
    }
    source = opened(saved(state, tmp_path / "saved.pt"))
    found = source.leaves()
    scalars = {text: leaf for text, leaf in found.items() if leaf.kind is LeafKind.SCALAR}
    assert_same(
        {text: source.read(leaf, Region((), ())) for text, leaf in scalars.items()},
        {
            "optimizer/param_groups/0/lr": np.array(0.5),
            "optimizer/param_groups/0/params/0": np.array(0),
            "epoch": np.array(3),
            "seed": np.array(2**64 - 1, np.uint64),
            "least": np.array(-(2**63)),
            "done": np.array(True),
            "a/b": np.array(1),
            "size/0": np.array(2),
        },
    )
    others = {text: leaf for text, leaf in found.items() if text not in scalars}
    assert {t: (leaf.spec and str(leaf.spec)) or leaf.string or leaf.empty for t, leaf in others.items()} == {
        "state_dict/layers.0.weight": "float32[2,3]",
        "optimizer/state/0/step": "float32[]",
        "name": "λ",
        "nothing": "None",
        "empties/0": "Dict",
        "empties/1": "List",
        "empties/2": "Tuple",
    }
    assert found["name"].kind is LeafKind.STRING
    assert found["optimizer/state/0/step"].kind is LeafKind.ARRAY
    assert found["optimizer/state/0/step"].key.sequences == (False, False, False, False)
    assert found["optimizer/param_groups/0/params/0"].key.sequences == (False, False, True, False, True)
    assert found["a/b"].key == Key.of(["a/b"])
    assert found["size/0"].key.sequences == (False, True)


COMPLEX = torch.ones(2, dtype=torch.complex64)


def marked(value: torch.Tensor) -> torch.Tensor:
    """A tensor with an attribute, which torch then stores by another function."""
    value.note = "kept by torch"  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    "value",
    [
        torch.nn.Parameter(torch.arange(6.0).reshape(2, 3)),
        torch.nn.Buffer(torch.arange(6.0).reshape(2, 3)),
        marked(torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))),
        marked(torch.arange(6.0).reshape(2, 3)),
        torch.arange(6.0).reshape(2, 3).requires_grad_(),
    ],
    ids=["parameter", "buffer", "parameter with state", "tensor with state", "requires gradients"],
)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_kinds_of_tensors(value: torch.Tensor, protocol: int, tmp_path: Path) -> None:
    source = opened(saved({"w": value}, tmp_path / "saved.pt", pickle_protocol=protocol))
    assert_same(values(source), {"w": np.arange(6, dtype=np.float32).reshape(2, 3)})


def test_a_tensor_alone_is_called_as_its_file(tmp_path: Path) -> None:
    source = opened(saved(torch.arange(3), tmp_path / "bias.pt"))
    assert_same(values(source), {"bias": np.arange(3)})


def test_the_first_version_of_tensors(tmp_path: Path) -> None:
    """`_rebuild_tensor`, which no torch writes into zip files any more, but still reads."""
    first = Call(Name("torch._utils", "_rebuild_tensor"), (storage(), 1, (3,), (2,)))
    path = archive(tmp_path / "saved.pt", document({"w": first}), {"data/0": bytes(range(8))})
    assert torch.load(path, weights_only=True)["w"].tolist() == [1, 3, 5]
    assert values(opened(path))["w"].tolist() == [1, 3, 5]


def test_files_without_checksums(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        path = saved({"w": torch.arange(3)}, tmp_path / "saved.pt")
    finally:
        torch.serialization.set_crc32_options(before)
    assert_same(values(opened(path)), {"w": np.arange(3)})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.float32, "`x/y`: is `torch.float32`, which cannot be a leaf"),
        (lambda: b"bytes", "asks for `_codecs.encode`"),
        (lambda: 1j, "asks for `__builtin__.complex`"),
        (lambda: {1, 2}, "asks for `__builtin__.set`"),
        (lambda: torch.ones(2).untyped_storage(), "`x/y`: is a storage without a tensor"),
        (lambda: COMPLEX.conj(), "`x/y`: is stored without its last operation: conj\n.*resolve_conj"),
        (lambda: COMPLEX.conj().imag, "operation: neg\n.*resolve_neg"),
        (lambda: torch.quantize_per_tensor(COMPLEX.real, 1, 0, torch.qint8), "_qtensor`.*\n.*dequantize"),
        (lambda: torch.eye(2).to_sparse(), "_rebuild_sparse_tensor`.*\n.*to_dense"),
        (lambda: torch.ones(2, device="meta"), "_rebuild_meta_tensor_no_storage`.*\n.*no values"),
        (lambda: COMPLEX.to(torch.complex32), "asks for `torch.complex32`"),
    ],
    ids=["dtype", "bytes", "complex", "set", "storage", "conj", "neg", "quantized", "sparse", "meta", "half"],
)
@pytest.mark.filterwarnings("ignore")  # of what torch deprecates
def test_what_is_no_leaf_is_refused(make: Callable[[], object], says: str, tmp_path: Path) -> None:
    path = saved({"x": {"y": make()}}, tmp_path / "saved.pt")
    with pytest.raises(SourceError, match=says):
        opened(path)


def test_bytes_and_sets_are_refused_by_key(tmp_path: Path) -> None:
    state = {"a": {1, 2}, "b": frozenset([1]), "c": b"x", "fine": 1, "d": torch.int8}
    with pytest.raises(SourceError) as caught:
        opened(saved(state, tmp_path / "saved.pt", pickle_protocol=4))
    told = [problem.message.partition(", ")[0].partition(": ")[2] for problem in caught.value.problems]
    assert told == ["`a`: is a set", "`b`: is a set", "`c`: is bytes", "`d`: is `torch.int8`"]


# --- views ------------------------------------------------------------------------------------------------

BASE = torch.arange(4 * 5 * 6, dtype=torch.int32).reshape(4, 5, 6)
VIEWS: Mapping[str, tuple[torch.Tensor, tuple[int, ...] | None]] = {
    "whole": (BASE, (0, 1, 2)),
    "first rows": (BASE[:2], (0, 1, 2)),
    "last rows": (BASE[2:], (0, 1, 2)),
    "one row": (BASE[1], (0, 1)),
    "one element": (BASE[3, 4, 5], ()),
    "reversed axes": (BASE.permute(2, 1, 0), (2, 1, 0)),
    "permuted axes": (BASE.permute(1, 2, 0), (2, 0, 1)),
    "permuted rows": (BASE[1:3].transpose(0, 2), (2, 1, 0)),
    "axes of one": (BASE[:, None].permute(3, 1, 0, 2), (1, 2, 3, 0)),
    "an axis of one with an odd stride": (BASE[:, 2:3, :][1], (0, 1)),
    "none": (BASE[:, :0], (0, 1, 2)),
    "none, permuted": (BASE[:0].permute(1, 2, 0), (0, 1, 2)),
    "every other": (BASE[:, ::2], None),
    "every other, permuted": (BASE[::2, :, 1::2].permute(2, 0, 1), None),
    "columns": (BASE[..., 2], None),
    "diagonal": (BASE.diagonal(), None),
    "repeated": (BASE[:, :1].expand(4, 3, 6), None),
    "one element repeated": (BASE[0, 0, 3].expand(3, 4), None),
    "overlapping windows": (BASE.reshape(-1).unfold(0, 7, 2), None),
    "as long as a block, with repetitions and gaps": (BASE.as_strided((2, 2, 2), (5, 1, 1), 3), None),
}


def test_views_share_one_storage(tmp_path: Path) -> None:
    path = saved({name: value for name, (value, _) in VIEWS.items()}, tmp_path / "saved.pt")
    with zipfile.ZipFile(path) as file:
        assert [name for name in file.namelist() if "/data/" in name] == ["saved/data/0"]
    source = opened(path)
    for name, (value, order) in VIEWS.items():
        leaf = source.leaves()[name]
        assert leaf.spec == ArraySpec(tuple(value.shape), np.dtype(np.int32))
        assert (leaf.manifest and leaf.manifest.codec.permutation) == order, name
        if leaf.manifest is not None:
            stored = [path.read_bytes()[c.offset :][: c.length] for c in leaf.manifest.chunks.values()]
            assert leaf.manifest.codec.raw
            assert b"".join(stored) == value.numpy().transpose(order).tobytes(), name
        for region in random_regions(tuple(value.shape), 30):
            found = source.read(leaf, region)
            assert same(
                np.ascontiguousarray(found).reshape(found.shape), value.numpy()[region.slices].copy()
            ), (name, region)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_every_dtype(dtype: str, tmp_path: Path) -> None:
    value = array((6, 8), dtype)
    source = opened(saved({"w": tensor(value)[1::2, 1:7:3], "t": tensor(value).T}, tmp_path / "saved.pt"))
    assert_same(values(source), {"w": value[1::2, 1:7:3], "t": value.T})


def test_views_of_bits(tmp_path: Path) -> None:
    """Parts of complex numbers, and bits seen as another type: one storage under several types."""
    value = torch.from_numpy(array((5, 3), "complex64"))
    source = opened(saved({"im": value.imag, "bits": torch.ones(4).view(torch.int32)}, tmp_path / "saved.pt"))
    assert_same(values(source), {"im": value.imag.numpy().copy(), "bits": np.full(4, 0x3F800000, np.int32)})


def test_views_larger_than_one_read(tmp_path: Path) -> None:
    whole = torch.arange(900 * 3000, dtype=torch.int32).reshape(900, 3000)
    views = {
        "gaps in every row": whole[:, ::3],
        "rows with gaps between them": whole[:, :1000].t(),
        "elements far from each other": whole[:, 7],
        "the same row again and again": whole[0].expand(900, 3000),
        "windows that overlap": whole.reshape(-1).unfold(0, 1000, 700),
    }
    source = opened(saved(views, tmp_path / "saved.pt"))
    for name, leaf in source.leaves().items():
        wanted = views[name].numpy()
        assert leaf.manifest is None
        for region in random_regions(wanted.shape, 6):
            assert same(source.read(leaf, region), np.array(wanted[region.slices], order="C")), (name, region)


def test_a_region_of_a_view_takes_its_own_memory_only(tmp_path: Path) -> None:
    value = torch.zeros(1, dtype=torch.uint8).expand(2**40, 2**10)
    wide = torch.zeros(2**12, 2**12, dtype=torch.uint8)[:, ::2]
    source = opened(saved({"huge": value, "wide": wide}, tmp_path / "saved.pt"))
    read = {"huge": Region((2**39, 5), (2**39 + 1000, 1005)), "wide": Region((0, 7), (2**12, 250))}
    for name, region in read.items():
        with bounded(region.size + 3 * 2**20):
            assert source.read(source.leaves()[name], region).shape == region.shape


# --- models of several files ------------------------------------------------------------------------------

A, B = {"a.weight": array((2, 3), "float32")}, {"b.weight": array((4,), "bfloat16")}
FIRST, SECOND = "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"


def sharded(directory: Path) -> Path:
    """A model in two files, with an index."""
    directory.mkdir()
    weights: dict[str, Any] = {}
    for name, arrays in ((FIRST, A), (SECOND, B)):
        saved(OrderedDict((key, tensor(value)) for key, value in arrays.items()), directory / name)
        weights |= dict.fromkeys(arrays, name)
    index = {"metadata": {"total_size": 32}, "weight_map": weights}
    (directory / INDEX).write_text(json.dumps(index))
    return directory


def test_shards(tmp_path: Path) -> None:
    path = sharded(tmp_path / "model")
    for chosen in (path, path / INDEX):
        assert FORMAT.recognizes(chosen)
        assert_same(values(opened(chosen)), {**A, **B})
    assert_same(values(opened(path / FIRST)), A)
    before = opened(path).fingerprint()
    os.utime(path / INDEX, ns=(1, 1))
    assert opened(path).fingerprint() != before
    (path / INDEX).unlink()
    assert FORMAT.recognizes(path)
    with pytest.raises(SourceError, match=f"shards .* without their index {INDEX}"):
        opened(path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "diffusion_pytorch_model.bin", "adapter_model.bin"])
def test_a_model_in_one_file(name: str, tmp_path: Path) -> None:
    saved(state_of(A), tmp_path / name)
    saved({"lr": 0.5}, tmp_path / "optimizer.pt")
    (tmp_path / "config.json").write_text("{}")
    assert FORMAT.recognizes(tmp_path)
    assert_same(values(opened(tmp_path)), A)


# --- recognizing ------------------------------------------------------------------------------------------


def test_files_are_recognized_by_content(tmp_path: Path) -> None:
    data = saved(state_of(A), tmp_path / "saved.pt").read_bytes()
    np.savez(tmp_path / "numpy.npz", a=np.ones(2))
    numpy = (tmp_path / "numpy.npz").read_bytes()
    known = dict.fromkeys(("x.pt", "x.pth", "x.bin", "x.ckpt", "x", "x.npz"), data) | {"cut.pt": data[:100]}
    for name, content in (known | {"b.pt": numpy, "c.pt": pickle.dumps({}), "d.bin": b""}).items():
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as file:
        file.writestr("project/readme", "text")
    (tmp_path / "f.bin").mkdir()
    os.mkfifo(tmp_path / "g.pt")
    found = [path.name for path in (*tmp_path.iterdir(), tmp_path / "missing.pt") if FORMAT.recognizes(path)]
    assert sorted(found) == sorted([*known, "saved.pt"])


def test_packed_again_by_another_program(tmp_path: Path) -> None:
    """The members in another order, under another prefix."""
    with (
        zipfile.ZipFile(saved(state_of(A), tmp_path / "saved.pt")) as old,
        zipfile.ZipFile(tmp_path / "new.pt", "w") as new,
    ):
        for name in sorted(old.namelist()):
            new.writestr(name.replace("saved/", "other/"), old.read(name))
    assert FORMAT.recognizes(tmp_path / "new.pt")
    assert_same(values(opened(tmp_path / "new.pt")), A)
