"""Merges have the same bits with any number of workers, however they are read back, and when resumed."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Interrupted, PlanError
from ckpt_surgery.engine import worker
from ckpt_surgery.graph.checked import Evaluator
from tests.support.calls import record_calls
from tests.support.merging import Arrays, arrays, loaded, save_config, save_model

CONFIG: dict[str, Any] = {
    "merge_method": "dare_ties",
    "base_model": "base",
    "models": [
        {"model": "math", "parameters": {"weight": 0.5, "density": 0.6}},
        {"model": "code", "parameters": {"weight": [0.1, 0.9], "density": 0.3}},
    ],
}
DONE = 5
"""Tasks that are done when a run is interrupted."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for name in ("base", "math", "code"):
        tensors = {key: value for key, value in arrays("models", name).items() if "mlp" not in key}
        save_model(tmp_path / name, {key: value for key, value in tensors.items() if ".2." not in key})
    return save_config(tmp_path / "merge.yaml", CONFIG)


@pytest.fixture
def whole(config: Path) -> Arrays:
    """What one thread writes."""
    ckpt_surgery.merge(config, config.parent / "whole", workers=1, verify="none")
    return loaded(config.parent / "whole")


def assert_same(place: Path, wanted: Arrays) -> None:
    found = loaded(place)
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in wanted.items()
    }


def interrupted_merge(config: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> Path:
    """The destination of a merge that a signal has ended after DONE tasks."""
    real, done, out = worker._Worker.do, [], config.parent / "out"
    lock = threading.Lock()

    def stopping(*arguments: Any) -> Any:
        with lock:
            if len(done) == DONE:
                raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")
            done.append(arguments[1])
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(worker._Worker, "do", stopping)
        with pytest.raises(Interrupted):
            ckpt_surgery.merge(config, out, workers=workers)
    assert not out.exists()
    return out


@pytest.mark.parametrize("workers", [1, 3])
def test_a_merge_that_was_interrupted_goes_on_with_the_rest(
    workers: int, config: Path, whole: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = interrupted_merge(config, monkeypatch, workers)
    computed = record_calls(monkeypatch, Evaluator, "compute", lambda evaluator, value, *others: value)
    done = ckpt_surgery.merge(config, out, workers=workers, resume=True)
    assert len(computed) == len(done.plan.steps) - DONE
    assert_same(out, whole)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in out.iterdir()}


@pytest.mark.slow("merges the same models many times")
def test_another_seed_does_not_go_on_with_what_was_begun(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = interrupted_merge(config, monkeypatch, 1)
    with pytest.raises(PlanError, match="cannot be resumed: it was written with another recipe"):
        ckpt_surgery.merge(config, out, resume=True, seed=1)
    assert not out.exists()


@pytest.mark.slow("merges the same models many times")
@pytest.mark.parametrize("verify", ["fast", "full"])
def test_workers_and_verification_change_no_bit(verify: str, config: Path, whole: Arrays) -> None:
    done = ckpt_surgery.merge(config, config.parent / "out", workers=4, verify=verify)
    assert_same(config.parent / "out", whole)
    nbytes = sum(value.nbytes for value in whole.values())
    assert (done.verified.mode, done.verified.bytes_read) == (verify, nbytes)
