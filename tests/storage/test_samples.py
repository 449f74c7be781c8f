"""Samples of files: which bytes they are made of, and what of a checkpoint they tell apart."""

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest
from google_crc32c import value as crc32c

from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.storage.samples import BLOCK, BLOCKS, EDGE, ranges, state_of, states
from tests.support.failing import refusing

WHOLE = 2 * EDGE + BLOCKS * BLOCK
"""Bytes of the largest file that is its own sample."""


@pytest.mark.parametrize("size", [0, 1, EDGE, 2 * EDGE, WHOLE])
def test_a_small_file_is_its_own_sample(size: int) -> None:
    assert list(ranges(size)) == [(0, size)]


@pytest.mark.parametrize("size", [WHOLE + 1, WHOLE + 4097, 10**6, 10**9 + 7, 5 * 2**40])
def test_a_larger_one_is_sampled_in_ten_places(size: int) -> None:
    """Both ends, and blocks in the middles of eight equal parts of what lies between: none twice."""
    found = ranges(size)
    assert [length for _, length in found] == [EDGE, *[BLOCK] * BLOCKS, EDGE]
    assert (found[0][0], sum(found[-1])) == (0, size)
    assert all(sum(one) <= other[0] for one, other in pairwise(found))
    part = (size - 2 * EDGE) / BLOCKS
    for number, (start, length) in enumerate(found[1:-1]):
        assert abs(start + length / 2 - (EDGE + (number + 0.5) * part)) <= 1


def test_the_sample_is_the_checksum_of_these_bytes(tmp_path: Path) -> None:
    """The numbers are written down, for records that exist must stay comparable."""
    data = os.urandom(300_000)
    (tmp_path / "file").write_bytes(data)
    blocks = [data[:65536], *(data[n : n + 4096] for n in PLACES), data[-65536:]]
    assert state_of(str(tmp_path / "file")).sample == crc32c(b"".join(blocks))


PLACES = (74046, 95162, 116278, 137394, 158510, 179626, 200742, 221858)


@pytest.mark.parametrize(
    ("at", "seen"), [(0, True), (65535, True), (65536, False), (74046, True), (-1, True)]
)
def test_a_byte_inside_or_outside_of_the_sample(at: int, seen: bool, tmp_path: Path) -> None:
    data = bytearray(os.urandom(300_000))
    (tmp_path / "file").write_bytes(data)
    before = state_of(str(tmp_path / "file"))
    data[at] ^= 1
    (tmp_path / "file").write_bytes(data)
    assert (state_of(str(tmp_path / "file")).sample != before.sample) is seen


def test_states_of_a_checkpoint_are_those_of_its_files_wherever_it_lies(tmp_path: Path) -> None:
    """Records are no part of it, and what is missing is left out."""
    for name in ("run/a", "run/d/b", "run/ckpt_surgery.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        os.utime(tmp_path / name, ns=(0, 7))
    files = [str(tmp_path / "run" / name) for name in ("a", "d/b", "none", "ckpt_surgery.json")]
    assert states(files) == {
        "a": FileState(5, 7, sample=crc32c(b"run/a")),
        "d/b": FileState(7, 7, sample=crc32c(b"run/d/b")),
    }


def test_a_file_that_may_not_be_read_is_known_by_size_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a file beside the data kept no run from reading the data before there were samples."""
    (tmp_path / "secret").write_bytes(b"123")
    os.utime(tmp_path / "secret", ns=(0, 7))
    monkeypatch.setattr("ckpt_surgery.storage.reading.os.open", refusing(errno.EACCES))
    assert states([str(tmp_path / "secret")]) == {"secret": FileState(3, 7)}
