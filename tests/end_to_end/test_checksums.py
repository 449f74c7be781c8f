"""New arrays of zarr 2 have no checksums, so only `verify` notices flipped bits; the run says so."""

from pathlib import Path

import numpy as np

import ckpt_surgery
from tests.support.checkpoints import restored

NOTE = "zarr 2 has no checksums: readers do not notice flipped bits in new arrays, only `verify` does"


def test_only_verify_notices_flipped_bits_in_zarr_2(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    source = {"w": random.standard_normal((200, 300)).astype(np.float32)}
    recipe = "version: 1\noutput: {{zarr: {}}}\nrules: [{{match: w, value: x + x}}]\n"
    assert NOTE not in ckpt_surgery.apply(recipe.format(3), source, dst=tmp_path / "other").notices
    assert NOTE in ckpt_surgery.apply(recipe.format(2), source, dst=tmp_path / "out").notices
    file = max((p for p in (tmp_path / "out").rglob("d/*") if p.is_file()), key=lambda p: p.stat().st_size)
    stored, silent = file.read_bytes(), 0
    for at in random.integers(len(stored) // 4, len(stored) // 2, 10):
        data = bytearray(stored)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        try:
            restored(tmp_path / "out")
            silent += 1
        except ValueError:
            pass
        assert [flaw.key for flaw in ckpt_surgery.verify(tmp_path / "out").flaws] == ["w"]
    assert silent > 0
