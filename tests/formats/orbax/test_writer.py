"""Data files of one worker, its notes, and what it finds of an earlier process."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk, contiguous
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.opening import open_sink, open_source
from ckpt_surgery.formats.orbax import writer as module
from ckpt_surgery.formats.orbax.writer import OrbaxWriter, notes_bytes, read_notes
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.storage.places import Places, open_places
from tests.support import checkpoints
from tests.support.calls import record_calls
from tests.support.comparing import assert_same, same
from tests.support.reading import read
from tests.support.reading import values as values_of
from tests.support.writing import leaf_of

OWN = "ocdbt.process_w/"


@pytest.fixture(params=["directory", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "store":
        return f"{request.getfixturevalue('bucket')}/new"
    (tmp_path / "new").mkdir()
    return str(tmp_path / "new")


def arrays(count: int, shape: tuple[int, ...] = (30, 40)) -> dict[str, np.ndarray]:
    """Arrays of random numbers, of 4.8 kB each."""
    return {f"a{n}": checkpoints.random(shape, n) for n in range(count)}


def written(places: Places, values: dict[str, np.ndarray]) -> OrbaxWriter:
    """A worker that has written, and not flushed."""
    worker = OrbaxWriter(places, 3, "w")
    for name, value in values.items():
        worker.write(Output(leaf_of(name, value), value.shape), Region.whole(value.shape), value)
    return worker


def found(places: Places, values: dict[str, np.ndarray]) -> list[str]:
    """Names of the arrays that a new process of the same worker reads as they were written."""
    worker, there = OrbaxWriter(places, 3, "w"), []
    for name, value in values.items():
        try:
            block = worker.read(Output(leaf_of(name, value), value.shape), Region.whole(value.shape))
        except SourceError:
            continue
        assert same(block, value), name
        there.append(name)
    return there


def test_chunks_are_gathered_into_files(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 10_000)
    places, values = open_places(root), arrays(7)
    worker = written(places, values)
    data = [size for name, size in places.sizes().items() if "/d/" in name]
    assert len(data) == 2
    assert all(10_000 <= size < 16_000 for size in data)
    worker.flush()
    assert len([name for name in places.sizes() if "/d/" in name]) == 3
    assert found(places, values) == list(values)


def test_only_what_was_flushed_is_found(root: str) -> None:
    places, values = open_places(root), arrays(4)
    worker = written(places, dict(list(values.items())[:2]))
    assert found(places, values) == []
    worker.flush()
    for name in ("a2", "a3"):
        value = values[name]
        worker.write(Output(leaf_of(name, value), value.shape), Region.whole(value.shape), value)
    assert found(places, values) == ["a0", "a1"]
    worker.flush()
    assert found(places, values) == list(values)


def test_later_notes_win(root: str) -> None:
    places, values = open_places(root), arrays(1)
    written(places, {"a0": np.zeros_like(values["a0"])}).flush()
    written(places, values).flush()
    assert found(places, values) == ["a0"]


@pytest.mark.parametrize("harm", ["torn note", "flipped note", "missing data", "short data"])
def test_what_a_power_cut_has_left_of_it_was_not_written(harm: str, tmp_path: Path) -> None:
    places, values = open_places(tmp_path), arrays(3)
    tiny = {"tiny": np.arange(3.0)}  # inline
    written(places, values | tiny).flush()
    (notes,) = tmp_path.glob(f"{OWN}part-*")
    (data,) = tmp_path.glob(f"{OWN}d/*")
    text = notes.read_bytes()
    at = len(text) // 2
    match harm:
        case "torn note":
            notes.write_bytes(text[:at])
        case "flipped note":
            notes.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        case "missing data":
            data.unlink()
        case "short data":
            os.truncate(data, data.stat().st_size - 1)
    kept = {"missing data": ["tiny"], "short data": ["a0", "a1", "tiny"]}
    assert found(places, values | tiny) == kept.get(harm, [])


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    entries = {f"é.{i}/c/0": Chunk(f"{OWN}d/{i % 3}", i, 2 * i) for i in range(5000)}
    entries |= {"x/c": b"\0\xff", "y/c": b"", "linked/c": Chunk("d/1", 2**40, 2**33)}
    places = open_places(tmp_path)
    places.put(f"{OWN}part-000000-0", [notes_bytes(entries)])
    sizes = {**places.sizes(), **{f"{OWN}d/{n}": 20_000 for n in range(3)}}
    assert read_notes(places, "w", sizes) == entries


def copied(name: str, file: Path | str, offset: int, value: np.ndarray) -> Output:
    """An output whose stored bytes are copied from a file."""
    leaf = leaf_of(name, value)
    return Output(leaf, value.shape, contiguous(leaf.spec, str(file), offset), copied=True)


def test_stored_bytes_are_copied_once_and_known_ones_not_again(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, file = arrays(3), tmp_path / "source"
    file.write_bytes(b"".join(value.tobytes() for value in values.values()))
    size = values["a0"].nbytes
    outputs = [copied(name, file, n * size, value) for n, (name, value) in enumerate(values.items())]
    tied = replace(outputs[0], leaf=leaf_of("tied", values["a0"]))
    places = open_places(root)
    first = OrbaxWriter(places, 3, "w")
    crcs = [first.adopt(output).chunks for output in (*outputs, tied)]
    assert [list(crc.values()) for crc in crcs] == [
        [bytes_crc(value.tobytes())] for value in (*values.values(), values["a0"])
    ]
    first.flush()
    (data,) = [name for name in places.sizes() if "/d/" in name]
    assert places.sizes()[data] == 3 * size
    read_again = record_calls(monkeypatch, module, "read_ranges", list)
    content = bytearray(places.read([Chunk(data, 0, 3 * size)])[0])
    content[size + 5] ^= 1
    places.put(data, [bytes(content)])
    again = OrbaxWriter(places, 3, "w")
    assert [again.adopt(o, known).chunks for o, known in zip((*outputs, tied), crcs, strict=True)] == crcs
    assert [chunk.offset for chunks in read_again for chunk in chunks] == [size]
    again.flush()
    sink = open_sink("orbax", root, SinkOptions(), [*outputs, tied])
    sink.finish(["w"])
    assert_same(values_of(open_source(root)), {**values, "tied": values["a0"]})


def test_a_large_chunk_is_copied_to_a_file_of_its_own(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 1000)
    value = arrays(1)["a0"]
    (tmp_path / "source").write_bytes(value.tobytes())
    sink = open_sink("orbax", root, SinkOptions(), [copied(n, tmp_path / "source", 0, value) for n in "xy"])
    sink.create()
    worker: Any = sink.attach("w")
    crcs = [worker.adopt(output).chunks for output in sink.outputs]
    assert crcs[0] == crcs[1]
    worker.flush()
    sink.finish(["w"])
    assert_same(values_of(open_source(root)), {"x": value, "y": value})
    again: Any = sink.attach("w")
    monkeypatch.setattr(module, "read_ranges", None)
    assert [again.adopt(o, known).chunks for o, known in zip(sink.outputs, crcs, strict=True)] == crcs


def test_what_other_workers_and_earlier_attempts_left_is_removed(tmp_path: Path) -> None:
    value = arrays(1)["a0"]
    sink = open_sink("orbax", tmp_path, SinkOptions(), [Output(leaf_of("a0", value), value.shape)])
    sink.create()
    for worker in ("w", "late"):
        written = sink.attach(worker)
        written.write(sink.outputs[0], Region.whole(value.shape), value)
        written.flush()
    (tmp_path / OWN / "d" / "unnoted").write_bytes(b"1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "other").write_bytes(b"2")
    for _ in range(2):
        sink.finish(["w"])
        assert sorted(path.name for path in tmp_path.glob("ocdbt*")) == ["ocdbt.process_w"]
        assert len(list((tmp_path / OWN / "d").iterdir())) == len(list((tmp_path / "d").iterdir())) == 1
        assert_same(read(tmp_path), {"a0": value})
