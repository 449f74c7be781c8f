"""Checksums of new arrays: stock Orbax enforces those of zarr 3; with zarr 2 only `verify` notices."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from tests.support.checkpoints import quiet

VALUES = np.random.default_rng(3).standard_normal((200, 300)).astype(np.float32)
FLIPS = 15
NOTE = "zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does"


@pytest.fixture
def computed(tmp_path: Path) -> Callable[[int], ckpt_surgery.Result]:
    save_file({"w": VALUES}, tmp_path / "a.safetensors")

    def write(zarr: int) -> ckpt_surgery.Result:
        recipe = tmp_path / "r.yaml"
        recipe.write_text(
            f"version: 1\noutput: {{zarr: {zarr}}}\nrules:\n  - match: w\n    to: w\n    value: x + x\n"
        )
        return ckpt_surgery.apply(recipe, tmp_path / "a.safetensors", dst=tmp_path / "out")

    return write


def flips(path: Path, size: int) -> tuple[Path, list[int]]:
    """The file with the chunk, and places in the middle of it."""
    file = max((p for p in path.rglob("d/*") if p.is_file()), key=lambda p: p.stat().st_size)
    return file, [int(at) for at in np.random.default_rng(4).integers(size // 4, size // 2, FLIPS)]


def restored(path: Path) -> np.ndarray | None:
    """What stock Orbax restores; None where it refuses."""
    try:
        with quiet(), ocp.PyTreeCheckpointer() as checkpointer:
            return np.asarray(checkpointer.restore(path)["w"])
    except ValueError:
        return None


def test_stock_orbax_refuses_every_flipped_bit(
    computed: Callable[[int], ckpt_surgery.Result], tmp_path: Path
) -> None:
    assert NOTE not in computed(3).notices
    found = restored(tmp_path / "out")
    assert found is not None
    assert found.tobytes() == (VALUES * 2).tobytes()
    file, places = flips(tmp_path / "out", found.nbytes)
    stored = file.read_bytes()
    for at in places:
        data = bytearray(stored)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        assert restored(tmp_path / "out") is None
    file.write_bytes(stored)
    assert restored(tmp_path / "out") is not None


def test_only_verify_notices_flipped_bits_in_zarr_2(
    computed: Callable[[int], ckpt_surgery.Result], tmp_path: Path
) -> None:
    assert NOTE in computed(2).notices
    found = restored(tmp_path / "out")
    assert found is not None
    file, places = flips(tmp_path / "out", found.nbytes)
    stored = file.read_bytes()
    silent = 0
    for at in places[:10]:
        data = bytearray(stored)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        silent += restored(tmp_path / "out") is not None
        assert [flaw.key for flaw in ckpt_surgery.verify(tmp_path / "out").flaws] == ["w"]
    assert silent > 0
