"""Permitted NaN and infinity are told by every way to carry out a recipe, and refused without permission."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DataError, Interrupted
from tests.support.command_line import run
from tests.support.recipes import write_recipe

REFUSED = "version: 1\nrules:\n  - {match: 'w|v', value: x * 2}\n"
PERMITTED = REFUSED.replace("x * 2", "allow_nonfinite(x * 2)")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    w = np.ones((64, 512), np.float32)
    w[0, 3] = w[40, 40] = w[63, 511] = 3e38
    w[5] = np.inf  # as it was
    v = np.array([1, 6e4], np.float16)
    path = tmp_path / "source.safetensors"
    save_file({"w": w, "v": v, "other": np.float32([np.nan])}, path)
    return path


def test_a_resumed_run_counts_what_was_done_before(source: Path, tmp_path: Path) -> None:
    out, recipe = tmp_path / "out.safetensors", write_recipe(tmp_path, PERMITTED)

    def stop(progress: object) -> None:
        if progress.done_bytes == progress.total_bytes:  # type: ignore[attr-defined]
            raise Interrupted(15, "stopped")

    with pytest.raises(Interrupted):
        ckpt_surgery.apply(recipe, source, dst=out, memory="1MiB", progress=stop)
    done = run("apply", recipe, source, out, "--json", "--memory", "1MiB", "--resume")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["overflowed"] == [{"key": "w", "count": 3}, {"key": "v", "count": 1}]
    assert "4 elements" in done.stderr
    found = load_file(out)
    assert np.count_nonzero(np.isinf(found["w"])) == 512 + 3
    assert np.isinf(found["v"][1])


def test_restore_refuses_and_logs(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    import jax.numpy as jnp

    with pytest.raises(DataError):
        ckpt_surgery.restore(REFUSED, source)
    with caplog.at_level(logging.WARNING, logger="ckpt_surgery"):
        found = ckpt_surgery.restore(PERMITTED, source)
    assert jnp.isinf(found["w"]).sum() == 512 + 3
    assert any("3 in `w`" in record.getMessage() for record in caplog.records)
