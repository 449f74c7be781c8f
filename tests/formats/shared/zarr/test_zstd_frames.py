"""Frames that real compressors wrote, whole and cut at every byte."""

import random

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.formats.shared.zarr.chunk_checks import zstd_flaw

SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"


def compressed(data: bytes, level: int = 1, checksum: bool = False) -> bytes:
    return bytes(numcodecs.Zstd(level=level, checksum=checksum).encode(data))


def flaw(stored: bytes, nbytes: int | None) -> str | None:
    def read(at: int, count: int) -> bytes:
        assert at >= 0
        assert at + count <= len(stored), "no byte after the end is asked for"
        return stored[at : at + count]

    return zstd_flaw(read, len(stored), nbytes)


def noise(count: int) -> bytes:
    return random.Random(count).randbytes(count)


CONTENTS = {
    "nothing": b"",
    "one byte": b"x",
    "less than 256 bytes": noise(200),
    "less than 64 KiB": noise(60_000),
    "several blocks that do not compress": noise(400_000),
    "runs of one byte": bytes(1_000_000),
    "what compresses a little": np.repeat(np.arange(50_000, dtype=np.int32), 3).tobytes(),
}


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("content", CONTENTS)
def test_whole_frames(content: str, checksum: bool) -> None:
    data = CONTENTS[content]
    for level in (1, 3, 19):
        stored = compressed(data, level, checksum)
        assert flaw(stored, len(data)) is None
        assert flaw(stored, None) is None
        assert flaw(stored, len(data) + 1) == (
            f"its zstd frames decode to {len(data)} bytes, not to {len(data) + 1}"
        )


@given(st.binary(max_size=300), st.integers(-7, 10), st.booleans(), st.data())
def test_every_cut_is_found(data: bytes, level: int, checksum: bool, drawn: st.DataObject) -> None:
    stored = compressed(data * drawn.draw(st.sampled_from([1, 2, 2000])), level, checksum)
    cut = drawn.draw(st.integers(0, len(stored) - 1))
    assert flaw(stored[:cut], None) is not None


def test_every_cut_of_a_frame_of_many_blocks() -> None:
    stored = compressed(noise(600_000), checksum=True)
    for cut in [*range(40), *range(40, len(stored), 997), *range(len(stored) - 40, len(stored))]:
        assert flaw(stored[:cut], 600_000) is not None
    assert flaw(stored[:-1], 600_000) == (
        f"it is cut short: the zstd frame at byte 0 does not end within its {len(stored) - 1} bytes"
    )


def test_several_frames_and_those_that_are_skipped() -> None:
    one, other = compressed(noise(1000)), compressed(bytes(5000), checksum=True)
    stored = one + SKIPPABLE + other + SKIPPABLE
    assert flaw(stored, 6000) is None
    assert flaw(stored, 5999) == "its zstd frames decode to 6000 bytes, not to 5999"
    for cut in range(len(stored)):
        if cut not in (len(one), len(one + SKIPPABLE), len(one + SKIPPABLE + other)):
            assert flaw(stored[:cut], None) is not None
        else:
            assert (flaw(stored[:cut], 6000) is None) == (cut == len(one + SKIPPABLE + other))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"", "it is empty"),
        (b"not a frame at all", "no zstd frame begins at its byte 0"),
        (compressed(b"abc") + b"trailing", f"no zstd frame begins at its byte {len(compressed(b'abc'))}"),
        (b"\x28\xb5\x2f\xfd\x08" + bytes(20), "the zstd frame at byte 0 has an invalid header"),
        # A block of the type that is not defined, and one that is larger than blocks can be.
        (b"\x28\xb5\x2f\xfd\x20\x03\x07\x00\x00", "it has no zstd block at byte 6, where one belongs"),
        (b"\x28\xb5\x2f\xfd\x20\x03\x05\x00\xff", "it has no zstd block at byte 6, where one belongs"),
        # A header that promises more than one raw block of three bytes has.
        (
            b"\x28\xb5\x2f\xfd\x20\x04\x19\x00\x00abc",
            "the zstd frame at byte 0 cannot decode to the 4 bytes that its header says",
        ),
    ],
)
def test_what_is_wrong(stored: bytes, message: str) -> None:
    assert flaw(stored, None) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(stored: bytes) -> None:
    """Without an error, and without a read after the end."""
    flaw(stored, 100)
    flaw(b"\x28\xb5\x2f\xfd" + stored, 100)
