"""The chunks that quantized tensors are planned and read in."""

import os
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from ckpt_surgery.core.arrays import Shape, chunk_regions
from ckpt_surgery.formats.gguf.chunks import CHUNK, BlockChunks, grid_of
from tests.formats.bounds import bounded
from tests.formats.gguf.files import made, tensor
from tests.support.reading import opened


@pytest.mark.parametrize(
    ("shape", "length", "grid"),
    [
        ((32,), 32, (32,)),
        ((3, 5, 768), 256, (3, 5, 768)),  # small: one chunk
        ((128_256, 4096), 256, (512, 4096)),  # an embedding: some rows in each
        ((8, 14_336, 4096), 256, (1, 512, 4096)),  # experts
        ((128, 2048, 768), 256, (1, 2048, 768)),
        ((2**27,), 256, (2**21,)),  # one row, cut into whole blocks
        ((3, 2**21 + 256), 256, (1, 2**21)),
        ((4, 5, 0), 32, (4, 5, 1)),
        ((0, 256), 256, (1, 256)),
    ],
)
def test_chunks_are_whole_blocks_and_not_large(shape: Shape, length: int, grid: Shape) -> None:
    assert grid_of(shape, length) == grid
    assert np.prod(grid) <= CHUNK
    assert grid[-1] % length == 0 or grid[-1] == max(1, shape[-1])


@pytest.mark.parametrize("shape", [(700, 4096), (3, 2**21 + 256), (2, 700, 4096)])
def test_chunks_follow_each_other_in_the_file(shape: Shape, tmp_path: Path) -> None:
    """The bytes of each are those of the region that it stands for."""
    size = int(np.prod(shape)) // 256 * 144
    path = made(tmp_path / "x.gguf", [tensor("w", shape[::-1], int(Type.Q4_K))], data=b"")
    begin = path.stat().st_size
    os.truncate(path, begin + size)
    manifest = opened(path).leaves()["w"].manifest
    assert manifest is not None
    assert (manifest.complete, manifest.codec.name, manifest.codec.raw) == (True, "Q4_K", False)
    chunks = list(manifest.chunks.values())
    assert [chunk.offset for chunk in chunks] == list(
        begin + np.cumsum([0, *(c.length for c in chunks[:-1])])
    )
    assert sum(chunk.length for chunk in chunks) == size
    sizes = [region.size for region in chunk_regions(shape, manifest.chunk_shape)]
    assert [chunk.length for chunk in chunks] == [n // 256 * 144 for n in sizes]


def test_a_chunk_that_there_is_not() -> None:
    chunks = BlockChunks("f", 0, (700, 4096), (512, 4096), 256, 144)
    assert list(chunks) == [(0, 0), (1, 0)]
    for index in ((2, 0), (0, 1), (-1, 0), (0,), (0, 0, 0)):
        assert index not in chunks
    assert chunks == dict(chunks)


def test_any_number_of_chunks_takes_no_memory(tmp_path: Path) -> None:
    """Of an array of 256 GiB in float32, in a file with a hole."""
    path = made(tmp_path / "x.gguf", [tensor("w", (2**16, 2**20), int(Type.Q4_K))], data=b"")
    os.truncate(path, path.stat().st_size + 2**36 // 256 * 144)
    with bounded(2**20):
        manifest = opened(path).leaves()["w"].manifest
    assert manifest is not None
    assert (len(manifest.chunks), manifest.complete) == (2**15, True)
    assert manifest.chunks[2**15 - 1, 0].offset + 2**21 // 256 * 144 == path.stat().st_size
