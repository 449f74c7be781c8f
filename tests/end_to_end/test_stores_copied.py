"""Stored bytes that need no change, between checkpoints in stores: whole objects, and ranges of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.orbax import writer
from ckpt_surgery.planner.plan import Plan, Transfer
from ckpt_surgery.storage import reading
from ckpt_surgery.storage.store import store_of
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run
from tests.support.key_value import KeyValueStore, key_value, requests_of, uploaded
from tests.support.recipes import write_recipe

ARRAYS = {f"layer_{i}": np.arange(i, i + 20_000, dtype=np.float32).reshape(100, 200) for i in range(6)}
NBYTES = sum(array.nbytes for array in ARRAYS.values())
RENAMED = {"version": 1, "rules": [{"match": "(.*)", "to": r"params/\1"}]}
FEW = {"version": 1, "rules": [{"match": "layer_3", "to": "kept"}, {"match": ".*", "drop": True}]}


@pytest.fixture
def source(tmp_path: Path, bucket: str) -> str:
    save_pytree(tmp_path / "in", ARRAYS)
    return uploaded(tmp_path / "in", f"{bucket}/in")


def data_objects(url: str) -> set[str]:
    store, name = store_of(url)
    return {found for found in store.walk(f"{name}/") if "/d/" in found}


def applied(recipe: Any, source: str, dst: object, **options: Any) -> Plan:
    return ckpt_surgery.apply(recipe, source, dst=str(dst), **options).plan


def test_whole_objects_are_copied_by_the_store(tmp_path: Path, source: str, bucket: str) -> None:
    asked = requests_of(source)
    asked.clear()
    plan = applied(RENAMED, source, f"{bucket}/out", verify="none")
    assert {step.transfer for step in plan.steps} == {Transfer.COPY}
    costs = plan.costs
    assert (costs.bytes_copied, costs.bytes_served) == (NBYTES, NBYTES)
    assert (costs.bytes_read, costs.bytes_through) == (0, 0)
    copies = [one for one in asked if one.startswith("copy ")]
    assert 0 < len(copies) <= len(data_objects(source))
    ckpt_surgery.apply(RENAMED, tmp_path / "in", dst=tmp_path / "out")
    assert not ckpt_surgery.diff(tmp_path / "out", f"{bucket}/out", values=True).different
    # It stands on its own.
    store = store_of(source)[0]
    store.delete(list(store.walk("in/")))
    assert ckpt_surgery.verify(f"{bucket}/out", mode="full").flaws == ()


def test_ranges_of_objects_of_which_little_is_used_are_read(tmp_path: Path, source: str, bucket: str) -> None:
    plan = applied(FEW, source, f"{bucket}/out")
    assert plan.costs.bytes_served == 0
    assert plan.costs.bytes_through > 0
    assert not [one for one in requests_of(source) if one.startswith("copy ")]
    ckpt_surgery.apply(FEW, tmp_path / "in", dst=tmp_path / "out")
    assert not ckpt_surgery.diff(tmp_path / "out", f"{bucket}/out", values=True).different


def test_what_comes_from_elsewhere_passes_this_machine(tmp_path: Path, source: str, bucket: str) -> None:
    for origin in (str(tmp_path / "in"), source):
        copying = {"link_mode": "copy"} if origin == source else {}
        plan = applied(RENAMED, origin, f"{bucket}/{len(copying)}", **copying)
        assert plan.costs.bytes_served == 0
        assert plan.costs.bytes_through == plan.costs.bytes_read + plan.costs.bytes_out
    with key_value(tmp_path / "other", "other") as other:
        plan = applied(RENAMED, source, f"{other}/out")
        assert plan.costs.bytes_served == 0
        assert not ckpt_surgery.diff(f"{bucket}/1", f"{other}/out", values=True).different


def test_plans_and_the_summary_say_what_passes_this_machine(tmp_path: Path, source: str, bucket: str) -> None:
    recipe = write_recipe(tmp_path, json.dumps(RENAMED))
    saved = tmp_path / "plan.json"
    done = run("plan", recipe, source, f"{bucket}/out", "--out", saved)
    assert done.exit_code == 0, done.output
    assert "copied by the store itself" in " ".join(done.output.split())
    document = json.loads(saved.read_text())
    assert document["summary"]["bytes_through"] == 0
    assert {leaf["transfer"] for leaf in document["leaves"]} == {"copy"}
    plan = ckpt_surgery.apply(saved).plan
    assert plan.costs.bytes_served == NBYTES
    elsewhere = ckpt_surgery.apply(saved, dst=tmp_path / "here").plan
    assert elsewhere.costs.bytes_served == 0
    assert elsewhere.costs.bytes_through > NBYTES
    assert not ckpt_surgery.diff(tmp_path / "here", f"{bucket}/out", values=True).different


def test_shards_copy_each_object_once(tmp_path: Path, source: str, bucket: str) -> None:
    saved, dst = tmp_path / "plan.json", f"{bucket}/out"
    ckpt_surgery.plan(RENAMED, source, dst=dst, out=saved)
    asked = requests_of(source)
    asked.clear()
    for number in range(3):
        applying.apply_shard(saved, shard=f"{number}/3")
    copies = [one for one in asked if one.startswith("copy ")]
    assert len(copies) <= len(data_objects(source))
    applying.commit(dst)
    ckpt_surgery.apply(RENAMED, tmp_path / "in", dst=tmp_path / "out")
    assert not ckpt_surgery.diff(tmp_path / "out", dst, values=True).different


def test_an_object_that_was_replaced_is_not_copied(
    source: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = KeyValueStore.copy

    def replaced(self: KeyValueStore, url: str, name: str) -> None:
        store, key = store_of(url)
        store.put(key, store.read(key))
        copy(self, url, name)

    monkeypatch.setattr(KeyValueStore, "copy", replaced)
    with pytest.raises(SourceError, match="has changed"):
        applied(RENAMED, source, f"{bucket}/out")
    assert not store_of(bucket + "/x")[0].walk("out/")


def test_large_chunks_are_copied_in_pieces(
    tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = 10_000
    monkeypatch.setattr(writer, "FILE_BYTES", piece)
    monkeypatch.setattr(reading, "OBJECT_PIECE", piece)
    read: list[int] = []
    one = KeyValueStore._read

    def counted(self: KeyValueStore, name: str, *rest: Any) -> bytes:
        data = one(self, name, *rest)
        if "/d/" in name:
            read.append(len(data))
        return data

    with key_value(tmp_path / "other", "other") as other:
        with monkeypatch.context() as patch:
            patch.setattr(KeyValueStore, "_read", counted)
            applied(RENAMED, source, f"{other}/out", verify="none")
        ckpt_surgery.apply(RENAMED, tmp_path / "in", dst=tmp_path / "out")
        assert not ckpt_surgery.diff(tmp_path / "out", f"{other}/out", values=True).different
    assert sum(size == piece for size in read) > 10


@pytest.mark.slow("copies large objects")
def test_objects_are_copied_at_the_same_time(tmp_path: Path, s3_bucket: Bucket) -> None:
    arrays = {f"a{i}": np.full((40, 40), i, np.float32) for i in range(40)}
    save_pytree(tmp_path / "in", arrays, ocdbt=False)  # an object for each chunk
    source = uploaded(tmp_path / "in", f"{s3_bucket.url}/in")
    server = s3_bucket.server
    server.clear()
    server.latency = 0.05
    plan = applied(RENAMED, source, f"{s3_bucket.url}/out", verify="none")
    assert plan.costs.bytes_served == 40 * 40 * 40 * 4
    assert server.most_active >= 8
    server.clear()
    ckpt_surgery.apply(RENAMED, tmp_path / "in", dst=tmp_path / "out")
    assert not ckpt_surgery.diff(tmp_path / "out", f"{s3_bucket.url}/out", values=True).different
