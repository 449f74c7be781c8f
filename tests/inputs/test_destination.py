"""Where a result goes: its format, what is published, and what a plan learns about it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.protocols import DataFile, Linkable
from ckpt_surgery.formats import known as formats
from ckpt_surgery.inputs.preparing import describe_destination, resolve_destination
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.storage import linking
from ckpt_surgery.storage.listing import data_file
from tests.support.key_value import key_value


def options(dst: str | Path | None = None, **given: Any) -> DestinationOptions:
    return resolve_destination(Request(None, dst=None if dst is None else str(dst), **given), None)


def source(path: Path, format: str = "safetensors") -> Any:
    """What a destination asks of a source."""
    return SimpleNamespace(path=str(path), format=format)


# --- what can be linked -----------------------------------------------------------------------------------


def file_at(path: Path, mode: int = 0o644) -> DataFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"0123456789")
    path.chmod(mode)
    return data_file(str(path))


def linkable(mode: str, tmp_path: Path, *sources: Any, dst: Path | None = None) -> Any:
    given = options(dst or tmp_path / "out", link_mode=LinkMode(mode))
    return describe_destination(given, {}, sources).linkable


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
