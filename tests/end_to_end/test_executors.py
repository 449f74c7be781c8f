"""What holds however a plan is carried out; `tests.support.executors` says by what it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DataError, DestinationError, SourceError
from ckpt_surgery.report.results import OverflowedLeaf
from tests.emulators.fixtures import Bucket
from tests.support.comparing import assert_same
from tests.support.directories import names
from tests.support.executors import carry_out
from tests.support.reading import read
from tests.support.recipes import write_recipe
from tests.support.sharded_runs import ARRAYS, SUFFIXES, copy_source

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
WRITTEN = {
    **{f"blocks/{i}/w": (np.asarray(ARRAYS[f"layer_{i}"]) * 2).astype(ml_dtypes.bfloat16) for i in range(30)},
    **{key: np.asarray(ARRAYS[key]) for key in ("ids", "scalar")},
    "big": np.asarray(ARRAYS["big"]).T,
}
"""What the recipe of `sharded_runs` makes."""
SMALL = "20MiB"
"""So little that tasks and streams are in several pieces."""


@pytest.fixture
def recipe(sharded: Path, tmp_path: Path) -> Path:
    return copy_source(sharded, tmp_path)


@pytest.mark.parametrize("format", SUFFIXES)
def test_every_format_is_what_one_thread_writes(format: str, recipe: Path, tmp_path: Path) -> None:
    out, alone = (tmp_path / f"{name}{SUFFIXES[format]}" for name in ("out", "alone"))
    ckpt_surgery.apply(recipe, tmp_path / "in", dst=alone, workers=1)
    before = names(tmp_path)
    result = carry_out(recipe, tmp_path / "in", dst=out, memory=SMALL)
    assert (result.destination, result.notices, len(result.plan.steps)) == (str(out), (), len(WRITTEN))
    assert_same(read(out), WRITTEN)
    assert not ckpt_surgery.diff(alone, out, values=True).different
    assert ckpt_surgery.verify(out, mode="full").flaws == ()
    assert {name.replace("out", "alone") for name in names(tmp_path)} == {*before}
    if out.is_file() and format != "safetensors":  # which has its own path in its header
        assert out.read_bytes() == alone.read_bytes()


def test_a_bucket(recipe: Path, tmp_path: Path, s3_bucket: Bucket) -> None:
    url = f"{s3_bucket.url}/out"
    carry_out(recipe, tmp_path / "in", dst=url)
    assert_same(read(url), WRITTEN)
    with pytest.raises(DestinationError):
        carry_out(recipe, tmp_path / "in", dst=url)
    carry_out(None, tmp_path / "in", dst=url, overwrite=True)
    assert_same(read(url), {key: np.asarray(value) for key, value in ARRAYS.items()})


def test_one_item_of_a_step(recipe: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"dst": tmp_path / "run", "dst_step": 20}
    ckpt_surgery.apply(None, tmp_path / "in", dst_item="state", **options)
    carry_out(recipe, tmp_path / "in", dst_item="ema", **options)
    for item, wanted in (("ema", WRITTEN), ("state", {k: np.asarray(v) for k, v in ARRAYS.items()})):
        assert_same(read(tmp_path / "run" / "20" / item), wanted)


STATISTICS = """\
version: 1
sources: [a, b]
rules:
  - match: '.*'
    to:
      cosine/${key}: x / norm(x) * sum(x / norm(x) * (b[key] / norm(b[key]))) - mean(x)
      largest/${key}: where(topk_mask(b[key] - x, x.size // 5), b[key] - x, 0)
      product/${key}: x[:4] @ x.T
      drawn/${key}: x * random_mask(x, 0.25, 7, model=1) / norm(x * random_mask(x, 0.25, 7, model=1))
"""


def test_values_over_whole_arrays_are_the_same_bits(tmp_path: Path) -> None:
    import jax

    random = np.random.default_rng(11)
    arrays = {
        "w": random.normal(size=(1700, 600)).astype(np.float32),
        "v": random.normal(size=(900, 1100)).astype(ml_dtypes.bfloat16),
    }
    sources = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file(arrays, sources[0])
    save_file({name: array[::-1].copy() for name, array in arrays.items()}, sources[1])
    recipe = write_recipe(tmp_path, STATISTICS)
    whole, out = tmp_path / "whole.safetensors", tmp_path / "out.safetensors"
    ckpt_surgery.apply(recipe, *sources, dst=whole, memory="4GiB", workers=1)
    made = carry_out(recipe, *sources, dst=out, memory="32MiB")
    streamed = [step for step in made.plan.steps if not step.leaf.key.text.startswith("product")]
    assert all(step.cut is not None and step.cut.pieces for step in streamed)
    found = load_file(out)
    assert_same(found, load_file(whole))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    target = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=rows) for name, array in found.items()
    }
    restored = ckpt_surgery.restore(recipe, *sources, target=target, memory="64MiB")
    assert {array.sharding for array in restored.values()} == {rows}
    assert_same({name: np.asarray(array) for name, array in restored.items()}, found)
    for name, array in arrays.items():
        check_statistics(name, array, found)


def check_statistics(name: str, array: np.ndarray[Any, Any], found: dict[str, Any]) -> None:
    """Compare with NumPy what STATISTICS makes of an array and of the same one upside down."""
    a, b = (one / np.linalg.norm(one) for one in (array.astype(float), array[::-1].astype(float)))
    tolerance = 1e-6 if array.dtype == np.float32 else 1e-2
    expected = a * np.sum(a * b) - array.astype(float).mean()
    np.testing.assert_allclose(found[f"cosine/{name}"].astype(float), expected, tolerance, tolerance)
    difference = array[::-1].astype(np.float32) - array.astype(np.float32)
    kept = np.argsort(-np.abs(difference).ravel(), kind="stable")[: array.size // 5]
    largest = np.zeros(array.size, np.float32)
    largest[kept] = difference.ravel()[kept]
    assert_same({name: found[f"largest/{name}"]}, {name: largest.reshape(array.shape).astype(array.dtype)})
    assert abs((found[f"drawn/{name}"] != 0).mean() - 0.25) < 0.01


def test_what_overflows_is_refused_or_counted(tmp_path: Path) -> None:
    w = np.ones((64, 512), np.float32)
    w[0, 3] = w[40, 40] = w[63, 511] = 3e38
    save_file({"w": w, "v": np.array([1, 6e4], np.float16)}, tmp_path / "in.safetensors")
    refusing = {"version": 1, "rules": [{"match": "w|v", "value": "x * 2"}]}
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    with pytest.raises(DataError, match=r"`[vw]`") as raised:
        carry_out(refusing, source, dst=tmp_path / "refused.safetensors")
    assert raised.value.problems[0].place is not None
    assert not (tmp_path / "refused.safetensors").exists()
    counting = {"version": 1, "rules": [{"match": "w|v", "value": "allow_nonfinite(x * 2)"}]}
    result = carry_out(counting, source, dst=out, memory=SMALL)
    assert {*result.overflowed} == {OverflowedLeaf("w", 3), OverflowedLeaf("v", 1)}
    assert np.count_nonzero(np.isinf(load_file(out)["w"])) == 3


def spoil(tmp_path: Path) -> None:
    (tmp_path / "in" / "_METADATA").write_text((tmp_path / "in" / "_METADATA").read_text() + " ")


def put_another(tmp_path: Path) -> None:
    ckpt_surgery.convert(tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize(("meddle", "error"), [(spoil, SourceError), (put_another, DestinationError)])
def test_what_changes_after_the_plan_ends_it(
    meddle: Callable[[Path], None], error: type[Exception], recipe: Path, tmp_path: Path
) -> None:
    with pytest.raises(error):
        carry_out(recipe, tmp_path / "in", dst=tmp_path / "out", on_plan=lambda plan: meddle(tmp_path))
    if meddle is put_another:
        assert_same(read(tmp_path / "out"), {key: np.asarray(value) for key, value in ARRAYS.items()})
    else:
        assert not (tmp_path / "out").exists()


def test_hooks_run_where_they_are_allowed(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("def twice(x):\n    return x * 2\n")
    hooked = write_recipe(
        tmp_path, "version: 1\nhooks: hooks.py\nrules: [{match: big, value: hooks.twice(x)}]\n"
    )
    carry_out(hooked, tmp_path / "in", dst=tmp_path / "out", allow_hooks=True)
    assert_same({"big": read(tmp_path / "out")["big"]}, {"big": np.asarray(ARRAYS["big"]) * 2})
