"""Quantized tensors against the package `gguf`, bit for bit; their chunks; and what reading a part takes."""

import os
from pathlib import Path
from unittest.mock import patch

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Manifest, quantized_codec
from ckpt_surgery.formats.gguf.blocks import (
    BLOCKS,
    CHUNK,
    PIECE,
    TYPES,
    UNDECODED,
    BlockChunks,
    grid_of,
    read_blocks,
)
from tests.formats.bounds import bounded
from tests.formats.gguf.files import dequantized, made, save_blocks, stored_blocks, tensor
from tests.support.arrays import array
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.reading import opened, values
from tests.support.strategies import regions

READ = [Type[name] for name in BLOCKS if name not in UNDECODED]
OTHERS = [Type[name] for name in sorted(UNDECODED)]


def test_the_types_are_those_of_the_library() -> None:
    """What it decodes is read."""
    known = {n: (type.name, type.length, type.nbytes) for n, type in TYPES.items()}
    assert known == {int(type): (type.name, *gguf.GGML_QUANT_SIZES[type]) for type in Type}
    assert len(READ) == 23
    for type in READ:
        dequantized(type, stored_blocks((1, gguf.GGML_QUANT_SIZES[type][0]), type))
    for type in OTHERS:
        with pytest.raises(NotImplementedError):
            dequantized(type, stored_blocks((1, 256), type))


@pytest.mark.parametrize("type", READ, ids=lambda type: type.name)
def test_random_blocks(type: Type, tmp_path: Path) -> None:
    """Any bits, in several chunks: among the scales are NaN, infinities, subnormals, both zeros."""
    shape = (700, 3840)
    blocks = stored_blocks(shape, type)
    found = values(opened(save_blocks({"w": (type, blocks)}, tmp_path / "x.gguf")))["w"]
    assert (found.shape, found.dtype) == (shape, np.float32)
    assert same(found, dequantized(type, blocks))


@pytest.mark.parametrize("shape", [(0, 256), (3, 0)])
def test_quantized_tensors_without_elements(shape: Shape, tmp_path: Path) -> None:
    path = made(tmp_path / "y.gguf", [tensor("w", shape[::-1], int(Type.IQ2_XS))])
    assert same(values(opened(path))["w"], np.empty(shape, np.float32))


@examples(60)
@given(data=st.data())
def test_any_array_and_any_region(data: st.DataObject) -> None:
    """In chunks of any number of blocks that lie one after another, the last ones shorter."""
    type = data.draw(st.sampled_from(READ))
    length = BLOCKS[type.name].length
    outer = data.draw(st.lists(st.integers(1, 4), max_size=3))
    shape = (*outer, length * data.draw(st.integers(1, 4)))
    blocks = stored_blocks(shape, type, data.draw(st.integers(0, 5)))
    region, offset = data.draw(regions(shape, empty=False)), data.draw(st.integers(0, 100))
    stored = bytes(offset) + blocks.tobytes()
    with patch("ckpt_surgery.formats.gguf.blocks.CHUNK", length * data.draw(st.integers(1, 20))):
        grid = grid_of(shape, length)
    manifest = Manifest(
        ArraySpec(shape, np.dtype(np.float32)),
        grid,
        quantized_codec(type.name, len(shape)),
        BlockChunks("", offset, shape, grid, BLOCKS[type.name]),
    )
    found = read_blocks(
        manifest, region, lambda wanted: (stored[c.offset : c.offset + c.length] for c in wanted)
    )
    assert same(found, dequantized(type, blocks)[region.slices])


def test_a_part_takes_its_own_memory_only(tmp_path: Path) -> None:
    """Of 128 MiB in float32; besides the result, the elements of one chunk, which are 8 MiB."""
    shape, nbytes = (8192, 4096), 8192 * 16 * 210
    path = made(tmp_path / "x.gguf", [tensor("w", shape[::-1], int(Type.Q6_K))], data=b"")
    os.truncate(path, path.stat().st_size + nbytes)
    source = opened(path)
    leaf = source.leaves()["w"]
    source.read(leaf, Region((0, 0), (1, 1)))
    chunk, scratch = 512 * 16 * 210, 2**23 + 64 * PIECE
    for rows in (1, 100, 1000):
        with bounded(rows * 4096 * 4 + 2 * chunk + scratch):
            assert not source.read(leaf, Region((50, 0), (50 + rows, 4096))).any()
    with bounded(8192 * 256 * 4 + chunk + scratch):
        assert not source.read(leaf, Region((0, 300), (8192, 310))).any()


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


def test_any_number_of_chunks_takes_no_memory(tmp_path: Path) -> None:
    """Of an array of 256 GiB in float32, in a file with a hole."""
    path = made(tmp_path / "x.gguf", [tensor("w", (2**16, 2**20), int(Type.Q4_K))], data=b"")
    os.truncate(path, path.stat().st_size + 2**36 // 256 * 144)
    with bounded(2**20):
        manifest = opened(path).leaves()["w"].manifest
    assert (len(manifest.chunks), manifest.complete) == (2**15, True)
    assert manifest.chunks[2**15 - 1, 0].offset + 2**21 // 256 * 144 == path.stat().st_size


def test_every_other_type_is_listed_and_refused_by_name(tmp_path: Path) -> None:
    """With the shape that it stands for; what is beside it is read."""
    stored = {type.name: (type, stored_blocks((2, 256), type)) for type in OTHERS}
    source = opened(save_blocks(stored, tmp_path / "x.gguf", {"plain": array((3,), "float32")}))
    for name in stored:
        leaf = source.leaves()[name]
        assert (str(leaf.spec), leaf.stored_type) == ("float32[2,256]", name)
        assert leaf.manifest.codec.name == name
        assert leaf.unreadable is not None
        with pytest.raises(SourceError, match=f"`{name}`: it is stored as {name}, which cannot be read"):
            source.read(leaf, Region((0, 0), (1, 1)))
    plain = source.leaves()["plain"]
    assert plain.stored_type is None
    assert same(source.read(plain, Region((0,), (3,))), array((3,), "float32"))
