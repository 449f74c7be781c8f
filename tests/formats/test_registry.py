"""Which format a path has, and formats from elsewhere."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery import formats
from ckpt_surgery.errors import UsageError
from ckpt_surgery.formats import Format, SinkOptions


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Format]:
    """A format of another package, found through its entry point."""

    def refuse(*_: Any) -> Any:
        raise UsageError("toys are not for reading")

    made = Format("toy", lambda path: path.suffix == ".toy", refuse)

    class Entry:
        def load(self) -> Format:
            return made

    original = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda **query: [Entry()] if query == {"group": "ckpt_surgery.formats"} else original(**query),
    )
    formats.formats.cache_clear()
    yield made
    formats.formats.cache_clear()


def test_orbax_is_known() -> None:
    assert formats.formats()["orbax"].open_sink is not None


def test_entry_points_add_formats(toy: Format, tmp_path: Path) -> None:
    (tmp_path / "x.toy").write_bytes(b"")
    assert formats.detect_format(str(tmp_path / "x.toy")) is toy
    with pytest.raises(UsageError, match="toys are not"):
        formats.open_source(str(tmp_path / "x.toy"))
    with pytest.raises(UsageError, match=r"`toy` can be read but not written\n  Formats to write: orbax"):
        formats.open_sink("toy", tmp_path, SinkOptions())


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no format `orbaks`; did you mean `orbax`\?"):
        formats.open_sink("orbaks", tmp_path, SinkOptions())
