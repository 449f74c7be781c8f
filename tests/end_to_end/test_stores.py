"""Checkpoints in an object store: what is read, with how many requests, and what writing leaves there."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import ckpt_surgery
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DestinationError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats import opening
from ckpt_surgery.storage.store import store_of
from tests.emulators.fixtures import Bucket
from tests.support.checkpoints import (
    restored,
    save_composite,
    save_pytree,
    save_steps,
    save_two_processes,
    save_v1,
    tree,
)
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.ended_runs import Killed
from tests.support.key_value import KeyValueStore, downloaded, requests_of, uploaded
from tests.support.libraries import ORIGINS
from tests.support.slow import some


def put(path: Path, bucket: str) -> str:
    """The URL of a checkpoint that is uploaded; the requests for that are not counted."""
    if path.exists():
        url = uploaded(path, f"{bucket}/run/{path.name}")
    else:  # TensorFlow's is a prefix of names
        for file in path.parent.glob(f"{path.name}.*"):
            uploaded(file, f"{bucket}/run/{file.name}")
        url = f"{bucket}/run/{path.name}"
    requests_of(url).clear()
    return url


def described(leaf: Leaf) -> tuple[object, ...]:
    return leaf.key, leaf.kind, leaf.spec, leaf.sharding, leaf.prng_impl, leaf.string, leaf.empty


def check_same(local: str, url: str) -> None:
    """The same leaves, and the same values of whole arrays and of parts."""
    one, other = opening.open_source(local), opening.open_source(url)
    assert (other.path, other.format, other.step, other.item) == (url, one.format, one.step, one.item)
    assert list(map(described, one.leaves().values())) == list(map(described, other.leaves().values()))
    assert one.metadata == other.metadata
    rng = np.random.default_rng(0)
    for key, leaf in one.leaves().items():
        if leaf.spec is None:
            continue
        starts = tuple(int(rng.integers(0, n + 1)) for n in leaf.spec.shape)
        stops = tuple(int(rng.integers(a, n + 1)) for a, n in zip(starts, leaf.spec.shape, strict=True))
        part = Region(starts, stops)
        for region in (Region.whole(leaf.spec.shape), part):
            wanted, found = one.read(leaf, region), other.read(other.leaves()[key], region)
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
            assert found.tobytes() == wanted.tobytes(), key


LAYOUTS = {
    "ocdbt-zarr3": lambda path: save_pytree(path, tree(), ocdbt=True, zarr3=True),
    "ocdbt-zarr2": lambda path: save_pytree(path, tree(), ocdbt=True, zarr3=False),
    "plain-zarr3": lambda path: save_pytree(path, tree(), ocdbt=False, zarr3=True),
    "plain-zarr2": lambda path: save_pytree(path, tree(), ocdbt=False, zarr3=False),
    "v1": lambda path: save_v1(path, tree()),
    "steps": lambda path: save_steps(path, {3: tree(), 10: tree()}),
    "composite": lambda path: save_composite(path, 5, params=tree()),
    "two-processes": save_two_processes,
}


@pytest.mark.parametrize("layout", some(LAYOUTS))
def test_every_layout_of_orbax_is_read(layout: str, tmp_path: Path, bucket: str) -> None:
    LAYOUTS[layout](tmp_path / "in")
    check_same(str(tmp_path / "in"), put(tmp_path / "in", bucket))


@pytest.mark.parametrize(("origin", "count", "most"), [("orbax", 500, 24), ("safetensors", 4, 6)])
def test_a_listing_takes_few_requests(
    origin: str, count: int, most: int, tmp_path: Path, bucket: str
) -> None:
    made, arrays = ORIGINS[origin], {f"layer_{n}": np.full((3,), n, np.float32) for n in range(count)}
    url = put(made.save(arrays, tmp_path / f"in{made.suffix}"), bucket)
    assert len(ckpt_surgery.inspect(url).leaves) == count
    assert len(requests_of(url)) <= most, requests_of(url)
    if origin == "orbax":
        assert len(set(requests_of(url))) == len(requests_of(url))  # nothing is asked for twice


def test_commands_take_urls(tmp_path: Path, bucket: str) -> None:
    made = ORIGINS["orbax"]
    path = made.save(made.arrays, tmp_path / "in")
    url = put(path, bucket)
    assert not ckpt_surgery.diff(url, path, values=True).different
    assert ckpt_surgery.verify(url).flaws == ()
    result = ckpt_surgery.apply(None, url, dst=tmp_path / "out")
    assert not ckpt_surgery.diff(url, result.destination, values=True).different
    plan = tmp_path / "plan.json"
    ckpt_surgery.plan(None, url, dst=tmp_path / "again", out=plan)
    assert json.loads(plan.read_text())["sources"]["source"]["path"] == url
    assert not ckpt_surgery.diff(ckpt_surgery.apply(plan).destination, path, values=True).different
    store, name = store_of(url)
    store.put(f"{name}/more", b"")
    with pytest.raises(ckpt_surgery.SurgeryError, match="changed since the plan was made"):
        ckpt_surgery.apply(plan, dst=tmp_path / "third")


@pytest.mark.slow("reads large objects")
def test_ten_thousand_leaves_in_a_bucket(tmp_path: Path, s3_bucket: Bucket) -> None:
    """The budget of requests: the metadata alone is read, and each object once."""
    arrays = {f"layer_{n}": np.full((3,), n, np.float32) for n in range(10_000)}
    np.savez(tmp_path / "in.npz", **arrays)
    ckpt_surgery.convert(tmp_path / "in.npz", tmp_path / "in")
    url = uploaded(tmp_path / "in", f"{s3_bucket.url}/run")
    server = s3_bucket.server
    server.clear()
    assert len(ckpt_surgery.inspect(url).leaves) == 10_000
    assert len(server.asked) <= 24, server.asked
    assert len(set(server.asked)) == len(server.asked)


def test_plain_arrays_in_a_bucket_are_read_at_the_same_time(tmp_path: Path, bucket_of: Bucket) -> None:
    value = {f"layer_{n}": np.full((3,), n, np.float32) for n in range(40)}
    save_pytree(tmp_path / "in", value, ocdbt=False, zarr3=False)
    url = uploaded(tmp_path / "in", f"{bucket_of.url}/run")
    server = bucket_of.server
    server.clear()
    server.latency = 0.02
    ckpt_surgery.inspect(url)
    assert len(server.asked) <= 8 + 2 * 40
    assert 8 <= server.most_active <= 32


@pytest.mark.parametrize("origin", ["orbax", "safetensors", "zarr3", "torch"])
def test_values_come_from_a_bucket(origin: str, tmp_path: Path, bucket_of: Bucket) -> None:
    made = ORIGINS[origin]
    path = made.save(made.arrays, tmp_path / f"in{made.suffix}")
    url = uploaded(path, f"{bucket_of.url}/run/{path.name}")
    bucket_of.server.refuse = lambda request, number: 503 if number % 7 == 0 else None
    check_same(str(path), url)


def test_of_what_is_kept_little_more_is_read(tmp_path: Path, bucket_of: Bucket) -> None:
    """Partial `apply` reads a fifth more than what is kept at most, and 2 MiB."""
    arrays = {f"layer_{i}": np.full((512, 1024), i, np.float32) for i in range(12)}
    safetensors.numpy.save_file(arrays, tmp_path / "in.safetensors")
    url = uploaded(tmp_path / "in.safetensors", f"{bucket_of.url}/in.safetensors")
    kept = {f"layer_{i}": arrays[f"layer_{i}"] for i in (2, 3, 7)}
    nbytes = sum(array.nbytes for array in kept.values())
    recipe = {"version": 1, "rules": [{"match": "layer_[237]"}, {"match": ".*", "drop": True}]}
    server = bucket_of.server
    server.clear()
    ckpt_surgery.inspect(url)
    opening = len(server.asked)
    server.clear()
    ckpt_surgery.apply(recipe, url, dst=tmp_path / "out.npz")
    # One for each leaf that is read, and the listing that tells whether something has changed.
    assert len(server.asked) <= opening + len(kept) + 2
    ranges = [re.fullmatch(r"bytes=(\d+)-(\d+)", one.range) for one in server.asked if one.range]
    read = sum(int(found[2]) + 1 - int(found[1]) for found in ranges if found)
    assert nbytes <= read <= 1.2 * nbytes + (2 << 20)
    found = np.load(tmp_path / "out.npz")
    for key, array in kept.items():
        np.testing.assert_array_equal(found[key], array)


def test_headers_of_shards_are_few_requests_of(tmp_path: Path, bucket_of: Bucket) -> None:
    arrays = {f"layer_{i}": np.full((64, 64), i, np.float32) for i in range(10)}
    safetensors.numpy.save_file(arrays, tmp_path / "one.safetensors")
    size = 2 * arrays["layer_0"].nbytes
    ckpt_surgery.convert(tmp_path / "one.safetensors", tmp_path / "in", format="safetensors", shard_size=size)
    count = len(list((tmp_path / "in").glob("*.safetensors")))
    url = uploaded(tmp_path / "in", f"{bucket_of.url}/in")
    bucket_of.server.clear()
    bucket_of.server.latency = 0.05
    assert len(ckpt_surgery.inspect(url).leaves) == 10
    assert len(bucket_of.server.asked) <= 3 + 3 * count
    assert bucket_of.server.most_active >= 2


# --- what is written --------------------------------------------------------------------------------------


def names(url: str) -> list[str]:
    """The objects at and below a URL, and the locks beside it."""
    store, name = store_of(url)
    assert isinstance(store, KeyValueStore)
    return [found for found in store.walk() if found.startswith((name, f".{name}"))]


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
    plan = ckpt_surgery.apply(None, f"{bucket_of.url}/out", dst=f"{bucket_of.url}/two").plan
    assert plan.costs.bytes_served == plan.costs.bytes_out  # copied by the store
    assert not ckpt_surgery.diff(tmp_path / "in", f"{bucket_of.url}/two", values=True).different


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


READ = """
import json, sys
import tensorstore as ts

url, name = sys.argv[1:]
spec = {"driver": "zarr3", "kvstore": {"driver": "ocdbt", "base": url, "path": name}}
array = ts.open(spec).result().read().result()
print(json.dumps([str(array.dtype), array.tolist()]))
"""


def test_tensorstore_reads_what_was_written(tmp_path: Path, gcs_bucket: Bucket) -> None:
    """In a process of its own: the driver reads its variables once."""
    arrays = {"layer": {"w": np.arange(5000, dtype=np.float32).reshape(50, 100)}, "ids": np.arange(9)}
    save_pytree(tmp_path / "in", arrays)
    recipe = {"version": 1, "rules": [{"match": "layer/(.*)", "to": r"params/\1", "value": "x * 2"}]}
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=f"{gcs_bucket.url}/out")
    given = [sys.executable, "-c", READ, f"{gcs_bucket.url}/out/", "params.w/"]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    dtype, values = json.loads(done.stdout)
    wanted = np.asarray(arrays["layer"]["w"]) * 2  # type: ignore[call-overload]
    np.testing.assert_array_equal(np.array(values, dtype), wanted, strict=True)
