"""What is no checkpoint for this package, and what people are told to do about it."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.formats.recognition import HEAD_BYTES, recognized, stand_in, without_arrays
from tests.support.checkpoints import quiet
from tests.support.directories import touched
from tests.support.heavy import ocp, ts

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22\n"


def pickled_by_torch(path: Path) -> None:
    import torch

    torch.save({"a": torch.ones(3)}, path, _use_new_zipfile_serialization=False)


def tar_of(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with tarfile.open(path, "w") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = 4
                archive.addfile(member, io.BytesIO(b"data"))

    return write


def zip_of(*names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"data")

    return write


def files(*names: str) -> Callable[[Path], object]:
    return lambda path: touched(path, *names)


# name, what it holds, what is said of it, a part of what to do
FILES = [
    ("m.pt", pickled_by_torch, "a PyTorch file saved before 1.6", "Re-save it with PyTorch 1.6 or later: "),
    ("m.pth", tar_of("sys_info", "pickle"), "a PyTorch file from before 0.1.10, in tar form", "torch.save"),
    ("params.pkl", pickle.dumps({"a": np.ones(3)}), "a pickle", "numpy.savez"),
    ("p", pickle.dumps([1], protocol=2), "a pickle", "Pickles run code"),
    ("m.tflite", b"\x1c\0\0\0TFL3" + bytes(50), "a TensorFlow Lite model", "the checkpoint or SavedModel"),
    ("m.onnx", b"\x08\x07\x12\x07pytorch", "an ONNX model", "onnx.numpy_helper.to_array"),
    ("m-3.data-00000-of-00002", bytes(100), "a part of a TensorFlow checkpoint", "the index m-3.index first"),
    ("__0_0.distcp", zip_of("archive/data.pkl"), "a part of a distributed checkpoint of", "its directory"),
    (
        ".metadata",
        b"\x80\x04\x8c%torch.distributed.checkpoint.metadata.",
        "a part of a distributed checkpoint of PyTorch",
        "Name its directory",
    ),
    ("m.meta", b"\x0a\xc3\x01", "the graph of a TensorFlow checkpoint", "Name its index, m.index,"),
    ("model.safetensors", LFS, "a Git LFS pointer", "`git lfs pull`"),
    ("model.npz", b"<!DOCTYPE html>\n<html>", "a web page", "download it again"),
    ("m", b"\xef\xbb\xbf\n  <HTML lang=en>", "a web page", "download it again"),
    (
        "m",
        b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code>',
        "an error message of a file server",
        "download it again",
    ),
    ("m.gz", gzip.compress(b"x"), "a gzip archive", "Unpack it"),
    ("m.zst", bytes.fromhex("28b52ffd") + b"x", "a zstd archive", "Unpack it"),
    ("m.xz", lzma.compress(b"x"), "an xz archive", "Unpack it"),
    ("m.bz2", bz2.compress(b"x"), "a bzip2 archive", "Unpack it"),
    ("m.7z", bytes.fromhex("377abcaf271c0004"), "a 7z archive", "Unpack it"),
    ("m.tar", tar_of("checkpoint/_METADATA"), "a tar archive", "Unpack it"),
    ("m.zip", zip_of("notes.md"), "a zip archive without arrays", "Unpack it"),
    ("config.yaml", "hidden: 3\nname: ключ\n".encode(), "a text file", "Name the checkpoint itself"),
    ("long.txt", ("x" + "é" * HEAD_BYTES).encode(), "a text file", "Name"),  # a character is cut in two
    ("empty", b"", "an empty file", "is complete"),
]

DIRECTORIES = [
    (files("latest", "zero_to_fp32.py", "global_step7/"), "a DeepSpeed checkpoint", "python zero_to_fp32.py"),
    (files("mp_rank_00_model_states.pt"), "a DeepSpeed checkpoint", "zero_to_fp32.py"),
    (files("bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"), "a DeepSpeed checkpoint", "zero_to_fp32.py"),
    (files("mp_rank_00/model_optim_rng.pt"), "a Megatron-LM checkpoint", "tools/checkpoint/convert.py"),
    (files("mp_rank_01_003/x"), "a Megatron-LM checkpoint", "convert.py"),
    (files("latest_checkpointed_iteration.txt", "iter_0000010/"), "a Megatron-LM checkpoint", "convert.py"),
    (
        files("blobs/x", "refs/main", "snapshots/abc/config.json"),
        "a repository in Hugging Face's cache",
        "snap",
    ),
    (
        files("config.json", "tokenizer.json"),
        "the directory of a model without its weights",
        "get the weights",
    ),
    (files(), "an empty directory", "Check the path"),
    (
        files("1/", "2/", "step_10/x", "ckpt-20/"),
        "a directory of steps (1, 2, ckpt-20, …) without arrays in them",
        "saves were finished",
    ),
]


def make(content: bytes | Callable[[Path], None], path: Path) -> Path:
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    return path


def refusal(path: Path, format: str | None = None) -> str:
    with pytest.raises((SourceError, UsageError)) as caught:
        open_source(os.fspath(path), format)
    return str(caught.value)


@pytest.mark.parametrize(("name", "content", "what", "hint"), FILES, ids=[f"{r[0]}:{r[2]}" for r in FILES])
def test_files(
    name: str, content: bytes | Callable[[Path], None], what: str, hint: str, tmp_path: Path
) -> None:
    told = refusal(make(content, tmp_path / name))
    assert f"looks like {what}" in told
    assert hint in told


@pytest.mark.parametrize(("content", "what", "hint"), DIRECTORIES, ids=[r[1] for r in DIRECTORIES])
def test_directories(content: Callable[[Path], None], what: str, hint: str, tmp_path: Path) -> None:
    told = refusal(make(content, tmp_path / "it"))
    assert told.startswith(f"{tmp_path}/it cannot be read: it looks like {what}\n")
    assert hint in told


@pytest.mark.parametrize(
    "content",
    [
        b"\x80",  # an empty map in msgpack
        b"\x80\x04 no stop",
        b"\x80\x09N.",
        b"GG\0U",
        b"\x1f",
        b"\0" * 3000,
        b"\xff\xfe\xfd",
        "é".encode() + b"\xff" + b"x" * 20,  # not text
    ],
)
def test_what_is_not_known(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert recognized(os.fspath(tmp_path / "x")) is None


def test_what_is_neither_file_nor_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "gone", "loop", "missing"):
        for look in (recognized, stand_in, without_arrays):
            assert look(os.fspath(tmp_path / name)) is None
    assert stand_in(os.fspath(tmp_path)) is None


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_saved_model_without_variables(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x01")
    (tmp_path / "assets").mkdir()
    for more in (None, "variables"):
        if more:
            (tmp_path / more).mkdir()
        told = refusal(tmp_path)
        assert "looks like a TensorFlow SavedModel without its variables" in told
        assert "`variables` is missing or empty" in told
    (tmp_path / "variables" / "variables.index").write_bytes(b"damaged")
    assert stand_in(os.fspath(tmp_path)) is None


def test_names_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0\0\0\0TFL3")
    (tmp_path / "\x1b[31m.bin").write_bytes(LFS)
    found = stand_in(os.fspath(tmp_path))
    assert found.what.endswith("in place of \\x1b[31m.bin")
    (tmp_path / "\x1b[31m.bin").unlink()
    (tmp_path / "\x1b_1").mkdir()
    steps = without_arrays(os.fspath(tmp_path))
    assert "(\\x1b_1)" in steps.what


@pytest.mark.parametrize(
    ("name", "first"), [("model.eqx", b""), ("model.bin", b""), ("model.eqx", b'{"width": 2}\n')]
)
def test_files_of_equinox(name: str, first: bytes, tmp_path: Path) -> None:
    import equinox

    with open(tmp_path / name, "wb") as file:
        file.write(first)
        equinox.tree_serialise_leaves(file, {"a": np.zeros((2, 3)), "b": np.ones(4)})
    assert "arrays one after another, without names" in refusal(tmp_path / name)
    assert "damaged" not in refusal(tmp_path / name)


def test_a_store_of_tensorstore(tmp_path: Path) -> None:
    store = {"driver": "ocdbt", "base": f"file://{tmp_path}/store/", "path": "w/"}
    metadata = {"shape": [4], "chunks": [4], "dtype": "<f4"}
    spec = {"driver": "zarr", "kvstore": store, "metadata": metadata}
    ts.open(spec, create=True).result().write(np.zeros(4, np.float32)).result()
    assert "is an OCDBT store without the _METADATA" in refusal(tmp_path / "store")


def test_an_item_of_json(tmp_path: Path) -> None:
    items = ocp.args.Composite(
        state=ocp.args.StandardSave({"a": np.zeros(3)}), iter=ocp.args.JsonSave({"i": 3})
    )
    with quiet(), ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=items)
    assert "is an item of JSON, without arrays" in refusal(tmp_path / "run/1/iter")
    with pytest.raises(UsageError, match="is an item of JSON, without arrays"):  # nor is it damaged
        ckpt_surgery.verify(tmp_path / "run/1/iter")
    (tmp_path / "run/1/iter/metadata").rename(tmp_path / "run/1/iter/other")
    assert "holds no arrays, only " in refusal(tmp_path / "run/1/iter")
