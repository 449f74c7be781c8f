"""The representations of everything that public functions return, on real files."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.summary import Represented

BLOCKS = 30
RECIPE = r"""version: 1
rules:
  - match: 'params/block_(?P<i>\d+)/(?P<n>.*)'
    to: 'params/layers/${n}'
    by: int(i)
    value: stack(xs)
  - match: 'odd[a-e]./x'
    drop: true
"""
CLASHING = {"version": 1, "rules": [{"match": "odd(.*)/x", "to": "same"}]}
FORMS = ("functions", "language.schema.fields")
"""Modules whose objects are as large as what a recipe says, and told apart by their representations."""


def word(number: int) -> str:
    return chr(ord("a") + number // 26) + chr(ord("a") + number % 26)


def tree() -> dict[str, np.ndarray[Any, Any]]:
    names = [f"params/block_{i}/{name}" for i in range(BLOCKS) for name in ("kernel", "bias")]
    blocks = {name: np.full((2, 2), i // 2, np.float32) for i, name in enumerate(names)}
    return {**blocks, **{f"odd{word(i)}/x": np.full(1, i, np.int32) for i in range(130)}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each function returns, of files that are gone since."""
    tmp_path = tmp_path_factory.mktemp("results")
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    save_file(tree(), one)
    changed = {key.replace("block_1", "layer_1"): value + 1 for key, value in tree().items()}
    save_file(changed, other)
    opened = ckpt_surgery.open(one)
    recipe, new = tmp_path / "r.yaml", tmp_path / "new.safetensors"
    recipe.write_text(RECIPE)
    with pytest.raises(PlanError) as refused:
        ckpt_surgery.plan(CLASHING, one)
    found = {
        "plan": ckpt_surgery.plan(recipe, one),
        "apply": ckpt_surgery.apply(recipe, one, dst=new),
        "inspect": ckpt_surgery.inspect(one, stats=True),
        "diff": ckpt_surgery.diff(one, other, values=True),
        "explain": ckpt_surgery.explain(recipe, one, key="params/layers/kernel"),
        "explain dropped": ckpt_surgery.explain(recipe, one, key="oddaa/x"),
        "explain subtree": ckpt_surgery.explain(recipe, one, key="params"),
        "infer": ckpt_surgery.infer(one, other),
        "invert": ckpt_surgery.invert(recipe, one),
        "verify": ckpt_surgery.verify(new),
        "read_recipe": ckpt_surgery.read_recipe(recipe),
        "open": opened,
        "open subtree": opened["params"],
        "lint": ckpt_surgery.lint(recipe),
        "error": refused.value,
    }
    for path in tmp_path.iterdir():
        path.unlink()
    return found


def reachable(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """All objects of this package that can be reached by attributes, properties and entries."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, Mapping):
        parts = list(value.values())
    elif isinstance(value, tuple | list):
        parts = list(value)
    elif type(value).__module__.startswith("ckpt_surgery"):
        yield value
        fields = [one.name for one in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        attributes = {name: one for cls in type(value).__mro__ for name, one in vars(cls).items()}
        properties = [name for name, one in attributes.items() if isinstance(one, property)]
        names = [*fields, *properties, *(["problems"] if isinstance(value, Exception) else [])]
        parts = [getattr(value, name) for name in names if not name.startswith("_")]
    else:
        return
    for part in parts:
        yield from reachable(part, seen)


def test_nothing_that_a_function_returns_has_a_long_representation(results: dict[str, Any]) -> None:
    seen: dict[int, Any] = {}
    for name, result in results.items():
        for one in reachable(result, seen):
            if type(one).__module__.removeprefix("ckpt_surgery.").startswith(FORMS):
                continue
            text = repr(one)
            assert len(text) <= 2000, (name, type(one))
            assert len(text.splitlines()) <= 25, (name, type(one))
            assert text.replace("\n", "").isprintable(), (name, type(one))


def test_large_ones_have_html_too(results: dict[str, Any]) -> None:
    large = {name for name, result in results.items() if isinstance(result, Represented)}
    assert large == results.keys() - {"lint", "error"}
    for name in large:
        assert len(results[name]._repr_html_().encode()) <= 200_000
        assert repr(results[name]).startswith(f"<{type(results[name]).__name__} ")


def test_a_subtree_of_a_checkpoint_shows_the_keys_that_it_takes(results: dict[str, Any]) -> None:
    shown = [line.split()[0] for line in repr(results["open subtree"]).splitlines()[2:]]
    assert shown == ["block_{0..29}/bias", "block_{0..29}/kernel"]
    opened = ckpt_surgery.open({"a/b": {"c": {"d": np.zeros(2)}}, "text": "x\n" * 100})
    assert "\n  c/d  f64[2]  16 B" in repr(opened["a/b"])
    opened.close()
    assert repr(opened).startswith("<Checkpoint (tree) (tree, closed)>")


def test_lazy_arrays_are_one_line(results: dict[str, Any]) -> None:
    array = results["open"]["params/block_7/bias"]
    assert repr(array) == "<LazyArray 'params/block_7/bias' float32[2,2] 16 B>"
    assert repr(ckpt_surgery.LazyArray.of((2,), np.float32, lambda: 0)) == "<LazyArray float32[2] 8 B>"
    assert len(repr(ckpt_surgery.LazyArray.of((2,), np.float32, lambda: 0, key="\x1b" * 9999))) < 200
