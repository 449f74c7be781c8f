"""The sink of files that are planned as data: what is in them, and when."""

from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.formats.planned_sink import PlannedSink
from ckpt_surgery.formats.registry import FilePlan
from ckpt_surgery.storage.reading import OpenFile
from ckpt_surgery.storage.regions import Pieces, PlacedArray
from tests.support.writing import output_of, write_all

VALUE = np.arange(4, dtype=np.uint8)
ARRAY = PlacedArray(ArraySpec((4,), VALUE.dtype), ((2, 4),))


def summed(file: OpenFile) -> Pieces:
    """The sum of the elements, behind them."""
    return [(6, bytes([sum(file.read(2, 4))]))]


def recorded(text: str) -> Pieces | None:
    return [(7, text.encode())] if len(text) == 1 else None


ONE = FilePlan("one", 8, [(0, b"<<")], {"x": ARRAY}, summed, recorded)
TWO = FilePlan("two", 3, [(1, b"!")])


def test_a_file_has_its_size_first_and_its_seal_last(tmp_path: Path) -> None:
    sink = PlannedSink(tmp_path, [ONE], [output_of("x", VALUE)])
    sink.create()
    assert (tmp_path / "one").read_bytes() == b"<<" + bytes(6)
    sink.attach("0").write(sink.outputs[0], Region((0,), (4,)), VALUE)
    sink.create()
    assert (tmp_path / "one").read_bytes() == b"<<\0\1\2\3\0\0"
    sink.finish(["0"])
    assert (tmp_path / "one").read_bytes() == b"<<\0\1\2\3\6\0"


def test_the_record_of_one_file_is_in_it_if_it_has_room(tmp_path: Path) -> None:
    write_all(sink := PlannedSink(tmp_path, [ONE], [output_of("x", VALUE)]), {"x": VALUE})
    assert not sink.record("too long")
    assert (tmp_path / "one").read_bytes()[7:] == b"\0"
    assert sink.record("r")
    assert (tmp_path / "one").read_bytes()[7:] == b"r"
    assert not PlannedSink(tmp_path, [TWO], []).record("r")


def test_the_record_of_several_files_is_beside_them(tmp_path: Path) -> None:
    write_all(sink := PlannedSink(tmp_path, [ONE, TWO], [output_of("x", VALUE)]), {"x": VALUE})
    assert (tmp_path / "two").read_bytes() == b"\0!\0"
    assert sink.record("r")
    assert (tmp_path / "ckpt_surgery.json").read_text() == "r"
    assert (tmp_path / "one").read_bytes()[7:] == b"\0"
