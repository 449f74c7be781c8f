"""What is in a checkpoint, and how two differ."""

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api.inspecting import diff, inspect
from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.language.expressions import regexes as patterns
from ckpt_surgery.report.differences import Holds
from ckpt_surgery.report.distances import Tolerance
from ckpt_surgery.report.inspection import Inspection
from tests.support.checkpoints import quiet, save_pytree


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", w=np.array([1.0, 3.0]), words=np.array(["x"]))
    return tmp_path / "a.npz"


def test_a_difference_knows_what_each_format_can_tell(archive: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "numbers.npz", w=np.ones(2))
    ckpt_surgery.convert(tmp_path / "numbers.npz", tmp_path / "out")
    found = diff(archive, tmp_path / "out")
    assert (found.holds_a, found.holds_b) == (Holds("npz", False, False), Holds("orbax", True, True))


TREE = {"b": {"w10": np.ones(2), "w9": np.ones(3)}, "a": np.ones(1), "step": 7}


def keys(found: Inspection) -> list[str]:
    return [leaf.key.text for leaf in found.leaves]


def test_some_of_the_leaves() -> None:
    found = inspect(TREE, under="b", match=".*9", stats=True)
    assert (keys(found), found.others) == (["b/w9"], 3)
    assert list(found.statistics or {}) == ["b/w9"]
    with pytest.raises(UsageError, match="matches none of 2 keys"):
        inspect(TREE, under="b", match="a")


def test_leaves_are_sorted_and_added_up() -> None:
    assert keys(inspect(TREE, sort="name")) == ["a", "b/w9", "b/w10", "step"]
    assert keys(inspect(TREE, sort="size", match="[ab].*")) == ["b/w9", "b/w10", "a"]
    found = inspect(TREE, depth=1)
    assert (found.parameters, found.values, found.unusual) == (6, {"step": 7}, None)
    assert [(one.key, one.leaves, one.elements) for one in found.subtrees] == [("b", 2, 5)]


def test_progress_is_told_of_what_is_read(archive: Path) -> None:
    told: list[Progress] = []
    inspect(archive, stats=True, match="w", progress=told.append)
    assert told == [Progress(16, 16, "reading")]
    diff(archive, archive, values=True, progress=told.append)
    assert told[1:] == [Progress(16, 20, "reading"), Progress(20, 20, "reading")]


def test_only_matching_leaves_are_compared() -> None:
    other = {**TREE, "a": np.zeros(1), "b": {"w9": np.zeros(3), "c": np.ones(1)}}
    found = diff(TREE, other, match="b/w.*", values=True)
    assert ([one.key.text for one in found.only_a], found.only_b, found.common) == (["b/w10"], (), 1)
    assert [one.key for one in found.values or ()] == ["b/w9"]
    assert [one.key.text for one in diff(TREE, other, match="b/c").only_b] == ["b/c"]
    with pytest.raises(UsageError, match="matches none of 5 keys"):
        diff(TREE, other, match="w")


def test_an_expression_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    with pytest.raises(RecipeError, match=r"took more than 0\.05 s"):
        inspect({"a" * 40: np.ones(1)}, match="(a|aa)+b")


def test_values_within_the_tolerances_are_the_same() -> None:
    a, b = {"w": np.array([1.0, 100.0])}, {"w": np.array([1.001, 100.0])}
    assert diff(a, b, values=True).different
    assert diff(a, b, values=True, rtol=1e-4).different
    found = diff(a, b, values=True, rtol=1e-2)
    assert not found.different
    assert found.tolerance == Tolerance(1e-2, 0.0)
    assert found.values is not None
    assert found.values[0].max_abs == pytest.approx(1e-3)
    assert not diff(a, b, values=True, atol=1e-2).different


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs of other items, and a checkpoint without any. Read-only."""
    directory, tree = tmp_path_factory.mktemp("runs"), {"w": np.ones(2)}
    for name, items in (("run", ("state", "ema")), ("named", ("model",))):
        with quiet(), ocp.CheckpointManager(directory / name, item_names=items) as manager:
            saved = {item: ocp.args.StandardSave(tree) for item in items}
            manager.save(1, args=ocp.args.Composite(**saved))
    save_pytree(directory / "plain", tree)
    return directory


@pytest.mark.parametrize(
    ("other", "exchanged", "step"), [("named", False, None), ("named", True, 1), ("plain", True, None)]
)
def test_an_item_that_one_side_lacks_is_named_by_its_path(
    runs: Path, other: str, exchanged: bool, step: int | None
) -> None:
    """The hint is followed: paths of items are compared."""
    sides = [runs / "run", runs / other]
    with pytest.raises(UsageError) as caught:
        diff(*(sides[::-1] if exchanged else sides), step=step, item="ema")
    assert str(caught.value).endswith("name the path of each item, without `item=…` and `step=…`.")
    path = runs / "run" / "1" / "ema"
    assert not diff(path, runs / other).different
    with pytest.raises(UsageError, match="Items with arrays: `model`"):  # neither side has it
        diff(runs / "named", runs / "named", item="ema")
