"""GGUF files in: conformance against the package `gguf`, their metadata, and models in several files."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.gguf import FORMAT
from ckpt_surgery.formats.gguf.source import MOST_HEADER_BYTES, PAGE
from tests.formats.bounds import bounded
from tests.formats.gguf.files import PLAIN, entry, made, numbers_of, save, tensor, text
from tests.formats.gguf.files import array as array_value
from tests.formats.gguf.lies import LIES, SPLIT_LIES
from tests.support import conformance
from tests.support.arrays import array
from tests.support.comparing import assert_same
from tests.support.conformance import SLACK_BYTES, Arrays
from tests.support.reading import opened, values


class TestOneFile(conformance.Reading):
    format = "gguf"
    dtypes = tuple(PLAIN)
    lies = LIES

    def sample(self) -> dict[str, np.ndarray]:
        """The types differ from those of other formats: there are neither booleans nor unsigned integers."""
        return {
            "dense/kernel": array((4, 6), "float32"),
            "dense/bias": array((6,), "bfloat16"),
            "count": array((), "int32"),
            "blk.0.weight": array((3, 5), "float16"),
            "none/of/it": array((0, 4), "float32"),
            "bytes": array((7,), "int8"),
        }

    def save(self, arrays: Arrays, path: Path) -> Path:
        return save(arrays, path.with_suffix(".gguf"))


class TestSplitModel(TestOneFile):
    """As `gguf-split` and the converter write large models: two tensors in each file."""

    dtypes = ("bfloat16", "int8")
    lies = SPLIT_LIES

    def save(self, arrays: Arrays, path: Path) -> Path:
        path.mkdir()
        save(arrays, path / "model.gguf", per_file=2)
        return path


# --- detection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({"m.gguf": b"GGUF"}, True),
        ({"m.GGUF": b""}, True),  # damaged
        ({"m-00002-of-00003.gguf": b"GGUF"}, True),
        ({"m.gguf": b"GGUF", "config.json": b"{}"}, True),
        ({"m.gguf": b"GGUF", "model.safetensors": b""}, False),  # the model's own weights come first
        ({"m.gguf": b"GGUF", "pytorch_model.bin.index.json": b""}, False),
        ({"m.ggml": b"GGUF"}, False),
        ({}, False),
    ],
)
def test_detection_in_directories(files: Mapping[str, bytes], known: bool, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert FORMAT.recognizes(os.fspath(tmp_path)) == known


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    for name, data in (("short", b"GGU"), ("empty", b""), ("x", b"GGUF"), ("long", b"GGUF" + bytes(100))):
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    names = ("short", "empty", "x", "long", "pipe.gguf", "gone.gguf", "missing")
    assert [name for name in names if FORMAT.recognizes(str(tmp_path / name))] == ["x", "long"]


def test_a_directory_of_several_models_is_not_one(tmp_path: Path) -> None:
    """The files of a split model are one."""
    save({"a": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}, tmp_path / "f16.gguf", per_file=1)
    assert list(opened(tmp_path).leaves()) == ["a", "b"]
    save({"a": np.ones(4, np.float32)}, tmp_path / "q4.gguf")
    says = r"holds 2 GGUF models: f16-00001-of-00002\.gguf, q4\.gguf\n  Name the file that is meant"
    with pytest.raises(SourceError, match=says):
        opened(tmp_path)
    assert list(opened(tmp_path / "q4.gguf").leaves()) == ["a"]


# --- the header -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [1, 8, 32, 256, 4096])
def test_data_is_aligned_as_the_file_says(alignment: int, tmp_path: Path) -> None:
    arrays = {"a": array((3,), "int8"), "b": array((5,), "float32"), "c": array((2, 2), "float16")}
    path = save(arrays, tmp_path / "x.gguf", lambda writer: writer.add_custom_alignment(alignment))
    assert_same(values(opened(path)), arrays)


@pytest.mark.parametrize("version", [2, 3])
def test_gaps_and_bytes_after_the_tensors_are_nobodys(version: int, tmp_path: Path) -> None:
    data = bytes(64) + np.arange(4, dtype=np.float32).tobytes() + bytes(1000)
    tensors = [tensor("a", (2, 2), 0, 64), tensor("none", (0,), 0, 2**40)]
    path = made(tmp_path / "x", tensors, data=data, version=version)
    wanted = {"a": np.arange(4, dtype=np.float32).reshape(2, 2), "none": np.zeros(0, np.float32)}
    assert_same(values(opened(path)), wanted)


def test_metadata(tmp_path: Path) -> None:
    numbers: dict[str, dict[str, Any]] = {
        **{kind: {f"one {kind}": 100} for kind in ("uint8", "int8", "uint16", "int16", "uint32")},
        "int32": {"negative": -5},
        "uint64": {"large": 2**64 - 1},
        "int64": {"least": -(2**63)},
        "float32": {"rounded": 1e-5, "infinite": float("-inf")},
        "float64": {"precise": 0.1, "no number": float("nan")},
        "bool": {"yes": True},
        "string": {"name": "a λ"},
        "array": {"some": [1, 2, 3], "words": ["a", "b"], "truths": [True, False]},
    }

    def about(writer: gguf.GGUFWriter) -> None:
        for kind, entries in numbers.items():
            for name, value in entries.items():
                getattr(writer, f"add_{kind}")(name, value)

    found = opened(save({}, tmp_path / "x.gguf", about)).metadata
    wanted = {name: value for entries in numbers.values() for name, value in entries.items()}
    wanted |= {"general.architecture": "llama", "infinite": "-inf", "no number": "nan"}
    assert found == wanted
    assert type(found["yes"]) is bool


def test_what_is_long_in_the_metadata_is_described(tmp_path: Path) -> None:
    """Longer than what is read at once, so that texts lie across its borders. None of it is kept."""
    count = 40_000
    words = b"".join(text(f"word {i}" * (i % 7)) for i in range(count))
    entries = [
        entry("words", 9, array_value(8, count, words)),
        entry("scores", 9, array_value(6, count, bytes(4 * count))),
        entry("truths", 9, array_value(7, count, bytes([0, 1]) * (count // 2))),
        entry("pairs", 9, array_value(9, 1000, array_value(0, 2, b"ab") * 1000)),
        entry("template", 8, text("x" * 2 * count)),
        *numbers_of(last=7),
    ]
    path = made(tmp_path / "x.gguf", [tensor("a", (4,))], entries)
    assert path.stat().st_size > 8 * PAGE
    with bounded(SLACK_BYTES):
        source = opened(path)
    assert source.metadata == {
        "words": {"type": "string", "length": count},
        "scores": {"type": "float32", "length": count},
        "truths": {"type": "bool", "length": count},
        "pairs": {"type": "array", "length": 1000},
        "template": {"type": "string", "length": 2 * count},
        "last": 7,
    }
    assert_same(values(source), {"a": np.zeros(4, np.float32)})


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (array_value(8, 2**30), f"beyond byte {MOST_HEADER_BYTES}"),
        (array_value(8, 300, struct.pack("<Q", 2**30)), "bytes of texts end beyond byte"),
    ],
)
def test_a_header_is_only_so_long(texts: bytes, says: str, tmp_path: Path) -> None:
    """However long the file: with holes it takes no space. Nothing of it is read in vain."""
    path = made(tmp_path / "x.gguf", [], [entry("a", 9, texts)])
    os.truncate(path, 2**36)
    with pytest.raises(SourceError, match=says), bounded(SLACK_BYTES):
        opened(path)


# --- models in several files ------------------------------------------------------------------------------


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """The directory of a model in three files."""
    arrays = {f"t{i}": np.full(4, i, np.float32) for i in range(5)}
    (tmp_path / "split").mkdir()
    save(arrays, tmp_path / "split" / "m.gguf", lambda writer: writer.add_block_count(2), per_file=2)
    return tmp_path / "split"


def test_the_first_file_stands_for_the_model(split: Path) -> None:
    for path in (split, split / "m-00001-of-00003.gguf"):
        source = opened(path)
        assert [float(value[0]) for value in values(source).values()] == [0, 1, 2, 3, 4]
        assert source.metadata == {"general.architecture": "llama", "llama.block_count": 2}
        assert len(list(source.files())) == 3
    says = r"m-00002-of-00003\.gguf is file 2 of a split model\n  Name its first, m-00001-of-00003\.gguf"
    with pytest.raises(SourceError, match=says):
        opened(split / "m-00002-of-00003.gguf")
    (split / "m-00001-of-00003.gguf").unlink()  # a region is read from its own file
    assert source.read(source.leaves()["t4"], Region((1,), (3,))).tolist() == [4, 4]


@pytest.mark.parametrize(
    ("names", "open", "says"),
    [
        ({"1": "m.gguf"}, "m.gguf", r"file 1 of 3, and its name does not say that"),
        ({"2": "x.gguf"}, "m-00001-of-00003.gguf", r"m-00002-of-00003\.gguf is missing"),
        ({"1": "m-00001-of-00004.gguf"}, "m-00001-of-00004.gguf", r"-of-00004\.gguf is missing|1 of 3, and"),
        ({"1": "x", "2": "m-00001-of-00003.gguf"}, "m-00001-of-00003.gguf", r"file 2 of 3, and its name"),
    ],
)
def test_files_that_are_not_what_their_names_say(
    names: dict[str, str], open: str, says: str, split: Path
) -> None:
    for number, name in names.items():
        (split / f"m-0000{number}-of-00003.gguf").rename(split / name)
    with pytest.raises(SourceError, match=says):
        opened(split / open)


def test_a_file_named_as_a_part_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="by its metadata it is file 1 of 1"):
        opened(made(tmp_path / "m-00001-of-00002.gguf"))
    assert list(opened(made(tmp_path / "m-00001-of-00001.gguf")).leaves()) == ["a"]


def test_a_hundred_thousand_files_that_are_not_there(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-99999.gguf"
    made(first, entries=numbers_of(split__no=0, split__count=99_999))
    with pytest.raises(SourceError, match=r"m-00002-of-99999\.gguf is missing"), bounded(SLACK_BYTES):
        opened(first)
