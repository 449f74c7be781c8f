"""Every format that can be written, written to a store that knows nothing but names and bytes."""

import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from safetensors.numpy import load_file

import ckpt_surgery
from ckpt_surgery.core.errors import DestinationError, SourceError, StorageError, UsageError
from ckpt_surgery.engine import worker as journal
from ckpt_surgery.engine.staging import heartbeat
from ckpt_surgery.engine.staging.uploads import spool_of
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.storage.store import registered, store_of
from ckpt_surgery.storage.views import forget
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.ended_runs import Killed, killed
from tests.support.failing import raising
from tests.support.key_value import KeyValueStore, downloaded, uploaded
from tests.support.libraries import Arrays, load_flax, load_npz, load_zarr, save_npz
from tests.support.object_runs import Dying
from tests.support.reading import values
from tests.support.recipes import write_recipe
from tests.support.slow import slow
from tests.support.trees import flattened


def load_shards(path: Path) -> Arrays:
    return {key: value for file in path.glob("*.safetensors") for key, value in load_file(file).items()}


@dataclass(frozen=True)
class Written:
    """A form of checkpoint that is written."""

    name: str
    """Name of the destination."""
    load: Callable[[Path], Any]
    """Reads it with its own library."""
    options: Mapping[str, Any] = field(default_factory=dict)
    zarr: int = 3
    same_names: bool = True
    """Whether a store gets objects of the names that files have on a disk."""


FORMS = {
    "orbax3": Written("out", lambda path: flattened(restored(path)), same_names=False),
    "orbax2": Written("out", lambda path: flattened(restored(path)), zarr=2, same_names=False),
    "safetensors": Written("out.safetensors", load_file),
    "safetensors-directory": Written("out", load_shards, {"format": "safetensors"}),
    "safetensors-shards": Written("out", load_shards, {"format": "safetensors", "shard_size": "2kB"}),
    "npz": Written("out.npz", load_npz),
    "flax": Written("out.msgpack", load_flax),
    "zarr3": Written("out.zarr", load_zarr),
    "zarr2": Written("out.zarr", load_zarr, zarr=2),
}


def arrays(value: int) -> dict[str, np.ndarray]:
    """Arrays that have no element in common with those of another value."""
    rng = np.random.default_rng(value)
    return {
        "layer_0/kernel": rng.random((20, 30), np.float32),
        "layer_0/bias": rng.random(30),
        "layer_1/kernel": rng.random((20, 30), np.float32),
        "step": np.array(value),
    }


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Written:
    return FORMS[request.param]


def saved(tmp_path: Path, value: int) -> Path:
    path = tmp_path / f"in{value}.npz"
    return path if path.exists() else save_npz(arrays(value), path)


def write(form: Written, tmp_path: Path, value: int, dst: str, **options: Any) -> ckpt_surgery.Result:
    """Write the arrays of a value, half of them computed."""
    text = f"version: 1\noutput: {{zarr: {form.zarr}}}\nrules:\n  - match: layer_.*\n    value: x * 1\n"
    recipe = write_recipe(tmp_path, text)
    return ckpt_surgery.apply(recipe, saved(tmp_path, value), dst=dst, **form.options, **options)


def names(url: str) -> list[str]:
    """The names of all objects in the bucket."""
    return list(store_of(url)[0].walk())


def state(url: str) -> int | None:
    """The value whose arrays are there, all of them; None where there is no checkpoint."""
    forget()
    try:
        found = values(opening.open_source(url))
    except (SourceError, UsageError):
        return None
    value = int(found["step"])
    assert_same(found, arrays(value))
    return value


def test_what_is_written_is_what_a_disk_gets_and_is_replaced_with_overwrite_only(
    form: Written, tmp_path: Path, bucket: str
) -> None:
    url = f"{bucket}/{form.name}"
    write(form, tmp_path, 1, url)
    assert state(url) == 1
    assert not spool_of(url).exists()
    assert_same(form.load(downloaded(url, tmp_path / "copy")), arrays(1))
    before = names(url)
    write(form, tmp_path, 1, str(tmp_path / form.name))
    assert not ckpt_surgery.diff(tmp_path / form.name, url, values=True).different
    if form.same_names:
        written = tmp_path / form.name
        files = [written] if written.is_file() else [p for p in written.rglob("*") if p.is_file()]
        beside = tmp_path.glob(f"{form.name}.*")
        assert sorted(str(p.relative_to(tmp_path)) for p in (*files, *beside)) == before
    with pytest.raises(DestinationError, match="exists already") as caught:
        write(form, tmp_path, 2, url)
    assert caught.value.exit_code == 4
    assert (names(url), state(url)) == (before, 1)
    write(form, tmp_path, 2, url, overwrite=True)
    assert state(url) == 2
    assert ckpt_surgery.verify(url, mode="full").flaws == ()
    assert not [name for name in names(url) if "ckpt-surgery" in name]


NAMES = list(FORMS)
TRIED_OFTEN = {(NAMES[i - step], new) for i, new in enumerate(NAMES) for step in (1, 3)}
"""Each form in place of two others; the rest of all 81 pairs takes half a minute, and is tried with the slow
tests."""


@pytest.mark.parametrize(
    ("old", "form"),
    [one if one in TRIED_OFTEN else slow(one) for one in itertools.product(FORMS, FORMS)],
    indirect=["form"],
)
def test_another_format_is_replaced(old: str, form: Written, tmp_path: Path, bucket: str) -> None:
    """Directories by directories, files by files: nothing is left of the older one."""
    url, one_file = f"{bucket}/out", [formats.format_named("npz"), formats.format_named("flax")]
    given = form.options.get("format") or form.name.partition(".")[2] or "orbax"
    options = {"format": {"msgpack": "flax"}.get(given, given)}
    options |= {key: value for key, value in form.options.items() if key != "format"}
    write(FORMS[old], tmp_path, 1, f"{bucket}/{FORMS[old].name}")
    store = store_of(bucket)[0]
    for name in names(bucket):
        if not name.endswith("ckpt_surgery.json") or "/" in name:
            store.put(name.replace(FORMS[old].name, "out", 1), store.read(name))
    store.delete([name for name in names(bucket) if FORMS[old].name != "out" and name.startswith("out.")])
    was_file, is_file = store.stat("out") is not None, formats.format_named(options["format"]) in one_file
    plain = Written("out", form.load, options, form.zarr)
    if was_file != is_file:
        with pytest.raises(DestinationError):
            write(plain, tmp_path, 2, url, overwrite=True)
        assert state(url) == 1
        return
    write(plain, tmp_path, 2, url, overwrite=True)
    assert state(url) == 2
    write(plain, tmp_path, 2, f"{bucket}/fresh")
    fresh = {name.replace("fresh", "out", 1) for name in names(bucket) if name.startswith("fresh")}
    there = {name for name in names(bucket) if name.startswith("out")}
    if form.same_names:
        assert there == fresh


HOSTILE = ("../../etc/passwd", "a b", "%2e%2e", "A", "é", "e\u0301", "ключ/λ/🙂", "model.layers.0.w", "007")


def test_hostile_names_stay_below_the_destination(form: Written, tmp_path: Path, bucket: str) -> None:
    url = f"{bucket}/runs/{form.name}"
    named = {
        name: np.full(3, i) for i, name in enumerate(HOSTILE) if "zarr" not in form.name or ".." not in name
    }
    path = save_npz(named, tmp_path / "in.npz")
    ckpt_surgery.apply(None, path, dst=url, **form.options)
    forget()
    assert_same(values(opening.open_source(url)), named)
    assert all(name.startswith(f"runs/{form.name}") for name in names(url))


def test_the_older_group_is_read_as_it_was_until_it_is_replaced(tmp_path: Path, bucket: str) -> None:
    """Where it lacks a chunk, which stands for zeros, there is none of the new one either."""
    zarr.create_group(tmp_path / "old").create_array("x", shape=(8,), chunks=(8,), dtype="f4", fill_value=0)
    url = uploaded(tmp_path / "old", f"{bucket}/out")
    assert names(bucket) == ["out/x/zarr.json", "out/zarr.json"]
    path, seen = save_npz({"x": np.ones(8, np.float32)}, tmp_path / "in.npz"), []

    def look(progress: Any) -> None:
        forget()
        seen.append(values(opening.open_source(url))["x"].tolist())

    ckpt_surgery.convert(path, url, format="zarr", overwrite=True, progress=look)
    assert seen == [[0.0] * 8] * 2  # written, and read back
    look(None)
    assert seen[2] == [1.0] * 8


def test_shards_are_refused_where_one_machine_has_to_write(
    form: Written, tmp_path: Path, bucket: str
) -> None:
    plan, options = tmp_path / "plan.json", {**form.options, "dst": f"{bucket}/{form.name}"}
    ckpt_surgery.plan(None, saved(tmp_path, 1), out=plan, **options)
    if form.name == "out" and "format" not in form.options:
        assert ckpt_surgery.apply_shard(plan, shard="0/1").missing_shards == ()
        return
    with pytest.raises(UsageError, match="not written to a bucket in shards"):
        ckpt_surgery.apply_shard(plan, shard="0/1")
    assert names(bucket) == []


# --- runs that end early ------------------------------------------------------------------------------


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of this process that was killed counts as ended."""
    monkeypatch.setattr(heartbeat, "has_ended", lambda owner: True)


@pytest.mark.slow("ends a run at each request")
@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("older", [False, True])
def test_a_run_that_ends_at_any_request(older: bool, form: Written, tmp_path: Path, bucket: str) -> None:
    """What is there is nothing, or one whole checkpoint; the next run leaves its own and nothing else."""
    url, number = f"{bucket}/runs/{form.name}", 0
    seen: list[int | None] = []
    if older:
        write(form, tmp_path, 1, url)
    first = {name: store_of(url)[0].read(name) for name in names(url)}
    write(form, tmp_path, 3, f"{bucket}/other/{form.name}")
    count = sum(name.startswith("other") for name in names(bucket))
    store_of(url)[0].delete([name for name in names(url) if name.startswith("other")])
    step = 1 if form.same_names and "." in form.name and "zarr" not in form.name else 5
    while ended(form, tmp_path, url, number := number + step, older):
        seen.append(state(url))
        try:
            write(form, tmp_path, 3, url, overwrite=older)
            assert state(url) == 3, number
        except DestinationError:  # it had begun to publish, or was published
            assert not older, number
            assert state(url) == 2, number
        else:
            if form.same_names:
                assert len(names(url)) == count, number
        store = store_of(url)[0]
        store.delete(names(url))
        for name, data in first.items():
            store.put(name, data)
    order = [1, None, 2] if older else [None, 2]
    assert seen == sorted(seen, key=order.index)
    assert seen[0] == order[0]
    assert number > 5


def ended(form: Written, tmp_path: Path, url: str, number: int, overwrite: bool) -> bool:
    """Let a run end at one of its requests; False where it had fewer."""
    dying = Dying(KeyValueStore("kv://bucket", tmp_path / "bucket"), number, number % 2 == 0, raising(Killed))
    forget()
    with registered("kv", lambda root: dying):
        try:
            write(form, tmp_path, 2, url, overwrite=overwrite)
        except Killed:
            return True
        finally:
            forget()
    return False


@pytest.mark.parametrize("resume", [False, True])
def test_what_a_killed_process_has_written_is_used_or_removed(
    resume: bool, tmp_path: Path, bucket: str
) -> None:
    """It is in a local directory, which the next run to the same destination takes over or removes."""
    url = f"{bucket}/out.safetensors"
    with killed() as patch:
        patch.setattr(journal, "FLUSH_BYTES", 1)
        patch.setattr(KeyValueStore, "upload", raising(Killed))
        ckpt_surgery.apply(None, saved(tmp_path, 1), dst=url)
    assert state(url) is None
    assert [one for one in spool_of(url).iterdir() if one.is_dir()]
    result = ckpt_surgery.apply(None, saved(tmp_path, 1), dst=url, resume=resume)
    assert "took over the lock" in result.notices[0]
    removed = f"removed {spool_of(url)}/.out.safetensors.ckpt-surgery-"
    assert [notice[: len(removed)] for notice in result.notices[1:]] == ([] if resume else [removed])
    assert state(url) == 1
    assert not spool_of(url).exists()


def test_little_space_is_told_before_anything_is_read(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(StorageError, match="are free") as caught:
        ckpt_surgery.apply(None, saved(tmp_path, 1), dst=f"{bucket}/out.npz")
    assert "TMPDIR" in str(caught.value)
    assert str(spool_of(f"{bucket}/out.npz")) in str(caught.value)
    assert names(bucket) == []
    assert not spool_of(f"{bucket}/out.npz").exists()


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path, bucket: str) -> None:
    directory = spool_of(f"{bucket}/out.npz")
    directory.mkdir(0o755)
    try:
        with pytest.raises(StorageError, match="only this user may use"):
            ckpt_surgery.apply(None, saved(tmp_path, 1), dst=f"{bucket}/out.npz")
    finally:
        directory.rmdir()
    assert names(bucket) == []


def test_an_older_record_is_not_left_beside_another_file(tmp_path: Path, bucket: str) -> None:
    url = f"{bucket}/out"
    ckpt_surgery.apply(None, saved(tmp_path, 1), dst=url, format="npz")
    assert names(bucket) == ["out", "out.ckpt_surgery.json"]
    store_of(url)[0].delete(["out"])
    ckpt_surgery.apply(None, saved(tmp_path, 2), dst=url, format="npz")
    assert ckpt_surgery.verify(url, mode="full").flaws == ()
