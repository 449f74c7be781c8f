"""What is in a checkpoint, and how two differ."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery import inspecting
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.inspecting import diff, inspect
from ckpt_surgery.report.differences import Holds
from ckpt_surgery.report.leaves import Statistics


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", w=np.array([1.0, 3.0]), words=np.array(["x"]))
    return tmp_path / "a.npz"


def test_a_listing_reads_no_array(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        pytest.fail("an array is read")

    monkeypatch.setattr("ckpt_surgery.inspecting.statistics", refuse)
    monkeypatch.setattr("ckpt_surgery.inspecting.value_differences", refuse)
    found = inspect(archive)
    assert (found.path, found.format, found.step, found.item) == (str(archive), "npz", None, None)
    assert [leaf.key.text for leaf in found.leaves] == ["w", "words"]
    assert found.statistics is None
    assert diff(archive, archive).values is None


def test_statistics_are_those_of_the_leaves(archive: Path) -> None:
    found = inspect(archive, stats=True)
    assert found.statistics is not None
    assert found.statistics["w"] == Statistics(1.0, 3.0, 2.0, 1.0, 0, 0)
    assert list(found.statistics) == ["w", "words"]


def test_a_checkpoint_is_opened_once(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = inspecting.formats.open_source  # type: ignore[attr-defined]

    def counting(path: str, *more: Any) -> Any:
        opened.append(path)
        return real(path, *more)

    monkeypatch.setattr(inspecting.formats, "open_source", counting)  # type: ignore[attr-defined]
    inspect(archive, stats=True)
    assert opened == [str(archive)]


def test_the_format_that_the_caller_names_is_taken(archive: Path) -> None:
    assert inspect(archive, format="npz").format == "npz"
    with pytest.raises(SourceError, match="was to be read as orbax, but looks like npz"):
        inspect(archive, format="orbax")
    with pytest.raises(UsageError, match=r"There is no format `npzz`; did you mean `npz`\?"):
        inspect(archive, format="npzz")


def test_values_are_compared_within_the_budget(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "b.npz", w=np.array([1.0, 4.0]), words=np.array(["x"]))
    budgets: list[int] = []
    real = inspecting.value_differences  # type: ignore[attr-defined]

    def spying(a: Any, b: Any, memory: int, bare: Any) -> Any:
        budgets.append(memory)
        return real(a, b, memory, bare)

    monkeypatch.setattr("ckpt_surgery.inspecting.value_differences", spying)
    found = diff(archive, tmp_path / "b.npz", values=True, memory="64MiB")
    assert found.values is not None
    assert [(one.key, one.max_abs) for one in found.values if not one.equal] == [("w", 1.0)]
    monkeypatch.setattr("ckpt_surgery.inspecting.default_memory", lambda: 77)
    diff(archive, tmp_path / "b.npz", values=True)
    assert budgets == [64 << 20, 77]


def test_a_difference_knows_what_each_format_can_tell(archive: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "numbers.npz", w=np.ones(2))
    ckpt_surgery.convert(tmp_path / "numbers.npz", tmp_path / "out")
    found = diff(archive, tmp_path / "out")
    assert (found.holds_a, found.holds_b) == (Holds("npz", False, False), Holds("orbax", True, True))
