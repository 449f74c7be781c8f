"""`verify` of a random part of what has digests."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.api.verifying import draw_sample
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from tests.support.command_line import run

FLOAT = np.dtype(np.float32)


def leaf(name: str, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Leaf, Digests]:
    counts = [-(-s // g) for s, g in zip(shape, grid, strict=True)]
    digests = Digests(grid, True, dict.fromkeys(np.ndindex(*counts), 0))
    return Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(shape, FLOAT)), digests


def drawn(share: float, seed: int) -> set[tuple[str, tuple[int, ...]]]:
    parts, _ = draw_sample([leaf("a", (90, 10), (4, 5)), leaf("b", (500,), (10,))], share, seed)
    return {(one.key.text, index) for one, digests in parts for index in digests.crcs}


def test_a_seed_draws_the_same_part_and_every_region_is_drawn_by_some_seed() -> None:
    assert drawn(0.2, 1) == drawn(0.2, 1) != drawn(0.2, 2)
    assert drawn(0.1, 1) < drawn(0.5, 1)
    assert len(drawn(1.0, 1)) == 23 * 2 + 50
    assert set().union(*(drawn(0.1, seed) for seed in range(60))) == drawn(1.0, 0)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.999, 1.0])
def test_the_share_is_reached_and_not_much_more(share: float) -> None:
    parts, sample = draw_sample([leaf("a", (90, 10), (4, 5)), leaf("b", (500,), (10,))], share, 7)
    read = sum(
        4 * min(4, 90 - 4 * i[0]) * 5 if one.key.text == "a" else 40 for one, d in parts for i in d.crcs
    )
    assert (sample.bytes_read, sample.bytes, sample.regions) == (read, 5600, 96)
    assert share * 5600 <= read < share * 5600 + 80
    assert sample.share_read == read / 5600


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A checkpoint of 40 leaves of 1 KiB, with a digest each."""
    save_file({f"w{i}": np.full(256, i, np.float32) for i in range(40)}, tmp_path / "old.safetensors")
    ckpt_surgery.convert(tmp_path / "old.safetensors", tmp_path / "new.npz")
    return tmp_path / "new.npz"


def test_what_is_read_and_what_is_not(written: Path) -> None:
    found = ckpt_surgery.verify(written, sample=0.05)
    assert (found.flaws, found.bytes_read, found.bytes_not_read) == ((), 2 << 10, 38 << 10)
    assert found.sample is not None
    assert (found.sample.regions_read, found.sample.regions) == (2, 40)
    assert any("38 of 40" in notice for notice in found.notices)
    whole = ckpt_surgery.verify(written, sample=1)
    assert (whole.bytes_read, whole.bytes_not_read, whole.notices) == (40 << 10, 0, ())


def test_damage_is_found_where_it_is_drawn_and_nowhere_else(written: Path) -> None:
    data = bytearray(written.read_bytes())
    at = data.index(np.full(256, 7, np.float32).tobytes())
    data[at] ^= 1
    written.write_bytes(data)
    assert {flaw.key for flaw in ckpt_surgery.verify(written).flaws} == {"w7"}
    found = [bool(ckpt_surgery.verify(written, sample=0.25, seed=seed).flaws) for seed in range(12)]
    assert 1 <= sum(found) <= 8
    codes = [run("verify", written, "--sample", "25%", "--seed", seed).exit_code for seed in range(2)]
    assert codes == [3 if flawed else 0 for flawed in found[:2]]


def test_the_command_says_what_share_was_read(written: Path) -> None:
    done = run("verify", written, "--sample", "5%")
    assert (done.exit_code, "5.00%" in done.stdout) == (0, True)
    assert "no damage found" in done.stdout
    assert "whole" not in done.stdout
    document = json.loads(run("verify", written, "--sample=.05", "--seed", "9", "--json").stdout)
    assert (document["sample"]["share_read"], document["sample"]["seed"]) == (0.05, 9)
    assert "sample" not in json.loads(run("verify", written, "--json").stdout)


@pytest.mark.parametrize("text", ["5", "0", "0%", "101%", "-5%", "1.5", "five", "5 %", "nan", "٥%", ""])
def test_what_is_no_share_is_refused(written: Path, text: str) -> None:
    done = run("verify", written, "--sample", text)
    assert done.exit_code == 2
    assert "--sample" in done.stderr
    options: list[Any] = [{"sample": share} for share in (0, -0.1, 1.01, float("nan"))]
    for wrong in (*options, {"sample": 0.5, "mode": "fast"}, {"sample": 0.5, "mode": "full"}):
        with pytest.raises(UsageError, match="sample"):
            ckpt_surgery.verify(written, **wrong)
    assert run("verify", written, "--sample", "5%", "--full").exit_code == 2
    with pytest.raises(UsageError, match="digests"):
        ckpt_surgery.verify(written.with_name("old.safetensors"), sample=0.5)
