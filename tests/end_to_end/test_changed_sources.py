"""Sources that become others while a run uses them, with the size and the time that they had."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import Interrupted, PlanError, SourceError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.storage.store import store_of
from tests.support.checkpoints import save_pytree
from tests.support.key_value import uploaded

ARRAYS = {f"a{n}": np.full((64, 256), n, np.float32) for n in range(6)}
DOUBLED: Any = {"version": 1, "rules": [{"match": ".*", "value": "x * 2"}]}


def rewrite(source: Path, as_before: bool = True, added: int = 1) -> None:
    """Other values, of the same size; `as_before`: at the same time, too."""
    status = source.stat()
    save_file({key: array + added for key, array in ARRAYS.items()}, source)
    assert source.stat().st_size == status.st_size
    later = 0 if as_before else 10**9
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + later))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_file(ARRAYS, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


@pytest.fixture
def stopped(source: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begin a run that ends with its first tasks noted, as one that was killed."""
    monkeypatch.setattr("ckpt_surgery.engine.worker.FLUSH_BYTES", 1)

    def stop(dst: str, recipe: Any = DOUBLED, *more: Path, **options: Any) -> None:
        done: list[Progress] = []

        def progress(now: Progress) -> None:
            done.append(now)
            if len(done) == 3:
                raise Interrupted(signal.SIGTERM, "stopped")

        with pytest.raises(Interrupted):
            ckpt_surgery.apply(recipe, source, *more, dst=dst, workers=1, progress=progress, **options)

    return stop


@pytest.mark.parametrize("as_before", [True, False], ids=["old time", "new time"])
def test_a_run_does_not_go_on_with_another_source(
    as_before: bool, source: Path, stopped: Callable[..., None], tmp_path: Path
) -> None:
    dst = tmp_path / "out.safetensors"
    stopped(str(dst))
    touched = source.stat()
    os.utime(source, ns=(0, 1))
    with pytest.raises(PlanError, match=r"`source/in\.safetensors` \(only its time\)"):
        ckpt_surgery.apply(DOUBLED, source, dst=dst, workers=1, resume=True)
    os.utime(source, ns=(touched.st_atime_ns, touched.st_mtime_ns))
    rewrite(source, as_before)
    told = r"the sources have changed since it was written: `source/in\.safetensors` \(content\)"
    with pytest.raises(PlanError, match=told) as caught:
        ckpt_surgery.apply(DOUBLED, source, dst=dst, workers=1, resume=True)
    assert caught.value.exit_code == 2
    ckpt_surgery.apply(DOUBLED, source, dst=dst, workers=1)
    for key, array in load_file(dst).items():
        np.testing.assert_array_equal(array, (ARRAYS[key] + 1) * 2)


def of_shards(at: Path) -> Path:
    """One of several files of a checkpoint."""
    ckpt_surgery.convert(at / "in.safetensors", at / "shards", format="safetensors", shard_size="100KB")
    return at / "shards" / "model-00003-of-00006.safetensors"


def of_zarr(at: Path) -> Path:
    ckpt_surgery.convert(at / "in.safetensors", at / "zarr", format="zarr")
    return at / "zarr" / "a5" / "c" / "0" / "0"


@pytest.mark.parametrize("name", ["second", "target"])
@pytest.mark.parametrize("made", [of_shards, of_zarr])
def test_every_file_of_every_input_counts(
    made: Callable[[Path], Path], name: str, source: Path, stopped: Callable[..., None], tmp_path: Path
) -> None:
    file, dst = made(tmp_path), tmp_path / "out"
    root = tmp_path / file.relative_to(tmp_path).parts[0]
    more, given = ((), {"target": root}) if name == "target" else ((root,), {})
    rules = [{"match": ".*", "value": f"x + {name}[key]"}]
    recipe = {"version": 1, "sources": ["a", "second"][: 1 + len(more)], "rules": rules}
    stopped(str(dst), recipe, *more, **given)
    before, data = file.stat(), bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(PlanError, match=rf"have changed since .*`{name}/.*` \(content\)"):
        ckpt_surgery.apply(recipe, source, *more, dst=dst, workers=1, resume=True, **given)


def test_nor_does_one_into_a_store(source: Path, stopped: Callable[..., None], bucket: str) -> None:
    stopped(f"{bucket}/out")
    rewrite(source)
    with pytest.raises(PlanError, match=r"have changed since .*\(content\)"):
        ckpt_surgery.apply(DOUBLED, source, dst=f"{bucket}/out", workers=1, resume=True)


def test_shards_are_of_one_source(source: Path, tmp_path: Path) -> None:
    """Neither a shard nor the publication goes on where the plan's source has become another."""
    plan, dst = tmp_path / "plan.json", tmp_path / "out"
    ckpt_surgery.plan(DOUBLED, source, dst=dst, out=plan)
    ckpt_surgery.apply_shard(plan, shard="0/2")
    rewrite(source)
    with pytest.raises(SourceError, match=r"changed since the plan was made: .*\(content\)"):
        ckpt_surgery.apply_shard(plan, shard="1/2")
    rewrite(source, added=0)
    ckpt_surgery.apply_shard(plan, shard="1/2")
    rewrite(source)
    with pytest.raises(SourceError, match=r"changed since the plan was made: .*\(content\)"):
        ckpt_surgery.commit(dst)
    assert not dst.exists()


@pytest.mark.parametrize("restored", [True, False], ids=["restore", "apply"])
def test_a_source_that_changes_while_it_is_read(restored: bool, source: Path, tmp_path: Path) -> None:
    def change(*_: Any) -> None:
        rewrite(source)

    with pytest.raises(SourceError, match=r"changed while it was read: `in\.safetensors` \(content\)"):
        if restored:
            ckpt_surgery.restore(DOUBLED, str(source), on_plan=change)
        else:
            ckpt_surgery.apply(DOUBLED, source, dst=tmp_path / "out", on_plan=change)
    assert not (tmp_path / "out").exists()


def test_a_plan_that_is_only_looked_at_takes_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read where data will be, or where the plan is saved."""
    save_pytree(tmp_path / "in", ARRAYS)
    asked: list[str] = []
    monkeypatch.setattr("ckpt_surgery.inputs.opening.states", lambda files: asked.extend(files) or {})
    ckpt_surgery.plan(DOUBLED, tmp_path / "in", dst=tmp_path / "out")
    assert asked == []
    ckpt_surgery.plan(DOUBLED, tmp_path / "in", dst=tmp_path / "out", out=tmp_path / "plan.json")
    assert str(tmp_path / "in" / "_METADATA") in asked


def test_a_linked_checkpoint_that_was_uploaded_is_whole(source: Path, tmp_path: Path, bucket: str) -> None:
    """Objects have no times, and their versions are not those of files: their samples decide."""
    made = ckpt_surgery.convert(source, tmp_path / "made", link_mode="hardlink")
    (shared,) = made.shared
    url = uploaded(tmp_path / "made", f"{bucket}/made")
    for mode in ("fast", "values", "full"):
        assert ckpt_surgery.verify(url, mode=mode).flaws == ()
    rewrite(source)
    store, name = store_of(f"{url}/{shared.name}")
    store.put(name, source.read_bytes())
    (flaw,) = ckpt_surgery.verify(url, mode="fast").flaws
    assert flaw.what.endswith("has changed since it was written: content")
