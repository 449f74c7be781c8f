"""Bytes that need no change are linked or copied, not decoded, and the results are the same bit for bit.

The checkpoints and the values made of them are those of `tests.support.linked_sources`. Each result is read
by this package and restored by stock Orbax; what the plan says of links, copies and computed values has to
come true, also where the source is deleted or changed afterwards.
"""

import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zarr
from safetensors.numpy import load_file

from ckpt_surgery.api import applying
from ckpt_surgery.core import manifests
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.formats import opening
from ckpt_surgery.planner import outputs
from ckpt_surgery.planner.plan import Plan, Transfer
from tests.support import checkpoints, linked_sources
from tests.support.checkpoints import random, restored, restored_by_all
from tests.support.comparing import assert_same
from tests.support.directories import copy_of, state_of
from tests.support.linked_sources import (
    LAYOUTS,
    RENAMED,
    WITH_STRINGS,
    Layout,
    arrays,
    everything,
    results,
    save_safetensors,
)
from tests.support.plans import transfers_of
from tests.support.reading import read
from tests.support.slow import slow

WAYS = ("link", "copy", "compute")


def applied(text: str, *sources: Path, dst: Path, **options: Any) -> Plan:
    """Apply a recipe, linking what can be linked; the plan that was carried out."""
    return applying.apply(text, *sources, dst=dst, **{"link_mode": "hardlink"} | options).plan


def by_transfer(plan: Plan) -> dict[str, list[str]]:
    """Keys of outputs that have an array, by how they come about."""
    found: dict[str, list[str]] = {way: [] for way in WAYS}
    for step in plan.steps:
        if step.leaf.spec is not None:
            found[step.transfer.value].append(step.leaf.key.text)
    return found


def check_costs(plan: Plan) -> None:
    costs = plan.costs
    assert costs.bytes_linked + costs.bytes_copied + costs.bytes_computed == costs.bytes_out
    for transfer, total in zip(
        Transfer, (costs.bytes_linked, costs.bytes_copied, costs.bytes_computed), strict=True
    ):
        assert sum(step.leaf.nbytes for step in plan.steps if step.transfer is transfer) == total


# --- one corpus, every layout, three ways -----------------------------------------------------------------

NEVER_LINKED = {"cast", "cast_stack", "doubled", "strided", "columns"}
"""Cases that make new values, or need what is neither whole chunks nor a contiguous range of bytes."""
ALWAYS_LINKED = {"same", "transposed", "turned", "swapped", "expanded", "cast_to_itself", "small_stack"}
OF_WHOLE_CHUNKS = {
    *("stacked", "stacked_1", "stacked_last", "stacked_transposes", "stack_of_stacks"),
    *("concatenated_1", "rearranged", "taken", "there_and_back"),
}
OF_RAW_BYTES = {
    *("off_chunks", "to_the_end", "row", "plane", "reshaped", "flat", "bits", "half_bits", "heads"),
}
LINKED = {
    "plain-zarr2": OF_WHOLE_CHUNKS | {"concatenated", "on_chunks", "flat", "bits", "half_bits", "heads"},
    "plain-zarr3": OF_WHOLE_CHUNKS | {"concatenated", "on_chunks"},
    "ocdbt-zarr2": OF_WHOLE_CHUNKS | {"concatenated", "on_chunks", "flat", "bits", "half_bits", "heads"},
    "ocdbt-zarr3": OF_WHOLE_CHUNKS | {"concatenated", "on_chunks"},
    "v1": OF_WHOLE_CHUNKS | {"concatenated", "on_chunks"},
    # The layers are of two codecs there: they cannot be put together.
    "foreign-zarr2": {"to_the_end", "flat", "bits", "half_bits"},
    # Layers end within a chunk: one cannot come after another along that axis.
    "foreign-zarr3": OF_WHOLE_CHUNKS | {"to_the_end"},
    "safetensors": OF_WHOLE_CHUNKS | OF_RAW_BYTES | {"concatenated", "on_chunks"},
    "shards": OF_WHOLE_CHUNKS | OF_RAW_BYTES | {"concatenated", "on_chunks"},
}
"""What is linked or, where its file is mostly dead, copied besides ALWAYS_LINKED."""


TRIED_OFTEN = ("ocdbt-zarr3", "plain-zarr3", "shards")
EACH = [one if one in TRIED_OFTEN else slow(one) for one in LAYOUTS]
"""Layouts; all but three take long, and are tried with the slow tests."""


@pytest.mark.slow("writes each layout several times")
@pytest.mark.parametrize("name", EACH)
def test_results_are_the_same_by_link_by_copy_and_computed(
    name: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, wanted = layout(name), results(name)
    before = state_of(source)
    plans = {}
    for way in WAYS:
        with monkeypatch.context() as patch:
            if way == "compute":
                patch.setattr(outputs, "relinked", lambda node, spare: None)
            mode = LinkMode.COPY if way == "copy" else LinkMode.HARDLINK
            plans[way] = applied(linked_sources.recipe(), source, dst=tmp_path / way, link_mode=mode)
        check_costs(plans[way])
        assert_same(read(tmp_path / way), wanted)
        assert_same(restored_by_all(tmp_path / way, name in WITH_STRINGS), wanted)
    assert state_of(source) == before

    linked, copied, computed = (by_transfer(plans[way]) for way in WAYS)
    assert computed["link"] == computed["copy"] == copied["link"] == []
    assert copied["compute"] == linked["compute"]
    stored = {*linked["link"], *linked["copy"]}
    cases = {text.removeprefix("case/") for text in stored if text.startswith("case/")}
    assert cases == ALWAYS_LINKED | LINKED[name]
    assert cases.isdisjoint(NEVER_LINKED)
    assert linked["link"]
    missing = {text for text in everything(name) if f"{RENAMED}/{text}" not in stored}
    odd = {"m/layer_0/k"} if name == "foreign-zarr2" else set()  # bz2: version 3 has no such codec
    assert missing == odd | ({"x/none", "x/dict", "x/name"} & set(everything(name)))
    rows = {f"rows/{i}" for i in range(8)}
    assert rows & stored == (rows if "plane" in LINKED[name] else set())


# --- version 2, other sources, other meshes ---------------------------------------------------------------


@pytest.mark.slow("writes each layout several times")
@pytest.mark.parametrize("name", ["ocdbt-zarr2", "ocdbt-zarr3", "foreign-zarr2", "safetensors"])
def test_results_under_zarr_version_2_are_the_same(name: str, layout: Layout, tmp_path: Path) -> None:
    """Version 2 has C and F order, no shards and no CRC; all codecs of version 2 are at home there."""
    recipe = linked_sources.recipe(head="version: 1\noutput: {zarr: 2}")
    plan = applied(recipe, layout(name), dst=tmp_path / "out")
    check_costs(plan)
    wanted = results(name)
    assert_same(read(tmp_path / "out"), wanted)
    assert_same(restored_by_all(tmp_path / "out", name in WITH_STRINGS), wanted)
    found = by_transfer(plan)
    stored = {*found["link"], *found["copy"]}
    assert ("case/transposed" in stored) == (name != "ocdbt-zarr3")
    assert ("case/stacked_transposes" in stored) == (name in ("ocdbt-zarr2", "safetensors"))
    assert "case/turned" not in stored  # axes 2, 0, 1 are neither C nor F
    assert (f"{RENAMED}/m/layer_0/k" in stored) == (name != "ocdbt-zarr3")


def test_files_of_several_sources_can_have_the_same_names(tmp_path: Path) -> None:
    first, second = {"w": random((30, 20)), "b": random((400,), 1)}, {"w": random((30, 20), 2)}
    save_safetensors(tmp_path / "a", first, 1)
    save_safetensors(tmp_path / "b", second, 1)
    text = """version: 1
sources: [one, two]
rules:
  - {match: w, source: '*', to: both, value: stack(xs)}
  - {add: other, value: "two['w'].T"}
"""
    plan = applied(text, tmp_path / "a", tmp_path / "b", dst=tmp_path / "out")
    assert by_transfer(plan)["compute"] == []
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    both = np.stack([first["w"], second["w"]])
    wanted = {"both": both, "other": second["w"].T, "b": first["b"]}
    assert_same(read(tmp_path / "out"), wanted)
    assert_same(restored_by_all(tmp_path / "out", False), wanted)


# --- what cannot be linked falls back by itself -----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int4", "int2", "float8_e4m3fn", "bool", "complex64", "float64"])
def test_narrow_and_wide_types_are_linked(dtype: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    numbers = generator.integers(0, 2, (60, 70)) if dtype == "bool" else generator.integers(-2, 2, (60, 70))
    array = numbers.astype(checkpoints.dtype(dtype))
    checkpoints.save_pytree(tmp_path / "source", {"a": array})
    text = "version: 1\nrules: [{match: a, to: b, value: x.T}]"
    for version in (2, 3):
        recipe, out = f"{text}\noutput: {{zarr: {version}}}", tmp_path / f"out{version}"
        plan = applied(recipe, tmp_path / "source", dst=out, link_mode="auto")
        assert by_transfer(plan)["compute"] == []
        assert_same(restored_by_all(out, False), {"b": array.T})


# --- the source afterwards --------------------------------------------------------------------------------


@pytest.mark.slow("writes each layout several times")
@pytest.mark.parametrize("name", EACH)
def test_source_and_result_are_independent(name: str, layout: Layout, tmp_path: Path) -> None:
    """Linked, then the source is deleted; the other way round; and overwritten."""
    source = copy_of(layout(name), tmp_path / "source")
    before = state_of(source)
    for destination in ("gone", "stays"):
        applied(linked_sources.recipe(), source, dst=tmp_path / destination)
    applied("version: 1\n", source, dst=tmp_path / "gone", overwrite=True)
    assert_same(read(tmp_path / "gone"), everything(name))
    assert state_of(source) == before
    shutil.rmtree(tmp_path / "gone")
    assert state_of(source) == before
    shutil.rmtree(source)
    assert_same(read(tmp_path / "stays"), results(name))
    assert_same(restored_by_all(tmp_path / "stays", name in WITH_STRINGS), results(name))


# --- generations ------------------------------------------------------------------------------------------


@pytest.mark.slow("writes each layout several times")
@pytest.mark.parametrize("name", ["plain-zarr2", "ocdbt-zarr3", "v1", "foreign-zarr3", "shards"])
def test_links_of_links_of_links_keep_the_values(name: str, layout: Layout, tmp_path: Path) -> None:
    """Renamed and transposed, stacked, unstacked and transposed back; each generation's source is deleted."""
    first = """version: 1
rules:
  - {match: 'm/layer_(?P<n>.*)/k', to: 'l/${n}', value: x.T}
  - {match: 'm/(.*)', to: 'model/${g[1]}'}
"""
    second = """version: 1
rules:
  - {match: 'l/.*', to: layers, value: 'stack(xs, axis=1)'}
  - {match: model/cube, to: cube, value: 'transpose(x, [1, 2, 0])'}
  - {match: 'model/(.*)', to: '${g[1]}'}
"""
    third = """version: 1
rules:
  - {match: layers, for: {i: 'range(4)'}, to: 'm/layer_${i}/k', value: 'x[:, i].T'}
  - {match: cube, to: m/cube, value: 'transpose(x, [2, 0, 1])'}
  - {match: '(w|rows|half|bias)', to: 'm/${g[1]}'}
"""
    source = copy_of(layout(name), tmp_path / "0")
    for number, text in enumerate((first, second, third), 1):
        target = tmp_path / str(number)
        plan = applied(text, source, dst=target)
        assert by_transfer(plan)["compute"] == []
        assert by_transfer(plan)["link"]
        if number == 2:
            stacked = np.stack([arrays()[f"m/layer_{i}/k"].T for i in range(4)], 1)
            assert_same({"layers": read(target)["layers"]}, {"layers": stacked})
        shutil.rmtree(source)
        source = target
    assert_same(read(source), everything(name))
    assert_same(restored_by_all(source, name in WITH_STRINGS), everything(name))


# --- raw chunks are read in parts -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["safetensors", "foreign-zarr2", "plain-zarr2"])
def test_any_region_of_linked_raw_chunks_is_read(
    name: str, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of large chunks are read: from the middle of chunks in any order, over their edges."""
    applied(linked_sources.recipe(), layout(name), dst=tmp_path / "out")
    monkeypatch.setattr(manifests, "RANGED_BYTES", 0)
    source = opening.open_source(str(tmp_path / "out"))
    leaves = {
        text: leaf
        for text, leaf in source.leaves().items()
        if leaf.manifest and leaf.manifest.supports_partial_reads
    }
    assert {"case/transposed", "case/turned"} & leaves.keys() or name != "safetensors"
    wanted, generator = results(name), np.random.default_rng(5)
    for text, leaf in leaves.items():
        for _ in range(4):
            ends = [sorted(generator.integers(0, length + 1, 2)) for length in wanted[text].shape]
            region = Region(tuple(int(a) for a, _ in ends), tuple(int(b) for _, b in ends))
            assert_same({text: source.read(leaf, region)}, {text: np.array(wanted[text][region.slices])})
    again = "version: 1\nrules: [{match: 'case/turned', value: \"cast(x, 'float64')\"}]"
    applied(again, tmp_path / "out", dst=tmp_path / "again", link_mode="auto")
    assert_same(read(tmp_path / "again"), wanted | {"case/turned": wanted["case/turned"].astype(np.float64)})


# --- safetensors ------------------------------------------------------------------------------------------


def test_safetensors_to_safetensors_is_copied_as_it_is(tmp_path: Path) -> None:
    """Renamed, sliced along the first axis, stacked: copied. Transposed, cast: computed."""
    tensors = {name: random((6, 4), seed) for seed, name in enumerate("abcd")}
    save_safetensors(tmp_path / "source", tensors, 1)
    text = """version: 1
rules:
- {match: a, to: renamed}
- {match: b, to: rows, value: 'x[2:4]'}
- {match: c, value: x.T}
- {match: d, to: {both: 'stack([x, x])', half: "cast(x, 'bfloat16')"}}
"""
    options = {"format": "safetensors", "link_mode": "auto"}
    plan = applied(text, tmp_path / "source", dst=tmp_path / "out", **options)
    assert {key for key, way in transfers_of(plan).items() if way == "copy"} == {"renamed", "rows", "both"}
    wanted = {
        "renamed": tensors["a"],
        "rows": tensors["b"][2:4],
        "both": np.stack([tensors["d"]] * 2),
        "c": tensors["c"].T,
        "half": tensors["d"].astype(ml_dtypes.bfloat16),
    }
    assert_same(load_file(tmp_path / "out" / "model.safetensors"), wanted)


# --- shards of zarr ---------------------------------------------------------------------------------------
# One that lacks a chunk stands for the fill value there, which Orbax's arrays do not have.

FILLS = {"zero": 0.0, "nine": 9.0, "nan": np.nan}
LOCATIONS = ("start", "end")


def array_of_shards(fill: float, whole: bool) -> np.ndarray:
    """Of shards of 2 × 4, which reach over both edges of the array, one lacks its second chunk, or none."""
    array = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    if not whole:
        array[2:4, 2:4] = fill
    return array


def save_shards(path: Path) -> dict[str, np.ndarray]:
    """A group with groups in it, by zarr-python: each fill value at each place of the index, whole or not."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    held = {}
    for name, fill in FILLS.items():
        for location in LOCATIONS:
            for kind in ("whole", "lacking"):
                key = f"{location}/{name}/{kind}"
                held[key] = array_of_shards(fill, kind == "whole")
                made = group.create_array(
                    name=key,
                    shape=(5, 7),
                    chunks=(2, 2),
                    shards={"shape": (2, 4), "index_location": location},
                    dtype="float32",
                    fill_value=fill,
                )
                made[...] = held[key]
    return held


CHANGES: dict[str, Any] = {
    "x": lambda x: x,
    "x.T": lambda x: x.T,
    "x[2:]": lambda x: x[2:],
    "x * 1": lambda x: x * 1,
}


@pytest.mark.parametrize("value", CHANGES)
def test_shards_of_every_fill_value_are_restored_renamed_and_changed(value: str, tmp_path: Path) -> None:
    held = save_shards(tmp_path / "g")
    recipe = f"version: 1\nrules: [{{match: '(?P<k>.*)', to: 'renamed/${{k}}', value: '{value}'}}]"
    plan = applied(recipe, tmp_path / "g", dst=tmp_path / "out")
    found = restored(tmp_path / "out")
    assert_same(found, {f"renamed/{key}": CHANGES[value](array) for key, array in held.items()})
    moved = {key: value != "x * 1" and key.endswith("whole") for key in found}
    assert transfers_of(plan) == {key: "link" if moved[key] else "compute" for key in found}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_shards_are_stacked_by_links_where_no_chunk_is_missing(axis: int, tmp_path: Path) -> None:
    """Whole shards are put together whatever their fill values were; one that lacks a chunk is enough."""
    held = save_shards(tmp_path / "g")
    rules = "".join(
        f"- {{match: '{location}/(.*)/{kind}', to: {location}_{kind}, value: 'stack(xs, axis={axis})'}}\n"
        for location in LOCATIONS
        for kind in ("whole", "lacking")
    )
    parts = "source['start/nine/whole'], source['start/nine/lacking']"
    rules += f'- {{add: mixed, value: "stack([{parts}], axis={axis})"}}\n'
    plan = applied(f"version: 1\nrules:\n{rules}", tmp_path / "g", dst=tmp_path / "out")
    found = restored(tmp_path / "out")
    wanted = {
        f"{location}_{kind}": np.stack([held[f"{location}/{name}/{kind}"] for name in sorted(FILLS)], axis)
        for location in LOCATIONS
        for kind in ("whole", "lacking")
    }
    wanted["mixed"] = np.stack([held["start/nine/whole"], held["start/nine/lacking"]], axis)
    assert_same(found, wanted)
    assert transfers_of(plan) == {
        key: "link" if key.endswith("whole") else "compute" for key in transfers_of(plan)
    }
    assert "link" in transfers_of(plan).values()
