"""Where a result goes: its format, what is published, and what a plan learns about it."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.destinations import Publication, destination, is_file, open_sink, publication, resolved
from ckpt_surgery.language.models import OutputPolicy
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.requests import Request
from tests.support.writing import leaf_of, output_of, write_all


def options(
    dst: str | Path | None = None, output: OutputPolicy | None = None, **given: Any
) -> DestinationOptions:
    return resolved(Request(None, dst=None if dst is None else str(dst), **given), output)


@pytest.mark.parametrize(
    ("dst", "output", "given", "format"),
    [
        (None, None, {}, "orbax"),
        ("x", None, {}, "orbax"),
        ("x.npz", None, {}, "npz"),
        ("x.npz", OutputPolicy(format="zarr"), {}, "zarr"),  # the recipe before the name
        ("x.npz", OutputPolicy(format="zarr"), {"format": "flax"}, "flax"),  # the request before all
        ("x.pt", None, {"format": "orbax"}, "orbax"),
    ],
)
def test_the_format_is_the_first_that_is_named(
    dst: str | None, output: OutputPolicy | None, given: dict[str, Any], format: str
) -> None:
    assert options(dst, output, **given).format == format


def test_a_name_of_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(UsageError, match=r"x\.pt: its name says torch, which cannot be written"):
        options("x.pt")


def test_files_and_directories() -> None:
    assert is_file(options("x.safetensors"))
    assert not is_file(options("x", format="safetensors"))


def test_what_one_rename_publishes(tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    assert publication(new, None) == publication(new, 5) == Publication(tmp_path / "new", False)
    assert publication(str(tmp_path), None) == Publication(tmp_path, False)
    assert publication(str(tmp_path), 5) == Publication(tmp_path / "5", True)


def test_a_plan_learns_what_the_format_can_do(tmp_path: Path) -> None:
    found = destination(options(tmp_path / "x"), {}, [str(tmp_path)])
    assert (found.format, found.holds_empty, found.flat) == ("orbax", True, False)
    assert found.device == os.stat(tmp_path).st_dev
    flat = destination(options(tmp_path / "x.npz"), {}, [str(tmp_path)])
    assert (flat.format, flat.holds_empty, flat.flat, flat.device) == ("npz", False, True, None)
    copied = destination(options(tmp_path / "x", link_mode=LinkMode.COPY), {}, [str(tmp_path)])
    assert copied.device is None


def test_without_a_path_the_first_source_says_where(tmp_path: Path) -> None:
    assert (
        destination(options(), {}, [str(tmp_path / "gone" / "x"), str(tmp_path)]).device
        == os.stat(tmp_path).st_dev
    )


def test_a_path_where_the_format_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="backslash"):
        destination(options(tmp_path / "a\\b"), {}, [])
    with pytest.raises(UsageError, match="names the step 5 already"):
        destination(options(tmp_path / "5", dst_step=5), {}, [])


def test_a_step_of_a_directory_that_exists_is_written_without_its_number(tmp_path: Path) -> None:
    given = options(tmp_path, dst_step=5)
    outputs = [output_of("x", np.ones(2))]
    for name, step_only, item in (("whole", False, "whole/5/default"), ("step", True, "step/default")):
        (tmp_path / name).mkdir()
        write_all(open_sink(given, {}, tmp_path / name, outputs, step_only), {"x": np.ones(2)})
        assert (tmp_path / item / "manifest.ocdbt").is_file()


def test_the_encoder_is_the_formats_own() -> None:
    found = destination(options(format="safetensors"), {}, [])
    leaf = leaf_of("x", np.ones((2, 4)))
    assert found.encoder.unsupported([leaf]) == []
    assert found.encoder.grid(leaf, (1, 3)) == (1, 3)
