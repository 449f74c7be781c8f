"""What shares its bytes with a source and what does not, where sources are rewritten in place afterwards."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.storage import linking
from tests.support.checkpoints import random
from tests.support.comparing import assert_same
from tests.support.failing import refusing
from tests.support.libraries import ORIGINS
from tests.support.plans import transfers_of
from tests.support.reading import read
from tests.support.recipes import write_recipe

FIRST = {f"layer_{i}": random((64, 32), i) for i in range(3)}
SECOND = {key: value + 1 for key, value in FIRST.items()}
NBYTES = 3 * 64 * 32 * 4
REWRITTEN = ("flax", "dcp", "gguf", "hdf5", "npz", "tensorflow", "torch", "safetensors")
"""Formats of large data files, which programs open and write anew."""


@pytest.fixture(autouse=True)
def no_reflinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on ext4."""
    monkeypatch.setattr(linking, "can_reflink", lambda *_: False)
    monkeypatch.setattr(linking, "reflink", refusing(errno.EOPNOTSUPP))


def saved(name: str, directory: Path) -> Path:
    """A checkpoint of a format, as its own library writes it."""
    directory.mkdir()
    return ORIGINS[name].save(FIRST, directory / f"model{ORIGINS[name].suffix}")


def rewrite(path: Path) -> None:
    """Every file of a checkpoint, in place: with the same size and other bytes."""
    for file in [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]:
        with file.open("r+b") as opened:
            changed = bytes(byte ^ 1 for byte in opened.read())
            opened.seek(0)
            opened.write(changed)


def same_files(one: Path, other: Path) -> list[Path]:
    """Files below `one` that are hard links to files below `other`."""
    inodes = {path.stat().st_ino for path in other.rglob("*") if path.is_file()}
    return [path for path in one.rglob("*") if path.is_file() and path.stat().st_ino in inodes]


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_source_that_is_rewritten_in_place_does_not_change_the_result(name: str, tmp_path: Path) -> None:
    source = saved(name, tmp_path / "in")
    result = applying.convert(source, tmp_path / "out", format="orbax")
    costs = result.plan.costs
    assert (costs.bytes_linked, costs.bytes_copied, costs.bytes_linkable) == (0, NBYTES, NBYTES)
    assert (result.shared, result.notices) == ((), ())
    assert same_files(tmp_path / "out", tmp_path / "in") == []
    rewrite(source)
    assert_same(read(tmp_path / "out"), FIRST)


@pytest.mark.parametrize("name", [*REWRITTEN, "orbax", "t5x", "zarr3"])
def test_hard_links_are_made_and_told_where_they_are_asked_for(name: str, tmp_path: Path) -> None:
    source = saved(name, tmp_path / "in")
    held = read(source)
    result = applying.convert(source, tmp_path / "out", format="orbax", link_mode="hardlink")
    assert (result.plan.costs.bytes_linked, result.plan.costs.bytes_linkable) == (NBYTES, 0)
    for file in result.shared:
        mine, theirs = tmp_path / "out" / file.name, Path(file.source)
        assert os.path.samefile(mine, theirs)
        assert (file.size, file.modified) == (theirs.stat().st_size, theirs.stat().st_mtime_ns)
        assert (file.how, file.crc32c) == (LinkMode.HARDLINK, None)
    found = {tmp_path / "out" / file.name for file in result.shared}
    assert sorted(found) == sorted(same_files(tmp_path / "out", tmp_path / "in")) != []
    shutil.rmtree(tmp_path / "in")
    assert_same(read(tmp_path / "out"), held)


@pytest.mark.parametrize("way", ["cache", "read-only"])
def test_files_of_any_format_are_linked_where_nothing_rewrites_them(way: str, tmp_path: Path) -> None:
    """The result stays whole without the cache, whose files are links into `blobs`."""
    source = saved("safetensors", tmp_path / "in")
    if way == "cache":
        snapshot = tmp_path / "in" / "models--a--b" / "snapshots" / "0f"
        snapshot.mkdir(parents=True)
        (tmp_path / "in" / "models--a--b" / "blobs").mkdir()
        source.rename(tmp_path / "in" / "models--a--b" / "blobs" / "e3")
        (snapshot / source.name).symlink_to("../../blobs/e3")
        source = snapshot / source.name
    else:
        source.chmod(0o444)
    result = applying.convert(source, tmp_path / "out", format="orbax")
    assert result.plan.costs.bytes_linked == NBYTES
    (file,) = result.shared
    assert file.source == str(source.resolve())
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    shutil.rmtree(tmp_path / "in")
    assert_same(read(tmp_path / "out"), FIRST)


def test_sources_are_looked_at_one_by_one(tmp_path: Path) -> None:
    """Of two sources, and a value that is made of both."""
    source = saved("orbax", tmp_path / "in")
    other = ORIGINS["safetensors"].save(SECOND, tmp_path / "in" / "x.safetensors")
    recipe = write_recipe(
        tmp_path,
        "version: 1\nsources: [one, two]\nunmatched: drop\nrules:\n"
        "- {match: '(.*)', to: 'one/${g[1]}', source: one}\n"
        "- {match: '(.*)', to: 'two/${g[1]}', source: two}\n",
    )
    result = applying.apply(recipe, source, other, dst=tmp_path / "out")
    assert transfers_of(result.plan) == {
        **{f"one/{key}": "link" for key in FIRST},
        **{f"two/{key}": "copy" for key in FIRST},
    }
    assert result.plan.costs.bytes_linkable == NBYTES
    assert {Path(file.source).is_relative_to(source) for file in result.shared} == {True}
    rewrite(other)
    assert_same(
        read(tmp_path / "out"),
        {f"one/{k}": v for k, v in FIRST.items()} | {f"two/{k}": v for k, v in SECOND.items()},
    )
