"""Every file of a source is cut short and deleted in turn, in every layout that can be read."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.runs import Run, Runner
from tests.faults.scenarios import check_message, copy
from tests.faults.tally import Tally
from tests.support import checkpoints, linked_sources
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same, same
from tests.support.directories import files_of, names, state_of
from tests.support.libraries import ORIGINS


@dataclass(frozen=True)
class Layout:
    """A checkpoint as a library writes it."""

    save: Callable[[Path], object]
    wanted: Callable[[], Mapping[str, Any]]
    """What it holds, in the form of `checkpoints.expected`."""
    suffix: str = ""
    listed: bool = True
    """Whether the checkpoint has a list of its leaves. Without one, nobody can tell that one is missing."""


UNLISTED = ("npy", "zarr2", "zarr3")


def _origin(name: str) -> Layout:
    origin = ORIGINS[name]
    listed = name not in UNLISTED
    return Layout(lambda path: origin.save(origin.arrays, path), lambda: origin.arrays, origin.suffix, listed)


def _orbax(name: str) -> Layout:
    return Layout(checkpoints.LAYOUTS[name], lambda: checkpoints.expected_of(name))


def _linked(name: str) -> Layout:
    return Layout(linked_sources.LAYOUTS[name], lambda: linked_sources.everything(name))


LAYOUTS: Mapping[str, Layout] = {
    **{name: _origin(name) for name in ORIGINS if name != "orbax"},
    **{f"orbax {name}": _orbax(name) for name in checkpoints.LAYOUTS if name != "processes"},
    **{f"orbax {name}": _linked(name) for name in ("foreign-zarr2", "foreign-zarr3")},
    "safetensors shards": _linked("shards"),
}


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["auto", "copy"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_file_damaged(name: str, mode: str, runner: Runner, tmp_path: Path, tally: Tally) -> None:
    layout = LAYOUTS[name]
    (tmp_path / "whole").mkdir()
    (tmp_path / "work").mkdir()
    whole, source = tmp_path / "whole" / f"x{layout.suffix}", tmp_path / "work" / f"x{layout.suffix}"
    layout.save(whole)
    if not whole.exists():  # a prefix of several files
        whole, source = whole.parent, source.parent
    copy(whole, source)
    broken = []
    for file in files_of(source):
        data = file.read_bytes()
        before = file.stat()
        for cut in _cuts(len(data)):
            if cut is None:
                file.unlink()
            else:
                os.truncate(file, cut)
            try:
                _try_one(name, layout, mode, source, file, cut, runner, tmp_path, tally)
            except AssertionError as error:
                broken.append(f"{file.relative_to(tmp_path)} cut at {cut} of {len(data)}: {error}")
            file.write_bytes(data)
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not broken, "\n\n".join(broken)


def _cuts(length: int) -> Sequence[int | None]:
    """Lengths to which a file is cut; None where it is deleted."""
    return [None, *sorted({0, length // 2, max(0, length - 1)} - {length})]


def _try_one(
    name: str,
    layout: Layout,
    mode: str,
    source: Path,
    file: Path,
    cut: int | None,
    runner: Runner,
    directory: Path,
    tally: Tally,
) -> None:
    before = state_of(source if source.is_dir() else source.parent)
    run = runner.run("convert", source, "out", "--link-mode", mode, directory=directory)
    out = directory / "out"
    assert run.in_time
    if run.code == 0:
        try:
            ended = compare(run, out, layout, cut)
        finally:
            shutil.rmtree(out)
    else:
        check_refusal(run, source, layout)
        ended = "refused"
    assert names(directory) == ["whole", "work"], run
    assert state_of(source if source.is_dir() else source.parent) == before
    kind = "source file deleted" if cut is None else "source truncated"
    tally.add(kind, name, ended)


def compare(run: Run, out: Path, layout: Layout, cut: int | None) -> str:
    """Assert that a result has no wrong value, and every leaf that the source tells of; how it ended."""
    try:
        found = restored(out)
    except Exception as error:
        raise AssertionError(f"published, but {error}: {run}") from error
    wanted = layout.wanted()
    if cut is None and not layout.listed and len(found) < len(wanted):
        assert_same(found, {key: value for key, value in wanted.items() if key in found})
        return "a leaf less, as the layout has no list of them"
    if cut is None and not layout.listed:
        assert_same(_without_fill(found, wanted), wanted)
        return "zeros, which the format takes a missing chunk for"
    assert_same(found, wanted)
    return "no value needs it"


def _without_fill(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the wanted elements in place of zeros, as which zarr reads a chunk that is missing."""
    return {
        key: np.where(value == 0, wanted[key], value) if not same(value, wanted[key]) else value
        for key, value in found.items()
    }


def check_refusal(run: Run, source: Path, layout: Layout) -> None:
    """Assert that the error says which file or leaf is damaged."""
    assert run.code in (1, 2), run
    check_message(run, hinted=run.code == 1)
    told = run.err.replace("\\/", "/")  # a separator inside of a component is printed with a backslash
    assert str(source) in told or any(f"`{key}`" in told for key in layout.wanted()), run
