"""Flat dicts stay flat, with the leaves that rules rename and add."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

import ckpt_surgery
from ckpt_surgery.core.keys import Key
from ckpt_surgery.planner.flat import flat_dicts
from tests.support.checkpoints import quiet
from tests.support.command_line import run

TREE = {
    "Conv_0": {"kernel": np.ones((2, 2), np.float32), "bias": np.ones(2, np.float32)},
    "head": {"kernel": np.zeros(2, np.float32)},
}
RENAMED = {
    "version": 1,
    "rules": [
        {"match": "head/(.*)", "to": "new/head/\\1"},
        {"add": "new/b", "value": "zeros([2], 'float32')"},
    ],
}
KEYS = {"Conv_0/kernel", "Conv_0/bias", "new/head/kernel", "new/b"}


def test_keys_are_texts_or_tuples_as_they_were() -> None:
    assert set(ckpt_surgery.restore(RENAMED, flatten_dict(TREE, sep="/"))) == KEYS
    found = ckpt_surgery.restore(RENAMED, flatten_dict(TREE))
    assert set(found) == {tuple(key.split("/")) for key in KEYS}
    np.testing.assert_array_equal(found["new", "head", "kernel"], np.zeros(2))


def test_a_flat_dict_within_a_tree() -> None:
    recipe = {
        "version": 1,
        "rules": [{"match": "state/head/(.*)", "to": "state/x/\\1"}, {"match": "step", "to": "a/b"}],
    }
    found = ckpt_surgery.restore(recipe, {"state": flatten_dict(TREE, sep="/"), "step": 3})
    assert set(found["state"]) == {"Conv_0/kernel", "Conv_0/bias", "x/kernel"}
    assert found["a"] == {"b": 3}


def test_a_nested_target_nests_it() -> None:
    found = ckpt_surgery.restore(None, flatten_dict(TREE, sep="/"), target=TREE)
    assert set(found["Conv_0"]) == {"kernel", "bias"}


def test_names_with_slashes_of_containers_are_not_flat() -> None:
    """Haiku's modules."""
    tree = {"mlp/~/linear_0": {"w": np.ones(2, np.float32)}}
    recipe = {"version": 1, "rules": [{"match": "(.*)/w", "to": "\\1/kernel"}]}
    assert set(ckpt_surgery.restore(None, tree)["mlp/~/linear_0"]) == {"w"}
    assert "mlp" in ckpt_surgery.restore(recipe, tree)


@pytest.mark.parametrize(
    ("keys", "flat"),
    [
        ([("a/b",), ("c",)], {()}),
        ([("a/b",), ("c", "d")], set()),
        ([("s", "a/b"), ("t", "c")], {("s",)}),
        ([("a",), ("b",)], set()),
    ],
)
def test_a_dict_is_flat_where_a_key_has_a_slash_and_no_value_is_a_container(
    keys: Any, flat: set[Any]
) -> None:
    assert flat_dicts(map(Key.of, keys)) == flat


def test_trees_of_any_depth_are_flattened_and_nested(tmp_path: Path) -> None:
    with quiet():
        ocp.PyTreeCheckpointer().save(tmp_path / "tree", TREE)
        ckpt_surgery.apply("@flatten", tmp_path / "tree", dst=tmp_path / "flat")
        ckpt_surgery.apply(RENAMED, tmp_path / "flat", dst=tmp_path / "renamed")
        ckpt_surgery.apply("@nest", tmp_path / "renamed", dst=tmp_path / "nested")
        flat, renamed, nested = (
            ocp.PyTreeCheckpointer().restore(tmp_path / name) for name in ("flat", "renamed", "nested")
        )
    assert set(flat) == set(flatten_dict(TREE, sep="/"))
    assert set(renamed) == KEYS
    assert set(flatten_dict(nested, sep="/")) == KEYS
    np.testing.assert_array_equal(
        nested["Conv_0"]["kernel"], unflatten_dict(flat, sep="/")["Conv_0"]["kernel"]
    )


def test_a_slash_in_a_component_is_printed_and_accepted_with_a_backslash(tmp_path: Path) -> None:
    source, printed = tmp_path / "flat", r"enc/b\/c"
    flat = {"enc": {"kernel": np.ones((2, 2), np.float32), "b/c": np.ones(2, np.float32)}, "step": 3}
    ckpt_surgery.apply(None, flat, dst=source)
    assert r"b\/c" in run("inspect", source).stdout
    assert printed in run("inspect", source, "--under", printed, "--full").stdout
    listed = json.loads(run("inspect", source, "--json", "-").stdout)["leaves"]
    assert {tuple(leaf["components"]) for leaf in listed} == {("enc", "kernel"), ("enc", "b/c"), ("step",)}

    rules = ["-e", rf"{printed} = x * source['enc/b\/c'][0]", "-e", r"s|enc/kernel|enc/k\/l|"]
    assert printed in run("plan", *rules, source, "--full").stdout
    steps = json.loads(run("plan", *rules, source, "--json", "-").stdout)["leaves"]
    assert {tuple(step["components"]) for step in steps} == {("enc", "k/l"), ("enc", "b/c"), ("step",)}
    for key in ("enc/b/c", printed):
        assert f"becomes      {printed}" in run("explain", *rules, source, key).stdout
    ckpt_surgery.apply("@nest", source, dst=tmp_path / "nested")
    assert run("plan", "@nest", source).stdout.count(rf"{printed} → enc/b/c") == 1
    (tmp_path / "listing.json").write_text(run("inspect", source, "--json", "-").stdout)
    for target in (source, tmp_path / "listing.json"):
        fitted = ckpt_surgery.plan(None, tmp_path / "nested", target=target)
        assert Key.of(["enc", "b/c"]) in [step.leaf.key for step in fitted.steps]
