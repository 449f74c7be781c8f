"""Checkpoints that are written to an object store: what is there afterwards, and what never is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.storage.store import store_of
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import restored, save_pytree, tree
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.ended_runs import Killed
from tests.support.key_value import KeyValueStore, downloaded
from tests.support.recipes import write_recipe

STACKED = """\
version: 1
rules:
  - match: (?P<rest>.*)
    to: params/${rest}
"""


def names(url: str) -> list[str]:
    """The objects at and below a URL, and the locks beside it."""
    store, name = store_of(url)
    assert isinstance(store, KeyValueStore)
    return [found for found in store.walk() if found.startswith((name, f".{name}"))]


def test_steps_and_items(tmp_path: Path, bucket: str) -> None:
    save_pytree(tmp_path / "in", tree())
    for step in (3, 10):
        ckpt_surgery.apply(None, tmp_path / "in", dst=f"{bucket}/run", dst_step=step)
    assert ckpt_surgery.inspect(f"{bucket}/run").step == 10
    assert not ckpt_surgery.diff(tmp_path / "in", f"{bucket}/run", values=True).different
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply(None, tmp_path / "in", dst=f"{bucket}/run", dst_step=3)


def test_only_one_checkpoint_is_replaced(tmp_path: Path, bucket: str) -> None:
    save_pytree(tmp_path / "in", {"a": np.arange(5.0)})
    store_of(bucket)[0].put("out/letter.txt", b"mine")
    for overwrite in (False, True):
        with pytest.raises(DestinationError):
            ckpt_surgery.apply(None, tmp_path / "in", dst=f"{bucket}/out", overwrite=overwrite)
    assert names(f"{bucket}/out") == ["out/letter.txt"]


@pytest.mark.slow("talks to a server for each service")
def test_a_bucket_of_each_service_is_written(tmp_path: Path, bucket_of: Bucket) -> None:
    save_pytree(tmp_path / "in", tree())
    bucket_of.server.refuse = lambda request, number: 503 if number % 9 == 0 else None
    ckpt_surgery.apply(None, tmp_path / "in", dst=f"{bucket_of.url}/out")
    assert not ckpt_surgery.diff(tmp_path / "in", f"{bucket_of.url}/out", values=True).different
    assert json.loads(store_of(f"{bucket_of.url}/out")[0].read("out/_CHECKPOINT_METADATA"))
    local = ckpt_surgery.apply(None, tmp_path / "in", dst=tmp_path / "local").destination
    assert_same(restored(downloaded(f"{bucket_of.url}/out", tmp_path / "copy")), restored(Path(local)))
    found = [request.path for request in bucket_of.server.asked]
    assert not any("testing-secret" in path for path in found)


def test_the_command_line_takes_urls(tmp_path: Path, bucket: str) -> None:
    save_pytree(tmp_path / "in", tree())
    recipe = write_recipe(tmp_path, STACKED)
    done = run("apply", recipe, tmp_path / "in", f"{bucket}/out")
    assert done.exit_code == 0, done.output
    shown = run("inspect", f"{bucket}/out")
    assert shown.exit_code == 0
    assert "16 leaves" in shown.output
    again = run("apply", recipe, tmp_path / "in", f"{bucket}/out")
    assert again.exit_code == 4
    assert "--overwrite" in again.output
    assert run("diff", f"{bucket}/out", f"{bucket}/out", "--values", "--exit-code").exit_code == 0
    assert run("verify", f"{bucket}/out", "--full").exit_code == 0


def test_commit_completes_what_a_run_had_begun_to_publish(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_pytree(tmp_path / "old", {"a": np.arange(5.0)})
    save_pytree(tmp_path / "new", {"b": np.arange(7.0)})
    ckpt_surgery.apply(None, tmp_path / "old", dst=f"{bucket}/out")

    put = KeyValueStore.put

    def killed(self: KeyValueStore, name: str, *rest: Any) -> Any:
        if name == "out/manifest.ocdbt":
            raise Killed
        return put(self, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(KeyValueStore, "put", killed)
        with pytest.raises(Killed):
            ckpt_surgery.apply(None, tmp_path / "new", dst=f"{bucket}/out", overwrite=True)
    assert run("inspect", f"{bucket}/out").exit_code == 1
    done = run("commit", f"{bucket}/out")
    assert done.exit_code == 0, done.output
    assert not ckpt_surgery.diff(tmp_path / "new", f"{bucket}/out", values=True).different
    assert not [name for name in names(f"{bucket}/out") if "ckpt-surgery/" in name or "lock" in name]
