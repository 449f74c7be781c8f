"""Chunks that TensorStore, zarr-python's compressors and zlib wrote, whole and cut."""

import gzip
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of, raw_codec
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.formats.shared.zarr.chunk_checks import Flaw, check_zstd, chunk_flaw
from ckpt_surgery.storage.reading import opened
from tests.formats.shared.zarr.codecs import CHAINS, COMPRESSORS, LITTLE, ZSTD, regular, save_file, shards
from tests.support.heavy import numcodecs

DAMAGED_INDEX = "it is cut short or damaged: its shard index has another checksum, or leads out of it"

VALUES = {
    "noise": np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32),
    "runs": np.repeat(np.arange(64, dtype=np.float32), 48).reshape(64, 48),
    "nothing": np.ones((64, 48), np.float32),
}


def written(path: Path, values: np.ndarray, version: int, how: Any) -> Any:
    """The manifest of an array in four chunks that TensorStore wrote."""
    grid = {"chunk_grid": regular(32, 24), "codecs": how} if version == 3 else {"chunks": [32, 24]}
    save_file(path, version, grid | ({} if version == 3 else {"compressor": how}), values)
    (leaf,) = open_source(os.fspath(path), "zarr").leaves().values()
    return leaf.manifest


def flaw(manifest: Manifest, chunk: Chunk) -> str | None:
    with opened(chunk.file) as file:
        return chunk_flaw(manifest, chunk, file)


def cuts(length: int) -> list[int]:
    """Many lengths that a chunk may be cut to: all near its ends."""
    return sorted({*range(min(length, 40)), *range(max(0, length - 40), length), *range(0, length, 61)})


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("version", [2, 3])
def test_whole_chunks_and_chunks_that_are_cut(values: str, version: int, tmp_path: Path) -> None:
    for number, how in enumerate(CHAINS[:-1] if version == 3 else COMPRESSORS):
        manifest = written(tmp_path / str(number), VALUES[values], version, how)
        assert len(manifest.chunks) == 4
        for chunk in manifest.chunks.values():
            assert flaw(manifest, chunk) is None, how
        chunk = manifest.chunks[0, 0]
        for length in cuts(chunk.length):
            cut = Chunk(chunk.file, chunk.offset, length)
            assert flaw(manifest, cut) is not None, (how, length)


def test_a_range_of_a_file_is_a_chunk_too(tmp_path: Path) -> None:
    manifest = written(tmp_path / "a", VALUES["noise"], 3, [LITTLE, ZSTD])
    chunk = manifest.chunks[1, 1]
    stored = Path(chunk.file).read_bytes()
    (tmp_path / "b").write_bytes(b"before" + stored + b"after")
    assert flaw(manifest, Chunk(str(tmp_path / "b"), 6, len(stored))) is None
    for offset, length in ((5, len(stored)), (6, len(stored) + 1), (6, len(stored) - 1)):
        assert flaw(manifest, Chunk(str(tmp_path / "b"), offset, length)) is not None
    assert chunk_flaw(manifest, Chunk("", 0, len(stored), stored), None) is None
    assert chunk_flaw(manifest, Chunk("", 0, 7, stored[:7]), None) is not None


def manifest_of(encoding: list[dict[str, Any]], nbytes: int) -> Manifest:
    spec = ArraySpec((nbytes,), np.dtype(np.uint8))
    return Manifest(spec, (nbytes,), Codec("x", (0,), encoding_of(encoding)), {})


def inline(stored: bytes) -> Chunk:
    return Chunk("", 0, len(stored), stored)


def test_gzip_of_several_members_is_decompressed_to_be_sure() -> None:
    manifest = manifest_of([bytes_codec("little"), {"name": "gzip"}], 500_100)
    noise = np.random.default_rng(1).bytes(500_000)
    stored = gzip.compress(noise) + gzip.compress(bytes(100))
    assert chunk_flaw(manifest, inline(stored), None) is None
    wrong = "it is cut short or damaged: its gzip stream does not end as it should"
    for length in (len(stored) - 1, len(stored) - 20, len(gzip.compress(noise)), 100_000):
        assert chunk_flaw(manifest, inline(stored[:length]), None) == wrong
    assert (
        chunk_flaw(manifest_of([bytes_codec("little"), {"name": "gzip"}], 9), inline(stored), None) == wrong
    )


@pytest.mark.parametrize("codec", ["zlib", "bz2"])
def test_streams_that_only_decompressing_tells_about(codec: str) -> None:
    noise = np.random.default_rng(2).bytes(400_000) + bytes(3_000_000)
    manifest = manifest_of([bytes_codec("little"), {"id": codec}], len(noise))
    stored = bytes(numcodecs.get_codec({"id": codec}).encode(noise))
    assert chunk_flaw(manifest, inline(stored), None) is None
    wrong = f"it is cut short or damaged: its {codec} stream does not end as it should"
    for damaged in (stored[:-1], stored[:300_000], b"", stored[:1000] + b"flip" + stored[1004:]):
        assert chunk_flaw(manifest, inline(damaged), None) == wrong
    assert chunk_flaw(manifest_of([bytes_codec("little"), {"id": codec}], 99), inline(stored), None) == wrong


def test_the_numbers_are_in_the_messages() -> None:
    raw = Manifest(ArraySpec((4,), np.dtype(np.int32)), (4,), raw_codec(1), {})
    assert chunk_flaw(raw, inline(bytes(15)), None) == "it has 15 stored bytes instead of 16"
    blosc = manifest_of([bytes_codec("little"), {"name": "blosc"}], 400)
    stored = bytes(numcodecs.Blosc().encode(bytes(400)))
    assert chunk_flaw(blosc, inline(stored), None) is None
    assert chunk_flaw(blosc, inline(stored[:-1]), None) == (
        f"it has {len(stored) - 1} stored bytes, and its blosc header says {len(stored)}"
    )
    short = bytes(numcodecs.Blosc().encode(bytes(399)))
    assert chunk_flaw(blosc, inline(short), None) == (
        "its blosc header says that it decodes to 399 bytes, not to 400"
    )


def test_a_damaged_shard_index(tmp_path: Path) -> None:
    manifest = written(tmp_path / "a", VALUES["noise"], 3, [shards([16, 8], [LITTLE, ZSTD])])
    chunk = manifest.chunks[0, 0]
    stored = bytearray(Path(chunk.file).read_bytes())
    stored[-10] ^= 1
    assert chunk_flaw(manifest, inline(bytes(stored)), None) == DAMAGED_INDEX


def test_a_shard_whose_index_names_what_is_not_there(tmp_path: Path) -> None:
    how = [shards([16, 8], [LITTLE, ZSTD], index=[LITTLE])]
    manifest = written(tmp_path / "a", VALUES["noise"], 3, how)
    stored = bytearray(Path(manifest.chunks[0, 0].file).read_bytes())
    index = len(stored) - 6 * 16
    assert chunk_flaw(manifest, inline(bytes(stored)), None) is None
    stored[index : index + 8] = (len(stored)).to_bytes(8, "little")
    assert chunk_flaw(manifest, inline(bytes(stored)), None) == DAMAGED_INDEX
    stored[index : index + 8] = (3).to_bytes(8, "little")
    assert chunk_flaw(manifest, inline(bytes(stored)), None) == (
        "the chunk 0 inside this shard: no zstd frame begins at its byte 0"
    )


def test_what_says_nothing_about_its_length_is_believed() -> None:
    unknown = manifest_of([bytes_codec("little"), {"id": "made-up"}], 10)
    assert chunk_flaw(unknown, inline(b"x"), None) is None
    inner = shards([5], [shards([5], [LITTLE])])
    assert chunk_flaw(manifest_of([inner], 10), inline(b"x"), None) is None


SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"12345"


def compressed(data: bytes, level: int = 1, checksum: bool = False) -> bytes:
    return bytes(numcodecs.Zstd(level=level, checksum=checksum).encode(data))


def frame_flaw(stored: bytes, nbytes: int | None) -> str | None:
    def read(at: int, count: int) -> bytes:
        assert at >= 0
        assert at + count <= len(stored), "no byte after the end is asked for"
        return stored[at : at + count]

    try:
        check_zstd(read, len(stored), nbytes)
    except Flaw as flaw:
        return str(flaw)
    return None


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
def test_whole_frames_and_frames_that_are_cut(content: str, checksum: bool) -> None:
    data = CONTENTS[content]
    for level in (-7, 1, 3, 19):
        stored = compressed(data, level, checksum)
        length = len(stored)
        for cut in {*range(min(40, length)), *range(40, length, 997), *range(max(0, length - 40), length)}:
            assert frame_flaw(stored[:cut], len(data)) is not None
        assert frame_flaw(stored[:-1], len(data)) == (
            f"it is cut short: the zstd frame at byte 0 does not end within its {length - 1} bytes"
        )
        assert frame_flaw(stored, len(data)) is None
        assert frame_flaw(stored, None) is None
        assert frame_flaw(stored, len(data) + 1) == (
            f"its zstd frames decode to {len(data)} bytes, not to {len(data) + 1}"
        )


def test_several_frames_and_those_that_are_skipped() -> None:
    one, other = compressed(noise(1000)), compressed(bytes(5000), checksum=True)
    stored = one + SKIPPABLE + other + SKIPPABLE
    assert frame_flaw(stored, 6000) is None
    assert frame_flaw(stored, 5999) == "its zstd frames decode to 6000 bytes, not to 5999"
    for cut in range(len(stored)):
        if cut not in (len(one), len(one + SKIPPABLE), len(one + SKIPPABLE + other)):
            assert frame_flaw(stored[:cut], None) is not None
        else:
            assert (frame_flaw(stored[:cut], 6000) is None) == (cut == len(one + SKIPPABLE + other))


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
    assert frame_flaw(stored, None) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(stored: bytes) -> None:
    """Without an error, and without a read after the end."""
    frame_flaw(stored, 100)
    frame_flaw(b"\x28\xb5\x2f\xfd" + stored, 100)
