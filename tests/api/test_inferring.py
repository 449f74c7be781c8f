"""`infer` from Python: checkpoints, trees and listings on both sides, and what ends how."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery import SurgeryError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.inference.expressions.formations import Evidence, Value
from ckpt_surgery.inference.values import by_values
from tests.support import checkpoints
from tests.support.comparing import assert_same
from tests.support.reading import read
from tests.support.trees import nested

Arrays = Mapping[str, np.ndarray]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


LAYERS = {f"layers.{i}.mlp.weight": normal(4, 6, seed=i) for i in range(3)}
SOURCE = {**LAYERS, "embed.weight": normal(9, 4), "norm.weight": np.ones(4, np.float32)}
TARGET = {
    "params/layers/mlp/kernel": np.stack([one.T for one in LAYERS.values()]),
    "params/embed/embedding": SOURCE["embed.weight"],
    "params/norm/scale": SOURCE["norm.weight"],
}


def saved(path: Path, arrays: Arrays) -> Path:
    """A safetensors file."""
    save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, path)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved(tmp_path / "source.safetensors", SOURCE)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An Orbax checkpoint."""
    path = tmp_path / "target"
    checkpoints.save_pytree(path, nested(TARGET))
    return path


def evidence(found: ckpt_surgery.Inferred) -> dict[str, Evidence]:
    return {one.target: one.evidence for one in found.findings.formations}


def test_files_of_two_formats(source: Path, target: Path, tmp_path: Path) -> None:
    found = ckpt_surgery.infer(source, target)
    assert (found.decided, found.values, found.needs_target, found.problems) == (True, "shared", False, ())
    assert (found.source_leaves, found.target_leaves) == (5, 3)
    assert evidence(found) == {
        "params/layers/mlp/kernel": Evidence.VALUES,
        "params/embed/embedding": Evidence.VALUES,
        "params/norm/scale": Evidence.ONLY_LAYOUT,  # ones prove nothing
    }
    draft = tmp_path / "draft.yaml"
    draft.write_text(found.recipe)
    ckpt_surgery.apply(draft, source, dst=tmp_path / "made")
    assert_same(read(tmp_path / "made"), TARGET)


def test_steps_and_items(tmp_path: Path) -> None:
    root = tmp_path / "run"
    options = ocp.CheckpointManagerOptions(step_prefix=None)
    with checkpoints.quiet(), ocp.CheckpointManager(root, options=options) as manager:
        for step in (1, 2):
            tree = {"a": {"w": normal(3, 4, seed=step)}}
            manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(tree)))
    wanted = {"b": {"w": normal(3, 4, seed=1)}}
    found = ckpt_surgery.infer(root, wanted, step=1, item="state")
    assert (found.decided, found.values) == (True, "shared")
    latest = ckpt_surgery.infer(root, wanted, item="state")
    assert latest.values == "unrelated"
    with pytest.raises(SurgeryError):
        ckpt_surgery.infer(root, wanted, step=7, item="state")


@pytest.fixture
def wrong_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every formation of a square array is turned about, as a wrong layout would do it."""
    right = by_values.match_by_values

    def wrong(*sides: Any) -> by_values.ByValues:
        said = right(*sides)
        turned = [
            replace(one, value=Value("x.T")) if one.target == "square" else one for one in said.formations
        ]
        return replace(said, formations=tuple(turned))

    monkeypatch.setattr("ckpt_surgery.inference.finding.match_by_values", wrong)


@pytest.mark.usefixtures("wrong_layouts")
def test_what_its_proof_refutes_is_undecided() -> None:
    source = {"a": normal(4, 4), "other": normal(3, 4), "norm": np.ones(4, np.float32)}
    target = {"square": source["a"], "other": source["other"], "norm": source["norm"]}
    found = ckpt_surgery.infer(source, target)
    assert not found.decided
    assert found.problems == ()
    (refuted,) = found.findings.undecided
    assert refuted.targets == ("square",)
    assert refuted.why == "the values disagree: not every element is equal"
    assert set(evidence(found)) == {"other", "norm"}
    assert found.findings.dropped == ()
    assert "# not decided: square: the values disagree: not every element is equal" in found.recipe


def test_progress_counts_what_is_read_and_what_is_compared() -> None:
    told: list[Progress] = []
    ckpt_surgery.infer({"w": normal(3, 4)}, {"v": normal(3, 4).T.copy()}, progress=told.append)
    assert [(one.done_bytes, one.total_bytes) for one in told] == [(48, 96), (96, 96), (48, 48)]
    assert len({one.doing for one in told}) == 2


def test_a_draft_without_a_free_leaf_stops_by_a_rule_of_its_own() -> None:
    """`unmatched: error` finds nothing where all leaves are claimed."""
    source = {"a": np.ones((3, 2), np.float32)}
    found = ckpt_surgery.infer(source, {**source, "it's {new}": np.zeros(7, np.float32)}, values="ignore")
    assert not found.decided
    assert not found.problems
    with pytest.raises(ckpt_surgery.SurgeryError, match=r"it's \{new\} is not decided"):
        ckpt_surgery.plan(found.recipe, source)
