"""The record: what is written is read again, whatever the checksums are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import grid_counts
from ckpt_surgery.core.digests import Digests
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.formats.opening import open_source
from ckpt_surgery.verification import record
from ckpt_surgery.verification.record import (
    DescriptionChecksums,
    Malformed,
    digests_of,
    parse_record,
    record_length,
    record_text,
)

ARRAYS: dict[str, np.ndarray] = {
    "a/kernel": np.ones((40, 30), np.float32),
    "b": np.arange(7),
    "empty": np.zeros((0, 3)),
}


@pytest.fixture
def plan(tmp_path: Path) -> ckpt_surgery.Plan:
    save_file(ARRAYS, tmp_path / "source.safetensors")
    return ckpt_surgery.plan(None, tmp_path / "source.safetensors", format="safetensors", step=None)


FILES = (
    AdoptedFile("d/1", "/source", LinkMode.HARDLINK, 12, 34),
    AdoptedFile("d/2", "/other", LinkMode.COPY, 5, 6, 0xABC, sample=0xDEF),
)


def test_what_is_written_is_read(plan: ckpt_surgery.Plan) -> None:
    numbers = {step.leaf.key.text: number for number, step in enumerate(plan.steps)}
    one = Digests((20, 30), True, {(0, 0): 1, (1, 0): 0xFFFFFFFF})
    other = Digests((4,), False, {(1,): 0x1234})
    digests = {numbers["a/kernel"]: one, numbers["b"]: other}
    found = parse_record(record_text(plan, digests, FILES))
    assert found.files == FILES
    assert found.leaf_count == 3
    assert found.grids["a/kernel"] == ((20, 30), True, "00000001ffffffff")
    assert found.grids["b"] == ((4,), False, "--------00001234")
    assert digests_of(*found.grids["a/kernel"], (40, 30)) == one
    assert digests_of(*found.grids["b"], (7,)) == other


def test_checksums_of_more_leaves_are_added(plan: ckpt_surgery.Plan) -> None:
    leaves = {step.leaf.key.text: step.leaf for step in plan.steps}
    number = list(leaves).index("a/kernel")
    first = parse_record(record_text(plan, {number: Digests((40, 30), True, {(0, 0): 7})}, FILES))
    more = parse_record(record.add_digests(first, leaves, {"b": Digests((7,), True, {(0,): 8})}))
    assert more.grids == {**first.grids, "b": ((7,), True, "00000008")}
    same = first.document.keys() - {"leaves", "crc32c"}
    assert {k: more.document[k] for k in same} == {k: first.document[k] for k in same}
    assert more.document["crc32c"] != first.document["crc32c"]


def test_a_record_that_was_edited_is_refused(plan: ckpt_surgery.Plan) -> None:
    text = record_text(plan, {}, FILES)
    parse_record(text)
    with pytest.raises(Malformed, match="its checksum is not that of its text"):
        parse_record(text.replace('"leaf_count":', '"leaf_count":1', 1))


@given(st.data())
def test_any_grid(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=3)))
    grid = tuple(data.draw(st.integers(1, 7)) for _ in shape)
    counts = grid_counts(shape, grid)
    indices = list(np.ndindex(*counts))
    crcs = {i: data.draw(st.integers(0, 2**32 - 1)) for i in indices if data.draw(st.booleans())}
    text = "".join(f"{crcs[i]:08x}" if i in crcs else record.NONE for i in indices)
    assert digests_of(grid, True, text, shape) == Digests(grid, True, crcs)
    assert digests_of(grid, True, text + "00000000", shape) is None
    assert digests_of((*grid, 1), True, text, shape) is None


def test_checksums_of_another_shape_take_no_memory() -> None:
    assert digests_of((1,), True, "00000000", (10**15,)) is None


@pytest.mark.parametrize("name", ["out.safetensors", "out.npz"])
def test_the_length_of_the_record_is_known_beforehand(name: str, tmp_path: Path) -> None:
    """Whatever the checksums are, for copied arrays and for computed ones."""
    arrays = {"a": np.random.default_rng(0).standard_normal((300, 50)), "b": np.arange(7)}
    save_file(arrays, tmp_path / "source.safetensors")
    recipe = tmp_path / 'r "quoted".yaml'
    recipe.write_text("version: 1\nrules:\n  - match: b\n    value: x + x\n    to: c\n")
    plan = ckpt_surgery.plan(recipe, tmp_path / "source.safetensors", dst=tmp_path / name, memory=1 << 20)
    expected = {n: record.expected_digests(step) for n, step in enumerate(plan.steps)}
    text = record_text(plan, {n: found for n, found in expected.items() if found is not None}, ())
    assert record_length(plan) == len(json.dumps(text)) - 2
    ckpt_surgery.apply(recipe, tmp_path / "source.safetensors", dst=tmp_path / name, memory=1 << 20)
    source = open_source(str(tmp_path / name))
    found = record.load_record(source)
    assert found is not None
    assert {key: len(grid[2]) for key, grid in found.grids.items()} == {
        key: len(grid[2]) for key, grid in parse_record(text).grids.items()
    }


ENTRIES: dict[str, Any] = {
    "leaf_count": -1,
    "leaves": [{"key": "a", "grid": [0], "of": "values", "crc32c": ""}],
    "files": [{"name": "a", "source": "b", "how": "magic", "size": 1, "mtime_ns": 1}],
    "companions": [{"name": "a", "size": 1.5, "crc32c": "00000000"}],
    "structure": {"crc32c": "no digits", "documents": {}},
}
"""Members that are not what they should be."""


@pytest.mark.parametrize("member", ENTRIES)
def test_a_sealed_record_with_a_bad_member(plan: ckpt_surgery.Plan, member: str) -> None:
    document = {**json.loads(record_text(plan, {}, FILES)), "companions": []}
    assert parse_record(record._text(document)).leaf_count == 3
    with pytest.raises(Malformed, match="damaged"):
        parse_record(record._text({**document, member: ENTRIES[member]}))


@pytest.mark.parametrize("structure", [{}, {"documents": [], "sha256": "00"}, []])
def test_descriptions_in_a_record_of_another_version_are_not_read(
    plan: ckpt_surgery.Plan, structure: object
) -> None:
    """Each version may describe a checkpoint otherwise; the rest of the record is used all the same."""
    document = json.loads(record_text(plan, {}, FILES, DescriptionChecksums(7, {"a": (1, 2)})))
    assert parse_record(record._text(document)).structure == DescriptionChecksums(7, {"a": (1, 2)})
    other = parse_record(record._text({**document, "version": "0.0.1", "structure": structure}))
    assert (other.structure, other.files) == (record.UNKNOWN, FILES)


@pytest.mark.parametrize("text", ["[]", "{}", '{"schema": 9}', '{"schema": 1}'])
def test_json_that_is_no_record(text: str) -> None:
    with pytest.raises(Malformed):
        parse_record(text)


@given(st.text(max_size=50))
def test_no_text_is_an_internal_error(text: str) -> None:
    with pytest.raises(Malformed):
        parse_record(text)
