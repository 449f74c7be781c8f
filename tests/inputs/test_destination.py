"""Where a result goes: its format, what is published, and what a plan learns about it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import StorageError, UsageError
from ckpt_surgery.core.protocols import DataFile, Linkable
from ckpt_surgery.engine.staging.stages import Publication
from ckpt_surgery.formats import known as formats
from ckpt_surgery.inputs.preparing import describe_destination, prepare, resolve_destination, result_form
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.runs.destination import open_sink, publication
from ckpt_surgery.storage import linking
from ckpt_surgery.storage.listing import data_file
from tests.support.checkpoints import save_pytree
from tests.support.key_value import key_value
from tests.support.writing import leaf_of, write_all


def options(dst: str | Path | None = None, **given: Any) -> DestinationOptions:
    return resolve_destination(Request(None, dst=None if dst is None else str(dst), **given), None)


def test_files_and_directories() -> None:
    for name, one_file in (("x.safetensors", True), ("x", False)):
        chosen = options(name, format="safetensors")
        form = result_form(chosen, describe_destination(chosen, {}, []).encoder)
        assert (form.one_file, form.holds_config, form.reserves_record) == (one_file, not one_file, True)


def test_what_one_rename_publishes(tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    assert publication(new, None) == publication(new, 5) == Publication(str(tmp_path / "new"), False)
    assert publication(str(tmp_path), None) == Publication(str(tmp_path), False)
    assert publication(str(tmp_path), 5) == Publication(str(tmp_path / "5"), True)


def source(path: Path, format: str = "safetensors") -> Any:
    """What a destination asks of a source."""
    return SimpleNamespace(path=str(path), format=format)


def test_a_plan_learns_what_the_format_can_do(tmp_path: Path) -> None:
    found = describe_destination(options(tmp_path / "x"), {}, [source(tmp_path)])
    assert (found.format, found.holds_empty, found.flat) == ("orbax", True, False)
    assert found.linkable is not None
    flat = describe_destination(options(tmp_path / "x.npz"), {}, [source(tmp_path)])
    assert (flat.format, flat.holds_empty, flat.flat, flat.linkable) == ("npz", False, True, None)
    copied = describe_destination(options(tmp_path / "x", link_mode=LinkMode.COPY), {}, [source(tmp_path)])
    assert copied.linkable is None


# --- what can be linked -----------------------------------------------------------------------------------


def file_at(path: Path, mode: int = 0o644) -> DataFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456789")
    path.chmod(mode)
    return data_file(str(path))


def linkable(mode: str, tmp_path: Path, *sources: Any, dst: Path | None = None) -> Any:
    given = options(dst or tmp_path / "out", link_mode=LinkMode(mode))
    return describe_destination(given, {}, sources).linkable


@pytest.mark.parametrize("reflinks", [False, None, True])
def test_auto_links_what_is_never_rewritten_and_all_where_there_are_reflinks(
    reflinks: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Path]] = []
    monkeypatch.setattr(linking, "can_reflink", lambda *found: asked.append(found) or reflinks)
    orbax, model = tmp_path / "orbax", tmp_path / "model.safetensors"
    found = linkable("auto", tmp_path, source(model), source(orbax, "orbax"))
    written = [file_at(model), file_at(tmp_path / "else" / "y")]
    elsewhere = Linkable.YES if reflinks else Linkable.IF_NEVER_REWRITTEN
    assert [found(file) for file in written] == [elsewhere] * 2
    assert asked == [(str(model), tmp_path)]  # once, with the first file
    assert found(file_at(orbax / "d" / "0")) is Linkable.YES
    assert found(file_at(tmp_path / "only-read", 0o444)) is Linkable.YES
    (tmp_path / "hub" / "snapshots").mkdir(parents=True)
    assert found(file_at(tmp_path / "hub" / "blobs" / "e3b0")) is Linkable.YES
    assert found(replace(written[0], domain="elsewhere")) is Linkable.NO


@pytest.mark.parametrize("format", sorted(formats.formats()))
def test_formats_say_whether_their_writers_replace_files(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "can_reflink", lambda *_: False)
    found = linkable("auto", tmp_path, source(tmp_path / "in", format))(file_at(tmp_path / "in" / "x"))
    assert (found is Linkable.YES) == (format in ("orbax", "t5x", "zarr"))


def test_the_innermost_checkpoint_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "can_reflink", lambda *_: False)
    adapter = tmp_path / "orbax" / "adapter.safetensors"
    found = linkable("auto", tmp_path, source(tmp_path / "orbax", "orbax"), source(adapter))
    assert found(file_at(adapter)) is Linkable.IF_NEVER_REWRITTEN
    assert found(file_at(tmp_path / "orbax" / "d" / "0")) is Linkable.YES
    (tmp_path / "alias").symlink_to("orbax")
    found = linkable("auto", tmp_path, source(tmp_path / "alias", "orbax"))
    assert found(file_at(tmp_path / "orbax" / "d" / "0")) is Linkable.YES


def test_arrays_beside_the_file_of_a_t5x_checkpoint_belong_to_it(tmp_path: Path) -> None:
    file_at(tmp_path / "in" / "checkpoint")
    found = linkable("auto", tmp_path, source(tmp_path / "in" / "checkpoint", "t5x"))
    assert found(file_at(tmp_path / "in" / "target.w" / "0.0")) is Linkable.YES


def test_hard_links_are_the_users_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "can_reflink", lambda *_: pytest.fail("of no interest"))
    file = file_at(tmp_path / "x.npz")
    assert linkable("hardlink", tmp_path, source(tmp_path / "x.npz", "npz"))(file) is Linkable.YES
    assert linkable("hardlink", tmp_path)(replace(file, domain="elsewhere")) is Linkable.NO


def test_reflinks_are_required_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_at(tmp_path / "x.npz")
    for reflinks in (True, None):  # None: the run will tell
        monkeypatch.setattr(linking, "can_reflink", lambda *_, found=reflinks: found)
        assert linkable("reflink", tmp_path)(file) is Linkable.YES
    with pytest.raises(StorageError, match=r"x\.npz cannot be reflinked into .*different file systems"):
        linkable("reflink", tmp_path)(replace(file, domain="elsewhere"))
    monkeypatch.setattr(linking, "can_reflink", lambda *_: False)
    with pytest.raises(StorageError, match=r'(?s)no reflinks\n.*`link_mode="auto"`.*`link_mode="copy"`'):
        linkable("reflink", tmp_path)(file)


def test_without_a_path_the_first_source_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(linking, "can_reflink", lambda file, directory: asked.append(directory))
    for first in (tmp_path / "in", tmp_path / "in" / "x.npz"):
        file = file_at(tmp_path / "in" / "x.npz")
        found = describe_destination(options(), {}, [source(tmp_path / "gone" / "x"), source(first)])
        assert found.linkable is not None
        assert found.linkable(file) is Linkable.IF_NEVER_REWRITTEN
    assert asked == [tmp_path / "in"] * 2
    assert describe_destination(options(), {}, [source(tmp_path / "gone" / "x")]).linkable is None


def test_a_path_where_the_format_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="backslash"):
        describe_destination(options(tmp_path / "a\\b"), {}, [])
    with pytest.raises(UsageError, match="names the step 5 already"):
        describe_destination(options(tmp_path / "5", dst_step=5), {}, [])


def test_a_step_of_a_directory_that_exists_is_written_without_its_number(tmp_path: Path) -> None:
    save_pytree(tmp_path / "in", {"x": np.ones(2)})
    prepared = prepare(Request(None, (str(tmp_path / "in"),), str(tmp_path / "out"), dst_step=5))
    for name, step_only, item in (("whole", False, "whole/5/default"), ("step", True, "step/default")):
        sink = open_sink(prepared, Publication(str(tmp_path / "out"), step_only), str(tmp_path / name))
        write_all(sink, {"x": np.ones(2)})
        assert (tmp_path / item / "manifest.ocdbt").is_file()


def test_the_encoder_is_the_formats_own() -> None:
    found = describe_destination(options(format="safetensors"), {}, [])
    leaf = leaf_of("x", np.ones((2, 4)))
    assert found.encoder.unsupported([leaf]) == []
    assert found.encoder.grid(leaf, (1, 3)) == (1, 3)


@pytest.mark.parametrize("stores", [False, True])
def test_what_is_uploaded_takes_over_no_objects(
    stores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A format that is written to a local directory first cannot have the store copy an object there."""
    orbax = replace(formats.format_named("orbax"), stores=stores)
    monkeypatch.setattr(formats, "format_named", lambda name: orbax)
    with key_value(tmp_path / "bucket") as bucket:
        linkable = describe_destination(options(f"{bucket}/out"), {}, []).linkable
    assert (linkable is not None) == stores
