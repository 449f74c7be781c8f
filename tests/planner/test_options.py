"""What it takes to carry a plan out."""

from pathlib import Path

import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.planner.prepared import DestinationOptions


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (None, "checkpoint"),
        ("out.npz", "out.npz"),
        ("/a/out.npz", "out.npz"),
        ("a/out/", "out"),
        ("a/b/..", "a"),
        (".", "here"),
    ],
)
def test_the_name_of_a_destination(
    path: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name may imply a format, so it is the one that the destination will really have."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    options = DestinationOptions(path, "orbax", None, None, 3, False, None, LinkMode.AUTO)
    assert options.name == name
