"""Quantized tensors against the package `gguf`, bit for bit; and what reading a part of them takes."""

import os
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.protocols import ConvertingSource, StoredType
from ckpt_surgery.formats.gguf.blocks import DECODERS, PIECE, read_blocks
from ckpt_surgery.formats.gguf.blocks import dequantized as decoded
from ckpt_surgery.formats.gguf.types import TYPES
from tests.formats.bounds import bounded
from tests.formats.gguf.files import dequantized, made, save_blocks, stored_blocks, tensor
from tests.support.arrays import array
from tests.support.comparing import same
from tests.support.conformance import random_regions
from tests.support.reading import opened, values
from tests.support.strategies import regions

READ = (Type.Q8_0, Type.Q4_0, Type.Q4_K, Type.Q6_K)
OTHERS = [type for type in Type if type.name not in DECODERS and gguf.GGML_QUANT_SIZES[type][0] > 1]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """NaN is equal to itself only with the same bits."""
    return same(np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


# --- values -----------------------------------------------------------------------------------------------


def test_the_types_are_those_of_the_library() -> None:
    known = {n: (type.name, type.length, type.nbytes) for n, type in TYPES.items()}
    assert known == {int(type): (type.name, *gguf.GGML_QUANT_SIZES[type]) for type in Type}


@pytest.mark.parametrize("type", READ, ids=lambda type: type.name)
def test_random_blocks(type: Type) -> None:
    """Any bits: among a thousand scales are NaN, infinities, subnormals and both zeros."""
    length = gguf.GGML_QUANT_SIZES[type][0]
    blocks = stored_blocks((1000, length), type)
    found = decoded(type.name, blocks)
    assert (found.shape, found.dtype) == ((1000, length), np.float32)
    assert same_bits(found, dequantized(type, blocks))
    assert np.isnan(found).any()


@pytest.mark.parametrize("scale", [0x0000, 0x8000, 0x0001, 0x7BFF, 0x7C00, 0xFC00, 0x7E01, 0xFFFF])
@pytest.mark.parametrize("type", READ, ids=lambda type: type.name)
def test_scales_at_the_limits(type: Type, scale: int) -> None:
    """Zeros, the smallest and the largest numbers, infinities and NaN, in every place of a scale."""
    blocks = stored_blocks((8, gguf.GGML_QUANT_SIZES[type][0]), type)
    places = {Type.Q4_K: (0, 2), Type.Q6_K: (208,)}.get(type, (0,))
    for i, place in enumerate((*places, *reversed(places))):
        blocks[4 * i // len(places) :, place : place + 2] = np.array([scale], "<u2").view(np.uint8)
    assert same_bits(decoded(type.name, blocks), dequantized(type, blocks))


@pytest.mark.parametrize("type", [Type.Q8_0, Type.Q4_0], ids=lambda type: type.name)
def test_what_the_library_quantizes(type: Type, tmp_path: Path) -> None:
    """Close to the weights that it was made from."""
    weights = np.random.default_rng(0).normal(size=(6, 128)).astype(np.float32)
    stored = gguf.quants.quantize(weights, type)
    found = values(opened(save_blocks({"w": (type, stored)}, tmp_path / "x.gguf")))["w"]
    assert same_bits(found, dequantized(type, stored))
    assert np.abs(found - weights).max() < np.abs(weights).max() / (100 if type == Type.Q8_0 else 7)


@pytest.mark.parametrize("shape", [(256,), (3, 512), (2, 3, 256), (2, 1, 3, 256), (0, 256), (3, 0)])
@pytest.mark.parametrize("type", READ, ids=lambda type: type.name)
def test_shapes(type: Type, shape: Shape, tmp_path: Path) -> None:
    """Between other tensors, which stay as they are."""
    blocks, other = stored_blocks(shape, type), array((5,), "float16")
    path = save_blocks({"w": (type, blocks)} if blocks.size else {}, tmp_path / "x.gguf", {"other": other})
    if not blocks.size:
        path = made(tmp_path / "y.gguf", [tensor("w", shape[::-1], int(type))])
    found = values(opened(path))
    want = dequantized(type, blocks) if blocks.size else np.empty(shape, np.float32)
    assert same_bits(found["w"], want)
    assert found["w"].shape == shape
    assert same(found.get("other", other), other)


# --- regions ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, np.ndarray]]:
    """A file with a tensor of every type that is read, in three axes; and all their values."""
    stored = {type.name: (type, stored_blocks((3, 5, 768), type, int(type))) for type in READ}
    path = save_blocks(stored, tmp_path_factory.mktemp("blocks") / "x.gguf")
    return path, {name: dequantized(*one) for name, one in stored.items()}


@pytest.mark.parametrize("name", DECODERS)
def test_a_region_is_that_region_of_the_whole(
    name: str, model: tuple[Path, Mapping[str, np.ndarray]]
) -> None:
    path, wanted = model
    source = opened(path)
    leaf = source.leaves()[name]
    for region in random_regions((3, 5, 768), 60):
        assert same_bits(source.read(leaf, region), wanted[name][region.slices]), region


class Counted:
    """Bytes in memory that are read as a file is, with the ranges that were asked for."""

    def __init__(self, data: bytes):
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self.ranges.append((offset, offset + len(buffer)))
        buffer[:] = self.data[offset : offset + len(buffer)]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_array_and_any_region(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(READ))
    length, nbytes = gguf.GGML_QUANT_SIZES[type]
    outer = data.draw(st.lists(st.integers(1, 4), max_size=3))
    shape = (*outer, length * data.draw(st.integers(1, 4)))
    blocks = stored_blocks(shape, type, data.draw(st.integers(0, 5)))
    region, offset = data.draw(regions(shape, empty=False)), data.draw(st.integers(0, 100))
    file = Counted(bytes(offset) + blocks.tobytes())
    found = read_blocks(file, offset, shape, region, type.name, length, nbytes)
    assert same_bits(found, dequantized(type, blocks)[region.slices])
    assert all(offset <= a < b <= len(file.data) for a, b in file.ranges)


def test_rows_read_their_own_blocks_alone() -> None:
    """Of 4,096 rows of 4 KiB, those that are wanted; of some columns, the blocks that have them."""
    shape, (length, nbytes) = (4096, 8192), gguf.GGML_QUANT_SIZES[Type.Q4_K]
    row = 32 * nbytes
    file = Counted(bytes(4096 * row))

    def read(rows: tuple[int, int], columns: tuple[int, int]) -> int:
        file.ranges.clear()
        region = Region((rows[0], columns[0]), (rows[1], columns[1]))
        assert read_blocks(file, 0, shape, region, "Q4_K", length, nbytes).shape == region.shape
        assert file.ranges[0][0] == rows[0] * row + columns[0] // length * nbytes
        return sum(stop - start for start, stop in file.ranges)

    assert read((7, 8), (0, 8192)) == row
    assert read((4000, 4010), (0, 8192)) == 10 * row
    assert read((7, 8), (300, 301)) == nbytes
    assert read((7, 8), (255, 257)) == 2 * nbytes
    assert read((7, 8), (8000, 8192)) == nbytes
    assert read((0, 2000), (0, 256)) < 2000 * row  # gaps between short runs are read with them


def test_a_part_takes_its_own_memory_only(tmp_path: Path) -> None:
    """Of 128 MiB in float32. Decoding takes no more for a large region than for a small one."""
    shape, nbytes = (8192, 4096), 8192 * 16 * 210
    path = made(tmp_path / "x.gguf", [tensor("w", shape[::-1], int(Type.Q6_K))], data=b"")
    os.truncate(path, path.stat().st_size + nbytes)
    source = opened(path)
    leaf = source.leaves()["w"]
    source.read(leaf, Region((0, 0), (1, 1)))
    scratch = 48 * PIECE
    for rows in (1, 100, 1000):
        with bounded(rows * 4096 * 4 + rows * 16 * 210 + scratch):
            assert not source.read(leaf, Region((50, 0), (50 + rows, 4096))).any()


def test_one_long_row_is_decoded_in_pieces() -> None:
    """As long as sixteen pieces, with ends within blocks."""
    shape, blocks = (16 * PIECE,), stored_blocks((16 * PIECE,), Type.Q8_0)
    region = Region((5,), (16 * PIECE - 7,))
    found = read_blocks(Counted(blocks.tobytes()), 0, shape, region, "Q8_0", 32, 34)
    assert same_bits(found, dequantized(Type.Q8_0, blocks)[region.slices])


# --- types that are not read ------------------------------------------------------------------------------


def test_every_other_type_is_listed_and_refused_by_name(tmp_path: Path) -> None:
    """With the shape that it stands for; what is beside it is read."""
    stored = {type.name: (type, stored_blocks((2, 256), type)) for type in OTHERS}
    source = opened(save_blocks(stored, tmp_path / "x.gguf", {"plain": array((3,), "float32")}))
    assert isinstance(source, ConvertingSource)
    for type in OTHERS:
        leaf = source.leaves()[type.name]
        assert str(leaf.spec) == "float32[2,256]"
        assert leaf.manifest is not None
        assert leaf.manifest.codec.name == type.name
        assert source.stored_type(leaf) == StoredType(type.name, readable=False)
        with pytest.raises(
            SourceError, match=f"`{type.name}`: it is stored as {type.name}, which cannot be read"
        ):
            source.read(leaf, Region((0, 0), (1, 1)))
    plain = source.leaves()["plain"]
    assert source.stored_type(plain) is None
    assert same(source.read(plain, Region((0,), (3,))), array((3,), "float32"))


def test_bytes_that_are_gone(model: tuple[Path, Mapping[str, np.ndarray]], tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(model[0].read_bytes())
    source = opened(path)
    os.truncate(path, 3000)
    with pytest.raises(SourceError, match=r"`Q6_K`: .* has changed since it was listed"):
        source.read(source.leaves()["Q6_K"], Region((0, 0, 0), (1, 1, 1)))
