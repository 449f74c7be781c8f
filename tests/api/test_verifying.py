"""`verify` of checkpoints that were published: whole ones, and ones that were really damaged afterwards."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import tensorstore as ts
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.api.verifying import draw_sample
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.verification import Depth, Verified, verdict
from tests.support.command_line import run
from tests.support.directories import names
from tests.verification.test_new_checkpoints import (
    ARRAYS,
    DOUBLE,
    NAMES,
    data_files,
    flip,
)

TOTAL = sum(array.nbytes for array in ARRAYS.values())


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """`written(name)`: a checkpoint of computed values at that name; the others beside it stay."""
    save_file(ARRAYS, tmp_path / "source.safetensors")
    (tmp_path / "recipe.yaml").write_text(DOUBLE)

    def write(name: str, **options: Any) -> Path:
        recipe = tmp_path / "recipe.yaml"
        ckpt_surgery.apply(recipe, tmp_path / "source.safetensors", dst=tmp_path / name, **options)
        return tmp_path / name

    return write


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """An Orbax checkpoint whose one file of data is a hard link to a safetensors file."""
    save_file(ARRAYS, tmp_path / "source.safetensors")
    ckpt_surgery.convert(tmp_path / "source.safetensors", tmp_path / "linked", link_mode="hardlink")
    return tmp_path / "linked"


def told(found: Verified) -> list[tuple[str | None, Any, str]]:
    return [(flaw.key, flaw.chunk, flaw.what) for flaw in found.flaws]


# --- whole checkpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("mode", list(Depth))
def test_a_whole_checkpoint(format: str, mode: Depth, written: Callable[..., Path]) -> None:
    path = written(NAMES[format])
    found = ckpt_surgery.verify(path, mode=mode)
    read = 0 if mode is Depth.FAST else TOTAL
    assert found == Verified(str(path), mode, format, 3, read, TOTAL - read, (), ())
    assert "ckpt_surgery.json" not in ckpt_surgery.inspect(path).metadata


def test_a_step_of_a_checkpoint_manager_directory(written: Callable[..., Path]) -> None:
    path = written("steps", dst_step=3, dst_item="weights")
    assert "ckpt_surgery.json" in names(path / "3" / "weights")
    found = ckpt_surgery.verify(path, step=3, item="weights")
    assert (found.flaws, found.bytes_read) == ((), TOTAL)
    written("steps", dst_step=4, dst_item="weights")
    assert ckpt_surgery.verify(path).bytes_read == TOTAL


def test_a_checkpoint_of_another_program(tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "a.safetensors")
    found = ckpt_surgery.verify(tmp_path / "a.safetensors")
    assert (found.flaws, found.bytes_read) == ((), TOTAL)
    assert found.notices == ("no digests are recorded: values were read, but not compared",)
    full = ckpt_surgery.verify(tmp_path / "a.safetensors", mode="full")
    assert (full.bytes_read, len(full.notices)) == (TOTAL, 2)
    fast = ckpt_surgery.verify(tmp_path / "a.safetensors", mode="fast")
    assert fast.notices == ("no digests are recorded: only structure and sizes were checked",)
    assert names(tmp_path) == ["a.safetensors"]


def test_arrays_that_cannot_be_read_are_not_called_whole(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", w=np.ones(3), words=np.array(["a", "b"]))
    found = ckpt_surgery.verify(tmp_path / "x.npz")
    assert (told(found), found.bytes_read, found.bytes_not_read) == ([], 24, 8)
    assert verdict(found) == "no damage found"


# --- damage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("mode", list(Depth))
def test_a_file_that_is_cut_short(format: str, mode: Depth, written: Callable[..., Path]) -> None:
    path = written(NAMES[format])
    file = data_files(path)[0]
    os.truncate(file, file.stat().st_size - 500)
    assert ckpt_surgery.verify(path, mode=mode).flaws
    if path.is_dir():
        file.unlink()
        assert any("missing" in flaw.what for flaw in ckpt_surgery.verify(path, mode=mode).flaws)


def test_a_chunk_that_is_gone_and_one_of_someone_else(written: Callable[..., Path]) -> None:
    """Every checksum of the format is right in the latter; only the record tells."""
    path = written("out.zarr")
    spec = {"driver": "zarr3", "kvstore": f"file://{path}/a/bias/"}
    ts.open(spec, open=True).result()[7].write(-1).result()
    ((key, chunk, what),) = told(ckpt_surgery.verify(path))
    assert (key, chunk) == ("a/bias", (0,))
    assert what.startswith("its checksum is ")
    (path / "b" / "c" / "0" / "0").unlink()
    for mode in Depth:
        assert ("b", (0, 0), "its stored bytes are missing") in told(ckpt_surgery.verify(path, mode=mode))


def test_the_record_of_another_checkpoint(written: Callable[..., Path], tmp_path: Path) -> None:
    path = written("out")
    arrays = {"a/kernel": np.zeros((5, 5)), "a/bias": ARRAYS["a/bias"], "c": np.zeros(3), "d": np.zeros(3)}
    save_file(arrays, tmp_path / "o.safetensors")
    ckpt_surgery.convert(tmp_path / "o.safetensors", tmp_path / "other", link_mode="copy")
    shutil.copy(tmp_path / "other" / "ckpt_surgery.json", path / "ckpt_surgery.json")
    flaws = told(ckpt_surgery.verify(path, mode="fast"))
    other_shape = "it is float32[400,300], and its checksums in the record are of another shape"
    assert ("a/kernel", None, other_shape) in flaws
    assert ("c", None, "it is in the record, and not in the checkpoint") in flaws
    assert (None, None, "the checkpoint has 3 leaves, and its record is of 4") in flaws


# --- linked files -----------------------------------------------------------------------------------------


def test_linked_values_are_read_where_that_is_asked_for(linked: Path) -> None:
    found = ckpt_surgery.verify(linked)
    assert (found.bytes_read, found.bytes_not_read) == (0, TOTAL)
    full = ckpt_surgery.verify(linked, mode="full")
    assert (full.bytes_read, full.bytes_not_read) == (TOTAL, 0)
    assert full.notices == ("digests of 3 more leaves were recorded",)
    again = ckpt_surgery.verify(linked)
    assert (again.bytes_read, again.flaws) == (TOTAL, ())
    assert ckpt_surgery.verify(linked, mode="full").notices == ()


SAMPLED, BETWEEN = 100, 75_000
"""Offsets in the source's file: inside of its sample, and outside."""


def rewritten(source: Path, at: int, later: int) -> None:
    """Flip a bit in place; `later`: nanoseconds by which the file's time changes."""
    status = source.stat()
    flip(source, at)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + later))


def linked_file(path: Path) -> Path:
    """The only whole file in a checkpoint that came from its source."""
    (file,) = json.loads((path / "ckpt_surgery.json").read_text())["files"]
    return path / str(file["name"])


@pytest.mark.parametrize("later", [0, 10**9], ids=["old time", "new time"])
@pytest.mark.parametrize("mode", list(Depth))
def test_a_source_rewritten_in_place_inside_of_its_sample(linked: Path, mode: Depth, later: int) -> None:
    name, source = linked_file(linked).relative_to(linked), linked.with_name("source.safetensors")
    rewritten(source, -SAMPLED, later)
    what = f"its file {name}, which it shares with {source}, has changed since it was written: content"
    assert (None, None, what) in told(ckpt_surgery.verify(linked, mode=mode))


@pytest.mark.parametrize("later", [0, 10**9], ids=["old time", "new time"])
def test_a_source_rewritten_in_place_elsewhere_is_told_by_digests(linked: Path, later: int) -> None:
    ckpt_surgery.verify(linked, mode="full")
    rewritten(linked.with_name("source.safetensors"), BETWEEN, later)
    for mode in ("values", "full"):
        ((key, _, _),) = told(ckpt_surgery.verify(linked, mode=mode))
        assert key == "a/kernel"
    assert ckpt_surgery.verify(linked, mode="fast").flaws == ()


def test_without_digests_a_new_time_is_a_notice(linked: Path) -> None:
    """Nothing proves what was written between the samples: that is said, and nothing is called damaged."""
    rewritten(linked.with_name("source.safetensors"), BETWEEN, 1)
    begins = "1 linked file: only the time differs from the record, size and sample agree"
    for mode in ("fast", "values"):
        found = ckpt_surgery.verify(linked, mode=mode)
        assert (found.flaws, len(found.notices)) == ((), 1)
        assert found.notices[0].startswith(begins)
    found = ckpt_surgery.verify(linked, mode="full")
    assert found.notices[0].startswith(begins)
    assert found.notices[0].endswith("what was read had no digests to compare with")
    assert ckpt_surgery.verify(linked).notices == ()


def copied(path: Path, copy: Path) -> None:
    shutil.copytree(path, copy, copy_function=shutil.copy)  # without times, as `cp -r`


def archived(path: Path, copy: Path) -> None:
    """With times in whole seconds, as some archives and file systems keep them."""
    shutil.copytree(path, copy)
    for file in copy.rglob("*"):
        os.utime(file, (1, int(file.stat().st_mtime)))


@pytest.mark.parametrize("way", [copied, archived])
@pytest.mark.parametrize("digests", [False, True])
def test_a_copy_of_a_linked_checkpoint(
    way: Callable[[Path, Path], None], digests: bool, linked: Path, tmp_path: Path
) -> None:
    """It is whole in every mode, and stays so without the original; a flipped byte is found."""
    if digests:
        ckpt_surgery.verify(linked, mode="full")
    way(linked, tmp_path / "copy")
    shutil.rmtree(linked)
    (tmp_path / "source.safetensors").unlink()
    for mode in ("fast", "values", "full"):
        assert ckpt_surgery.verify(tmp_path / "copy", mode=mode).flaws == ()
    flip(linked_file(tmp_path / "copy"), BETWEEN)
    assert ckpt_surgery.verify(tmp_path / "copy").flaws  # by the digests that `full` has recorded


def test_the_record_of_a_damaged_checkpoint_stays(linked: Path) -> None:
    before = (linked / "ckpt_surgery.json").read_bytes()
    rewritten(linked.with_name("source.safetensors"), -SAMPLED, 1)
    assert ckpt_surgery.verify(linked, mode="full").flaws
    assert (linked / "ckpt_surgery.json").read_bytes() == before


# --- the record -------------------------------------------------------------------------------------------


def test_what_a_record_says(written: Callable[..., Path], tmp_path: Path) -> None:
    path = written("out")
    record = json.loads((path / "ckpt_surgery.json").read_text())
    assert record["schema"] == 1
    assert record["version"] == ckpt_surgery.__version__
    assert record["recipe"]["path"] == str(tmp_path / "recipe.yaml")
    ((source),) = record["sources"]
    assert (source["name"], source["format"]) == ("source", "safetensors")
    assert len(source["fingerprint"]) == 64
    leaf = next(leaf for leaf in record["leaves"] if leaf["key"] == "a/bias")
    crc32c = f"{google_crc32c.value((2 * ARRAYS['a/bias']).tobytes()):08x}"
    assert leaf == {"key": "a/bias", "grid": [5000], "of": "values", "crc32c": crc32c}


def test_the_record_changes_no_fingerprint(linked: Path, tmp_path: Path) -> None:
    """A plan that was saved for this source can be carried out after `verify --full`."""
    ckpt_surgery.plan(None, linked, out=tmp_path / "plan.json", dst=tmp_path / "out")
    ckpt_surgery.verify(linked, mode="full")
    ckpt_surgery.apply(tmp_path / "plan.json", dst=tmp_path / "out")
    assert ckpt_surgery.verify(tmp_path / "out").flaws == ()


# --- a random part of what has digests --------------------------------------------------------------------


def leaf(name: str, shape: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Leaf, Digests]:
    counts = [-(-s // g) for s, g in zip(shape, grid, strict=True)]
    digests = Digests(grid, True, dict.fromkeys(np.ndindex(*counts), 0))
    return Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(shape, np.dtype(np.float32))), digests


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
def archive(tmp_path: Path) -> Path:
    """A checkpoint of 40 leaves of 1 KiB, with a digest each."""
    save_file({f"w{i}": np.full(256, i, np.float32) for i in range(40)}, tmp_path / "old.safetensors")
    ckpt_surgery.convert(tmp_path / "old.safetensors", tmp_path / "new.npz")
    return tmp_path / "new.npz"


def test_what_is_read_and_what_is_not(archive: Path) -> None:
    found = ckpt_surgery.verify(archive, sample=0.05)
    assert (found.flaws, found.bytes_read, found.bytes_not_read) == ((), 2 << 10, 38 << 10)
    assert found.sample is not None
    assert (found.sample.regions_read, found.sample.regions) == (2, 40)
    assert any("38 of 40" in notice for notice in found.notices)
    whole = ckpt_surgery.verify(archive, sample=1)
    assert (whole.bytes_read, whole.bytes_not_read, whole.notices) == (40 << 10, 0, ())


def test_damage_is_found_where_it_is_drawn_and_nowhere_else(archive: Path) -> None:
    data = bytearray(archive.read_bytes())
    at = data.index(np.full(256, 7, np.float32).tobytes())
    data[at] ^= 1
    archive.write_bytes(data)
    assert {flaw.key for flaw in ckpt_surgery.verify(archive).flaws} == {"w7"}
    found = [bool(ckpt_surgery.verify(archive, sample=0.25, seed=seed).flaws) for seed in range(12)]
    assert 1 <= sum(found) <= 8
    codes = [run("verify", archive, "--sample", "25%", "--seed", seed).exit_code for seed in range(2)]
    assert codes == [3 if flawed else 0 for flawed in found[:2]]


def test_the_command_says_what_share_was_read(archive: Path) -> None:
    done = run("verify", archive, "--sample", "5%")
    assert (done.exit_code, "5.00%" in done.stdout) == (0, True)
    assert "no damage found" in done.stdout
    assert "whole" not in done.stdout
    document = json.loads(run("verify", archive, "--sample=.05", "--seed", "9", "--json").stdout)
    assert (document["sample"]["share_read"], document["sample"]["seed"]) == (0.05, 9)
    assert "sample" not in json.loads(run("verify", archive, "--json").stdout)


@pytest.mark.parametrize("text", ["5", "0", "0%", "101%", "-5%", "1.5", "five", "5 %", "nan", "٥%", ""])
def test_what_is_no_share_is_refused(archive: Path, text: str) -> None:
    done = run("verify", archive, "--sample", text)
    assert done.exit_code == 2
    assert "--sample" in done.stderr
    options: list[Any] = [{"sample": share} for share in (0, -0.1, 1.01, float("nan"))]
    for wrong in (*options, {"sample": 0.5, "mode": "fast"}, {"sample": 0.5, "mode": "full"}):
        with pytest.raises(UsageError, match="sample"):
            ckpt_surgery.verify(archive, **wrong)
    assert run("verify", archive, "--sample", "5%", "--full").exit_code == 2
    with pytest.raises(UsageError, match="digests"):
        ckpt_surgery.verify(archive.with_name("old.safetensors"), sample=0.5)
