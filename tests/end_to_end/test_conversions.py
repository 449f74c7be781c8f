"""Every format is converted into every other that can be written, and nothing is lost on the way.

A checkpoint is written by the format's own library (Orbax, safetensors, Flax, T5X, NumPy, zarr-python,
PyTorch, TensorFlow), converted by this package, and read back by the library of the other format: keys,
shapes, dtypes and bits have to be the same. What a format cannot hold is refused with the key before anything
is written, and no conversion replaces a file of its own source.
"""

import json
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError, SurgeryError, VerificationError
from ckpt_surgery.core.history import own_metadata as own
from ckpt_surgery.engine import worker as execute
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.report.differences import difference_rows
from tests.formats.tensorflow.bundles import Piece, save_pieces
from tests.support.checkpoints import CUSTOM, restored
from tests.support.comparing import assert_same
from tests.support.documents import plan_json
from tests.support.libraries import (
    ARRAYS,
    BF16,
    DESTINATIONS,
    EVERYTHING,
    ORIGINS,
    save_flax,
    save_npz,
)
from tests.support.reading import values


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`origin(name)`: one of ORIGINS, built once; what to open."""
    built: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in built:
            here = ORIGINS[name]
            built[name] = here.save(here.arrays, tmp_path_factory.mktemp(name) / f"origin{here.suffix}")
        return built[name]

    return of


def test_every_format_of_the_registry_takes_part() -> None:
    known = formats.formats()
    assert set(known) == {here.format for here in ORIGINS.values()}
    assert {name for name, known in known.items() if known.writable} == set(DESTINATIONS)
    for format, (name, _) in DESTINATIONS.items():
        assert (formats.format_for(name) or "orbax") == format


# --- every pair --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORIGINS)
def test_each_checkpoint_is_recognized_by_one_format_only(name: str, origin: Callable[[str], Path]) -> None:
    path = origin(name)
    found = [known.name for known in formats.formats().values() if known.recognizes(path)]
    assert found == [ORIGINS[name].format]
    assert_same(values(opening.open_source(str(path))), ORIGINS[name].arrays)


@pytest.mark.parametrize("format", DESTINATIONS)
@pytest.mark.parametrize("name", ORIGINS)
def test_what_one_library_wrote_another_reads_after_conversion(
    name: str, format: str, origin: Callable[[str], Path], tmp_path: Path
) -> None:
    source, (called, load), arrays = origin(name), DESTINATIONS[format], ORIGINS[name].arrays
    if format == "zarr":  # zarr-python knows no bfloat16
        arrays = {key: value for key, value in arrays.items() if key not in BF16}
        drop = "version: 1\nrules: [{match: embedding, drop: true, optional: true}]\n"
        result = applying.apply(drop, source, dst=tmp_path / called)
    else:
        result = applying.convert(source, tmp_path / called)
    out = tmp_path / called
    assert_same(load(out), arrays)
    difference = ckpt_surgery.diff(source, out, values=True)
    dropped = [key for key in ORIGINS[name].arrays if key not in arrays]
    assert [leaf.key.text for leaf in difference.only_a] == dropped
    assert (difference.only_b, difference.changed) == ((), ())
    assert all(value.equal for value in difference.values or ())
    assert difference.common == len(arrays)
    assert out.is_file() == formats.format_named(format).is_file(called)
    records = [f"{called}.ckpt_surgery.json"] if format in ("flax", "npz", "hdf5") else []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([called, *records])
    # Every GGUF file has metadata: the architecture.
    left_out = name == "gguf" and not formats.format_named(format).holds_metadata
    assert len(result.plan.warnings) == left_out
    assert all(told.startswith("the custom metadata (`general.arch") for told in result.plan.warnings)


@pytest.mark.parametrize("value", ["x", "where(x > 0, x, x)"], ids=["as it is", "computed"])
@pytest.mark.parametrize("format", DESTINATIONS)
def test_a_checkpoint_of_which_a_part_was_never_written_is_not_published(
    format: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One output less is written than was planned, whichever format it goes to."""
    arrays = {f"w{i}": np.full((4, 6), i + 1, np.float32) for i in range(3)}
    source = save_npz(arrays, tmp_path / "x.npz")
    recipe = f"version: 1\nrules: [{{match: 'w.', value: '{value}'}}]\n"
    out = tmp_path / DESTINATIONS[format][0]
    before = sorted(tmp_path.iterdir())
    whole = execute.batches  # type: ignore[attr-defined]
    monkeypatch.setattr(execute, "batches", lambda items, nbytes: whole(list(items)[:-1], nbytes))
    with pytest.raises(VerificationError, match="not all elements were written of `w2`"):
        applying.apply(recipe, source, dst=out)
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.undo()
    plan = applying.apply(recipe, source, dst=out).plan
    assert_same(DESTINATIONS[format][1](out), arrays)
    assert all((step.stored is None) == (value != "x") for step in plan.steps)


def test_sources_and_target_can_be_of_different_formats(
    origin: Callable[[str], Path], tmp_path: Path
) -> None:
    recipe = (
        "version: 1\nsources: [a, b, c]\ntarget: {dtype: target, missing: fallback}\nunmatched: drop\n"
        "rules:\n- {fill: ids, value: \"a['ids'] + b['ids'] + c['ids']\"}\n"
    )
    target = {"ids": np.zeros(8, np.int32), "mask": ARRAYS["mask"], "new": np.ones(3, np.float32)}
    saved = save_flax(target, tmp_path / "target.msgpack")
    sources = [origin(name) for name in ("torch", "npz", "tensorflow")]
    applying.apply(recipe, *sources, target=saved, dst=tmp_path / "x.safetensors")
    wanted = target | {"ids": (3 * ARRAYS["ids"]).astype(np.int32)}
    assert_same(load_file(tmp_path / "x.safetensors"), wanted)


# --- what is no plain array -----------------------------------------------------------------------------

REFUSED = {
    "orbax": set(),
    "safetensors": {r"a\/b/s", "name", "key"},
    "flax": {"key"},
    "npz": {"key"},
    "zarr": {r"a\/b/s", "name", "key"},
    "hdf5": {r"a\/b/s", "name", "key"},
}
"""What each format cannot hold of `checkpoints.tree(strings=True)`."""
EMPTY = ("none", "dict", "list", "tuple")
LEFT_OUT = {format: set() if format in ("orbax", "flax") else set(EMPTY) for format in REFUSED}
"""What each format has no place for in the same tree, and leaves out."""
SCALARS = {"count", "rate", "flag"}
CHANGED = {
    "orbax": (set(), {}),
    "safetensors": (SCALARS, {}),
    "flax": (set(), {"list": "empty", "tuple": "empty"}),  # to Flax both are dicts
    "npz": (SCALARS, {}),
    "zarr": (SCALARS, {}),
    "hdf5": (SCALARS, {}),
}
"""Which scalars come back as arrays without axes, and what as another empty container."""


@pytest.mark.parametrize("format", DESTINATIONS)
def test_what_a_format_cannot_hold_is_refused_by_key(
    format: str, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    source, out = checkpoint("ocdbt-zarr3"), tmp_path / DESTINATIONS[format][0]
    if REFUSED[format]:
        with pytest.raises(PlanError) as caught:
            applying.convert(source, out)
        assert {problem.message.split("`")[1] for problem in caught.value.problems} == REFUSED[format]
        assert list(tmp_path.iterdir()) == []
    gone = "|".join(REFUSED[format]) or "nothing"
    recipe = f"version: 1\nrules: [{{match: '{gone}', drop: true, optional: true}}]\n"
    result = applying.apply(recipe, source, dst=out)
    difference = ckpt_surgery.diff(source, out, values=True)
    assert {leaf.key.printed for leaf in difference.only_a} == REFUSED[format] | LEFT_OUT[format]
    missed = {row.key for row in difference_rows(difference, full=True) if row.why}
    assert missed == LEFT_OUT[format]
    assert difference.only_b == ()
    changed = {change.key: change.b.kind for change in difference.changed}
    assert (set(difference.scalars), changed) == CHANGED[format]
    assert all(value.equal for value in difference.values or ())
    forgetful = not formats.format_named(format).holds_metadata
    told = ["the custom metadata (`run`, `tokens`) is left out: flax checkpoints have no place for it"]
    told = told if forgetful else []
    if LEFT_OUT[format]:
        keys = [step.leaf.key.text for step in applying.plan(recipe, source).steps if step.leaf.empty]
        assert set(keys) == set(EMPTY)
        named = ", ".join(f"`{key}`" for key in keys[:3])
        told = [f"{format} cannot store 4 empty nodes, left out: {named}, and 1 more"]
        why = f"{format} holds no empty nodes"
        gone = {one["source"]: one["why"] for one in plan_json(result.plan)["dropped"] if one["rule"] is None}
        assert gone == {f"source:{key}": why for key in EMPTY}
        assert plan_json(result.plan)["warnings"] == told
    assert list(result.plan.warnings) == told
    kept = {key: value if format != "safetensors" else str(value) for key, value in CUSTOM.items()}
    kept |= {"format": "pt"} if format == "safetensors" else {}
    assert own(ckpt_surgery.inspect(out).metadata) == ({} if forgetful else kept)


# --- the sources' own files -----------------------------------------------------------------------------


def test_no_file_of_a_source_is_replaced(tmp_path: Path) -> None:
    """Whatever names the source: also files whose arrays have no manifest, or no elements."""
    save_npz({"a": np.ones(3)}, tmp_path / "other.npz")
    save_file({"a": np.zeros((0, 3))}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": np.ones(3)}, tmp_path / "model-00002-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    save_pieces(tmp_path / "tf", [Piece("w", np.zeros(0, np.float32)), Piece("s", np.array("text"))])
    files = {
        index: [index.name, *shards.values()],
        tmp_path / "tf": ["tf.index", "tf.data-00000-of-00001"],
        tmp_path / "tf.index": ["tf.index", "tf.data-00000-of-00001"],
    }
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for source, names in files.items():
        for name in names:
            with pytest.raises(SurgeryError, match=r"the destination is (a file of|the source)|not replaced"):
                applying.convert(source, tmp_path / name, format="npz", overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    applying.convert(tmp_path / "tf", tmp_path / "other.npz", overwrite=True)


def test_bfloat16_survives_zarr(origin: Callable[[str], Path], tmp_path: Path) -> None:
    """Which zarr-python cannot read, but TensorStore and this package can."""
    applying.convert(origin("flax"), tmp_path / "out.zarr")
    applying.convert(tmp_path / "out.zarr", tmp_path / "out")
    found = restored(tmp_path / "out")
    assert found["embedding"].dtype == jnp.bfloat16
    assert_same(found, EVERYTHING)
