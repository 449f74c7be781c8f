"""Orbax's transforms as recipes: the result is that of `apply_transformations`."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orbax.checkpoint.transform_utils import RestoreTransform, Transform, apply_transformations

import ckpt_surgery
from ckpt_surgery import from_orbax_transforms
from ckpt_surgery.api import applying
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import PlanError, SurgeryError, UsageError
from ckpt_surgery.migration import orbax_transforms
from ckpt_surgery.migration.numpy_calls import FUNCTIONS
from ckpt_surgery.migration.orbax_transforms import (
    TransformHook,
    inferred,
    trace,
)
from ckpt_surgery.migration.recipes import AddedHooks, MigratedRecipe
from ckpt_surgery.migration.standins import Branch, Recorder, RequestedKey, Untraceable
from tests.migration.test_transforming import OLD, transforms_of, trees
from tests.oracle.test_guide import GUIDE, Example
from tests.oracle.test_transform_utils import CASES, REFUSED, Case
from tests.oracle.trees import Tree, assert_identical, restore, save, through_orbax
from tests.support.effort import examples
from tests.support.trees import nested

BOTH = {"fill": ".*", "when": "has(source[key]) and kind(source[key]) != 'empty'", "optional": True}
"""Last rule: a `...` in the new tree gets the original's leaf at the same key, as in Orbax."""
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6) / 4 - 1
"""Multiples of 1/4: their sums are exact, in any order."""
OFFSETS = np.arange(6, dtype=np.float32)


def rules(recipe: MigratedRecipe) -> list[dict[str, Any]]:
    """The rules without what all of them have, and without the first and last, which many recipes have."""
    return [
        {name: value for name, value in rule.items() if name != "optional"}
        for rule in recipe.document["rules"]
        if rule.get("when") != "kind(target[key]) == 'empty'" and rule != BOTH
    ]


def value_of(recipe: MigratedRecipe) -> Any:
    """The value of the only rule."""
    (rule,) = rules(recipe)
    return rule.get("value")


def in_numpy(tree: Tree) -> Tree:
    """The tree with arrays of NumPy in place of those of JAX and of numbers."""
    return jax.tree.map(np.asarray, tree)


def assert_as_orbax(
    original: Tree, transforms: Tree, new: Tree, recipe: MigratedRecipe, default: bool = True
) -> None:
    ours = ckpt_surgery.restore(recipe, original, target=new)
    expected = apply_transformations(original, transforms, new, default)
    assert_identical(in_numpy(ours), in_numpy(expected))


def assert_as_orbax_on_disk(
    directory: Path, original: Tree, transforms: Tree, new: Tree, recipe: MigratedRecipe
) -> None:
    """Save both trees, apply the recipe, and restore the result with stock Orbax."""
    source, target = save(directory / "source", original), save(directory / "target", new)
    applying.apply(recipe, source, dst=directory / "result", target=target)
    expected = apply_transformations(original, transforms, new)
    stored = through_orbax(directory, in_numpy(expected))
    assert_identical(in_numpy(restore(directory / "result")), in_numpy(stored))


# --- the guide, and what Orbax's own tests look at ------------------------------------------------------


def target_of(example: Example) -> Tree:
    """A new tree with the shapes of the result: other than in Orbax, they have to be the target's."""
    expected = apply_transformations(example.original, example.transforms, example.new)
    return jax.tree.map(lambda value: np.asarray(value) * 0 - 1, expected)


@pytest.mark.parametrize("example", GUIDE, ids=lambda example: example.recipe)
def test_the_examples_of_the_guide(tmp_path: Path, example: Example) -> None:
    recipe = from_orbax_transforms(example.transforms, original=example.original)
    assert_as_orbax_on_disk(tmp_path, example.original, example.transforms, target_of(example), recipe)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_the_cases_of_orbax(case: Case) -> None:
    for known in (case.original, None):
        if known is None and case.reason.startswith("trees that are not dicts"):
            return  # an index is an element of an array, or of a list
        recipe = from_orbax_transforms(
            case.transforms, default_to_original=case.default_to_original, original=known
        )
        assert known is not None or not recipe.hooks
        assert_as_orbax(case.original, case.transforms, case.new, recipe, case.default_to_original)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_what_orbax_refuses_is_refused(case: Case) -> None:
    recipe = from_orbax_transforms(case.transforms, default_to_original=case.default_to_original)
    with pytest.raises(ValueError, match="not found in origin tree"):
        case.oracle()
    with pytest.raises(PlanError, match="no source leaf is called"):
        ckpt_surgery.restore(recipe, case.original, target=case.new)


# --- the document ---------------------------------------------------------------------------------------


def test_the_document() -> None:
    transforms = {
        "(.*)kernel": Transform(original_key=r"\1w"),
        "a": Transform(value_fn=lambda v: v * 2),
        "b": {"c": Transform(multi_value_fn=lambda key, kv: kv["a"] + kv["b"]["c"])},
        "fresh/.*": Transform(use_fallback=True),
    }
    recipe = from_orbax_transforms(transforms)
    assert recipe.to_yaml() == (
        "version: 1\n"
        "target: {dtype: source, missing: fallback}\n"
        "rules:\n"
        "  - {fill: .*, fallback: true, when: \"kind(target[key]) == 'empty'\", optional: true}\n"
        "  - {fill: b/c, value: \"source['a'] + source['b/c']\", optional: true}\n"
        "  - {fill: a, value: x * 2, optional: true}\n"
        r"  - {fill: (.*)kernel, from: \1w, optional: true}" + "\n"
        "  - {fill: fresh/.*, fallback: true, optional: true}\n"
        "  - {fill: .*, when: \"has(source[key]) and kind(source[key]) != 'empty'\", optional: true}\n"
    )


def test_the_document_where_the_new_tree_is_preferred() -> None:
    transforms = {"a.*": Transform(use_fallback=True), "b": Transform(original_key="c")}
    recipe = from_orbax_transforms(transforms, default_to_original=False)
    assert recipe.document == {
        "version": 1,
        "target": {"prefer": "target", "dtype": "source"},
        "rules": [
            {"fill": "b", "from": "c", "optional": True},
            {"fill": "a.*", "fallback": True, "when": "kind(target[key]) != 'empty'", "optional": True},
        ],
    }


@pytest.mark.parametrize("transforms", [{}, None, {"a": {}}], ids=str)
def test_no_transform_at_all(transforms: Any) -> None:
    assert from_orbax_transforms(transforms).document == {
        "version": 1,
        "target": {"dtype": "source", "missing": "fallback"},
        "rules": [BOTH],
    }


PLACEHOLDERS = {
    "renamed": (
        {"a2": Transform(original_key="a")},
        {"a2": ..., "n": ..., "i": ..., "s": ..., "g": ..., "new": ...},
    ),
    "by a pattern": ({r"p/(.*)": Transform(original_key=r"x/\1")}, {"p": {"y": ..., "z": ...}, "a": MATRIX}),
    "computed": (
        {
            "n2": Transform(original_key="n", value_fn=lambda v: v * 2),
            "a2": Transform(original_key="a", value_fn=lambda v: v + 1),
            "i2": Transform(original_key="i", value_fn=lambda v: v * 2),
            "g2": Transform(original_key="g", value_fn=lambda v: v * 2),
        },
        {"n2": ..., "a2": ..., "i2": ..., "g2": ..., "none": None},
    ),
    "of the tree": (
        {"m": Transform(multi_value_fn=lambda key, tree: tree["a"] * 2)},
        {"m": ..., "none": ..., "x": {"y": ..., "z": OFFSETS}},
    ),
    "fallback": ({"a": Transform(use_fallback=True)}, {"a": ..., "n": ..., "w": MATRIX}),
    "no transform": ({}, {"a": ..., "x": {"y": ...}, "w": MATRIX}),
}


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("case", PLACEHOLDERS)
def test_placeholders_come_out_as_in_orbax(case: str, default: bool) -> None:
    transforms, new = PLACEHOLDERS[case]
    original = {
        "a": jnp.asarray(MATRIX),
        "n": OFFSETS,
        "i": 3,
        "g": np.float32(1.5),
        "s": "text",
        "none": None,
        "x": {"y": OFFSETS, "z": jnp.asarray(OFFSETS)},
    }
    wanted = apply_transformations(original, transforms, new, default)
    recipe = from_orbax_transforms(transforms, default_to_original=default, original=original)
    for form in (recipe, recipe.to_yaml()):
        found = ckpt_surgery.restore(form, original, target=new)
        assert str(jax.tree.structure(found)) == str(jax.tree.structure(wanted))
        for ours, theirs, like in zip(*map(jax.tree.leaves, (found, wanted, new)), strict=True):
            assert type(ours) is type(theirs) or like is not ...
            assert theirs is ours if theirs is ... else np.array_equal(ours, theirs)


# --- which transform wins -------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [True, False], ids=["original", "new"])
@pytest.mark.parametrize(
    "transforms",
    [
        {"a.*": Transform(original_key="x"), "ab": Transform(original_key="y")},
        {"a.*": Transform(use_fallback=True), "ab": Transform(original_key="y")},
        {"a.*": Transform(original_key="x"), "ab": Transform(use_fallback=True)},
        {"ab": Transform(original_key="y"), "a": {"c": Transform(original_key="x")}, ".*": Transform()},
        {".*": Transform(use_fallback=True)},
    ],
    ids=["two", "fallback first", "fallback last", "nested", "all fall back"],
)
def test_the_same_transform_wins(transforms: Tree, default: bool) -> None:
    original = {"x": 1, "y": 2, "ab": 3, "a": {"c": 4}, "ad": 5}
    new = {"ab": 10, "a": {"c": 11}, "ad": 12}
    recipe = from_orbax_transforms(transforms, default_to_original=default)
    assert_as_orbax(original, transforms, new, recipe, default)


@pytest.mark.slow("tries random transforms")
@examples(40)
@given(trees(0), trees(50), transforms_of(), st.booleans())
def test_overlapping_transforms_give_what_orbax_gives(
    original: Tree, new: Tree, transforms: Tree, default: bool
) -> None:
    original = {**original, **OLD}
    recipe = from_orbax_transforms(transforms, default_to_original=default)
    assert not recipe.hooks
    try:
        expected = apply_transformations(original, transforms, new, default)
    except ValueError:  # a key that the original does not have, of a transform that may be overruled
        return
    assert_identical(ckpt_surgery.restore(recipe, original, target=new), expected)


class Empty(NamedTuple):
    """What optax has for a transformation without a state."""


@pytest.mark.parametrize("default", [True, False], ids=["original", "new"])
@pytest.mark.parametrize(
    "transforms",
    [
        {".*": Transform()},
        {".*": Transform(value_fn=lambda v: v * 2)},
        {"(.*)": Transform(original_key=r"\1")},
        {"n.*": Transform(use_fallback=True), "m": Transform(use_fallback=True)},
    ],
    ids=["same key", "value", "original key", "fallback"],
)
def test_empty_nodes_are_not_seen(transforms: Tree, default: bool) -> None:
    original = {"m": np.arange(3.0), "n": np.arange(4.0)}
    new = {
        "m": np.zeros(3),
        "n": np.zeros(4),
        "none": None,
        "new": {"dict": {}, "list": [], "tuple": Empty()},
    }
    recipe = from_orbax_transforms(transforms, default_to_original=default)
    assert_as_orbax(original, transforms, new, recipe, default)


# --- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "original_key", "old", "new"),
    [
        (r"(?P<layer>\w+)_(\d)", r"\2/\g<layer>", "7/kernel", "kernel_7"),
        (r"(\w)(\d)?z", r"\1/x\g<2>0", "a/x0", "az"),
        (r"(?P<x>a)(?P<key>b)(?P=x)", r"\g<key>/\g<x>", "b/a", "aba"),
        (r"(?P<source>a)?b(?(source)c|d)", r"\g<source>", "a", "abc"),
        (r"a\$", r"a\$", "a\\$", "a$"),
        (r"b", "c/[0]/d", "c/[0]/d", "b"),
        (r"x\{1\}", "b", "b", "x{1}"),
        (r"x{y}{1}[{]{", "b", "b", "x{y}{{"),
    ],
)
def test_original_keys(pattern: str, original_key: str, old: str, new: str) -> None:
    transforms = {pattern: Transform(original_key=original_key)}
    original = nested({old: 5, "other": 6})
    assert_as_orbax(original, transforms, {new: -1}, from_orbax_transforms(transforms))


def test_keys_that_recipes_do_not_take() -> None:
    for pattern, original_key, message in (
        ("(a", None, "the transform `(a`: not a regular expression: missing )"),
        ("a[[b]]", None, "the transform `a[[b]]`: not a regular expression: Possible nested set"),
        ("a{,}", None, "the transform `a{,}`: `{` stands for a count"),
        ("(a)", r"\2", "is not a replacement: invalid group reference 2"),
        ("(a)", r"\g<b>", "is not a replacement: unknown group name 'b'"),
        ("(a)", r"\q", r"is not a replacement: bad escape \q"),
        ("(a)", "\\", "is not a replacement: bad escape (end of pattern)"),
        ("(a)", "b//c", "'b//c': the key has an empty component here"),
        ("(a)", ("b", "c"), "`original_key` has to be text with `/` between its parts, not ('b', 'c')"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            from_orbax_transforms({pattern: Transform(original_key=original_key)})


def test_our_own_transforms_are_taken() -> None:
    transform = ckpt_surgery.Transform(original_key="b", value_fn=lambda v: v * 2)
    (rule,) = rules(from_orbax_transforms({"a": transform}))
    assert rule == {"fill": "a", "from": "b", "value": "x * 2"}


# --- functions ------------------------------------------------------------------------------------------


def named(v: Any) -> Any:
    return v + OFFSETS


def clipped_if_large(v: Any) -> Any:
    return v if v.max() < 1 else v / v.max()


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda v: v, None),
        (lambda v: v * 2, "x * 2"),
        (lambda v: (1 - v) ** 2 / 3, "(1 - x) ** 2 / 3"),
        (lambda v: -(v**2), "-x ** 2"),
        (lambda v: v.T, "x.T"),
        (lambda v: v.reshape(2, -1).transpose(1, 0), "transpose(reshape(x, (2, -1)), (1, 0))"),
        (lambda v: v[..., :3, None], "x[..., :3, None]"),
        (lambda v: v[1:, ::2], "x[1:, ::2]"),
        (lambda v: v @ v.T, "x @ x.T"),
        (lambda v: jnp.sqrt(abs(v)), "sqrt(abs(x))"),
        (lambda v: np.sqrt(np.abs(v)), "sqrt(abs(x))"),
        (lambda v: jnp.where(v > 0, v, 0), "where(x > 0, x, 0)"),
        (lambda v: jnp.maximum(v, 0.5), "maximum(x, 0.5)"),
        (lambda v: np.concatenate([v, v], axis=1), "concat([x, x], axis=1)"),
        (lambda v: jnp.stack([v[0], v[1]]), "stack([x[0], x[1]], axis=0)"),
        (lambda v: jnp.mean(v, axis=0), "mean(x, axis=0)"),
        (lambda v: v.sum(0, keepdims=True), "sum(x, axis=0, keepdims=True)"),
        (lambda v: jnp.expand_dims(v, 0), "expand_dims(x, 0)"),
        (lambda v: jnp.einsum("ij->ji", v), "einsum('ij->ji', x)"),
        (lambda v: v.astype(jnp.bfloat16), "cast(x, 'bfloat16')"),
        (lambda v: v.astype(v.dtype), "cast(x, x.dtype)"),
        (lambda v: jnp.zeros_like(v), "zeros(x.shape, x.dtype)"),
        (lambda v: v / v.shape[0], "x / x.shape[0]"),
        (lambda v: v * np.ndim(v) + np.size(v, 0), "x * x.ndim + x.shape[0]"),
        (lambda v: v * np.shape(v)[0], "x * x.shape[0]"),
        (lambda v: ckpt_surgery.opaque(lambda x: x * 2)(v), "x * 2"),
        (lambda v: v * float(np.float32(0.5)), "x * 0.5"),
        (named, "hooks.named(x)"),
        (clipped_if_large, "hooks.clipped_if_large(x)"),
        (lambda v: np.cumsum(v, axis=0), "hooks.function(x)"),
        (lambda v: np.float64(2) * v, "hooks.function(x)"),
        (lambda v: v if isinstance(v, str) else np.sort(v), "hooks.function(x)"),
        (lambda v: v * 3 if isinstance(v, np.ndarray) else v, "hooks.function(x)"),
        (lambda v: jnp.asarray(v).at[0].set(1), "hooks.function(x)"),
        (lambda v: np.full((2, 3), 5, np.int16), "hooks.function(x)"),
    ],
)
def test_functions_of_one_value(function: Callable[[Any], Any], value: Any) -> None:
    transforms = {"w": Transform(value_fn=function)}
    recipe = from_orbax_transforms(transforms)
    assert value_of(recipe) == value
    assert_as_orbax({"w": MATRIX}, transforms, {"w": np.asarray(function(MATRIX)) * 0}, recipe)


def test_a_function_that_needs_arrays_of_jax() -> None:
    transforms = {"w": Transform(value_fn=lambda v: v.at[0].set(1))}
    ours = ckpt_surgery.restore(from_orbax_transforms(transforms), {"w": MATRIX}, target={"w": MATRIX * 0})
    expected = apply_transformations({"w": jnp.asarray(MATRIX)}, transforms, {"w": ...})
    assert_identical(ours, in_numpy(expected))


def test_functions_that_no_expression_says_get_numbers_and_trees() -> None:
    original = {"n": 5, "a": [OFFSETS, 7], "text": "t"}
    transforms = {
        "n": Transform(value_fn=lambda v: v.bit_length()),
        "m": Transform(
            multi_value_fn=lambda key, tree: np.sort(tree["a"][0]) * tree["a"][1] + len(tree["text"])
        ),
    }
    recipe = from_orbax_transforms(transforms, original=original)
    found = ckpt_surgery.restore(recipe, original, target={"n": 0, "m": OFFSETS})
    assert_identical(found, {"n": 3, "m": OFFSETS * 7 + 1})


def incremented(v: Any) -> Any:
    v += 1
    return v


def first_row_cleared(v: Any) -> Any:
    v[0] = 0
    return v


@pytest.mark.parametrize(
    ("function", "value"),
    [(incremented, "x + 1"), (first_row_cleared, "hooks.first_row_cleared(x)")],
)
def test_functions_that_write_into_their_argument(function: Callable[[Any], Any], value: str) -> None:
    recipe = from_orbax_transforms({"w": Transform(value_fn=function)})
    assert value_of(recipe) == value
    ours = ckpt_surgery.restore(recipe, {"w": MATRIX}, target={"w": MATRIX * 0})
    assert_identical(ours, {"w": function(MATRIX.copy())})


class Doubler:
    def __call__(self, v: Any) -> Any:
        return v * 2

    def method(self, v: Any) -> Any:
        return self(v) + 1


def test_callables_of_other_kinds() -> None:
    for function, expression in (
        (Doubler(), "x * 2"),
        (Doubler().method, "x * 2 + 1"),
        (functools.partial(lambda k, v: jnp.sqrt(v * k), 3), "sqrt(x * 3)"),
        (jax.jit(lambda v: jnp.transpose(v) / 2), "x.T / 2"),
    ):
        assert value_of(from_orbax_transforms({"w": Transform(value_fn=function)})) == expression


def test_functions_that_are_random_or_count_are_no_expressions() -> None:
    counted = iter(range(10**9))
    random = np.random.default_rng(0)
    for function in (lambda v: v + next(counted), lambda v: v * float(random.random())):
        assert value_of(from_orbax_transforms({"w": Transform(value_fn=function)})) == "hooks.function(x)"


def test_functions_that_yaml_cannot_say_are_named_with_their_transforms() -> None:
    recipe = from_orbax_transforms({name: Transform(value_fn=lambda v: np.sort(v)) for name in "ab"})
    with pytest.raises(UsageError, match=r"`function` \(transform `a`\), `function_2` \(transform `b`\)"):
        recipe.to_yaml()


def problems_of(recipe: MigratedRecipe, target: Any) -> list[tuple[str, int | None, str | None]]:
    """Path, line and name of the place of each problem."""
    source = {"a": np.ones((2, 3), np.float32)}
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore(recipe, source, target=target)
    assert re.search(r"\(recipe\):\d", str(caught.value)) is None
    return [(p.place.path, p.place.line, p.place.name) for p in caught.value.problems if p.place is not None]


def test_problems_name_the_keys_of_transforms_and_no_lines() -> None:
    transforms = {"x": Transform(original_key="nope"), "y": Transform(original_key="a", value_fn=np.sort)}
    target = {"x": jax.ShapeDtypeStruct((2,), np.float32), "y": jax.ShapeDtypeStruct((2, 4), np.float32)}
    assert problems_of(from_orbax_transforms(transforms), target) == [
        ("rules[0].from", None, "transform `x`, from"),
        ("rules[1]", None, "transform `y`"),
    ]


def test_problems_name_the_keys_as_they_were_given() -> None:
    """A rule of its own comes first, and the group `x` has another name in the recipe."""
    transforms = {"(?P<x>.*)k": Transform(original_key=r"\g<x>", value_fn=lambda v: v.reshape(7))}
    target = {"ak": jax.ShapeDtypeStruct((7,), np.float32)}
    assert problems_of(from_orbax_transforms(transforms), target) == [
        ("rules[1].value", None, "transform `(?P<x>.*)k`, value")
    ]


def test_a_function_is_compared_with_the_dtypes_of_the_original() -> None:
    """An integer times a fraction is a fraction in NumPy, and an error in a recipe."""
    transforms = {"w": Transform(value_fn=lambda v: v * 0.5)}
    assert value_of(from_orbax_transforms(transforms)) == "x * 0.5"
    original = {"w": np.arange(4)}
    recipe = from_orbax_transforms(transforms, original=original)
    assert value_of(recipe) == "hooks.function(x)"
    assert_as_orbax(original, transforms, {"w": np.zeros(4)}, recipe)


def test_a_function_is_compared_with_the_shapes_of_the_original() -> None:
    transforms = {"w": Transform(value_fn=lambda v: v.reshape(12, 5, 7))}
    for original in (None, {"w": np.zeros((60, 7), np.float32)}):
        assert value_of(from_orbax_transforms(transforms, original=original)) == "reshape(x, (12, 5, 7))"


def test_large_leaves_are_compared_in_small() -> None:
    large = jax.ShapeDtypeStruct((1 << 14, 1 << 20), jnp.float32)
    original = {"w": large, "never read": large}
    transforms = {
        "w": Transform(value_fn=lambda v: v.T * 2),
        "v": Transform(multi_value_fn=lambda key, tree: tree["w"] + tree["w"]),
    }
    recipe = from_orbax_transforms(transforms, original=original)
    assert [rule["value"] for rule in rules(recipe)] == ["source['w'] + source['w']", "x.T * 2"]


# --- functions of the whole tree ------------------------------------------------------------------------


def test_an_average_over_a_subtree() -> None:
    original = {"a": {"x": np.float32([1, 2]), "y": np.float32([4, 8])}}
    transforms = {"a": Transform(multi_value_fn=lambda key, tree: sum(tree[key].values()) / len(tree[key]))}
    with pytest.raises(UsageError, match=r"`multi_value_fn` of `a`(.|\n)*`\.values`(.|\n)*`original=…`"):
        from_orbax_transforms(transforms)
    recipe = from_orbax_transforms(transforms, original=original)
    assert value_of(recipe) == "(source['a/x'] + source['a/y']) / 2"
    assert_as_orbax(original, transforms, {"a": np.zeros(2, np.float32)}, recipe)


def test_a_function_that_looks_at_the_key() -> None:
    original = {"w": {"kernel": MATRIX, "bias": OFFSETS}, "n": 3}
    transforms = {"new/(.*)": Transform(multi_value_fn=lambda key, tree: tree["w"][key.split("/")[1]] * 2)}
    recipe = from_orbax_transforms(transforms, original=original)
    assert value_of(recipe) == "hooks.function(key, source['n'], source['w/bias'], source['w/kernel'])"
    new = {"new": {"kernel": MATRIX * 0, "bias": OFFSETS * 0}}
    assert_as_orbax(original, transforms, new, recipe)


def test_a_function_that_chooses_a_leaf_by_the_key() -> None:
    transforms = {"[ab]": Transform(multi_value_fn=lambda key, tree: tree["old"][key] * 2)}
    recipe = from_orbax_transforms(transforms)
    assert value_of(recipe) == "source[f'old/{key}'] * 2"
    original = {"old": {"a": OFFSETS, "b": MATRIX}}
    assert_as_orbax(original, transforms, {"a": OFFSETS * 0, "b": MATRIX * 0}, recipe)


def test_the_listing_of_a_checkpoint_as_the_original(tmp_path: Path) -> None:
    original = {"list": [np.float32([1, 2]), np.float32([3, 4])], "n": 2}
    ocp.PyTreeCheckpointer().save(tmp_path / "listed", original)
    transforms = {
        "a": Transform(multi_value_fn=lambda key, tree: sum(tree["list"]) * tree["n"]),
        "b": Transform(multi_value_fn=lambda key, tree: np.sort(tree["list"][0]) * tree["n"]),
    }
    recipe = from_orbax_transforms(transforms, original=tmp_path / "listed")
    first = rules(recipe)[0]["value"]
    assert first == "(source['list/0'] + source['list/1']) * source['n']"
    zeros = np.zeros(2, np.float32)
    assert_as_orbax(original, transforms, {"a": zeros, "b": zeros}, recipe)


def test_the_leaves_that_a_restore_transform_names() -> None:
    def smallest(key: str, tree: Tree, arguments: Any) -> Any:
        assert arguments.dtype is None
        return np.sort(tree["a"]["x"])[:1]

    original = {"a": {"x": OFFSETS, "y": MATRIX}, "b": MATRIX}
    transform = RestoreTransform(multi_value_fn=smallest, multi_value_fn_input_args={"a/.*": None})
    recipe = from_orbax_transforms({"m": transform}, original=original)
    assert value_of(recipe) == "hooks.smallest(key, source['a/x'], source['a/y'])"
    ours = ckpt_surgery.restore(recipe, original, target={"m": np.zeros(1, np.float32)})
    assert_identical(ours, {"m": OFFSETS[:1]})


def test_too_many_leaves_for_one_call() -> None:
    original = {f"layer_{i}": MATRIX for i in range(2000)}
    transforms = {"m": Transform(multi_value_fn=lambda key, tree: np.sort(tree["layer_1"]))}
    with pytest.raises(UsageError, match="a function of 2000 leaves, which are too many for one expression"):
        from_orbax_transforms(transforms, original=original)


def fails(v: Any) -> Any:
    raise ValueError(f"not {v.shape}")


class Failing:
    def __call__(self, v: Any) -> Any:
        raise ValueError(f"not {v.shape}")


def fails_on_data(v: Any) -> Any:
    if not np.all(np.asarray(v) == 1):
        raise ValueError(f"not {v.shape}")
    return np.sort(v)


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (fails, "fails"),
        (functools.partial(fails), "fails"),
        (Failing(), "Failing"),
        (fails_on_data, "fails_on_data"),
        (lambda v: fails(v), "<lambda>"),
    ],
)
def test_a_function_that_fails_is_named_with_its_transform(function: Any, called: str) -> None:
    """And with nothing that nobody wrote: neither a hook nor the expression that calls it."""
    recipe = from_orbax_transforms({"w": Transform(value_fn=function)})
    with pytest.raises(SurgeryError) as caught:
        ckpt_surgery.restore(recipe, {"w": MATRIX}, target={"w": MATRIX})
    text = str(caught.value)
    assert f"the function `{called}` raised ValueError: not " in text
    assert "transform `w`" in text
    assert "hooks" not in text
    assert "infer" not in text


ARRAY = np.ones(3)
ADD = np.add


def traced(function: Callable[[Any, Any], Any]) -> str:
    recorder = Recorder(FUNCTIONS)
    return trace(function, [RequestedKey(recorder), Branch((), recorder)], recorder)


def test_flaws() -> None:
    for function, flaw in (
        (lambda key, t: t["a"] if t["a"] > 0 else 0, "it asks for values, by `__bool__`"),
        (lambda key, t: float(t["a"]), "it asks for values, by `__float__`"),
        (lambda key, t: [*t["a"]], "it asks for values, by `__iter__`"),
        (lambda key, t: t["a"] + ARRAY, "it combines an array with ndarray, a value from elsewhere"),
        (lambda key, t: t["a"] * 1j, "it combines an array with complex, a value from elsewhere"),
        (lambda key, t: t["a"][ARRAY > 0], "it indexes with ndarray"),
        (lambda key, t: t["a"][True], "it indexes with a boolean"),
        (lambda key, t: t["a"].astype("no dtype"), "it uses the dtype 'no dtype'"),
        (lambda key, t: np.sort(t["a"]), "it calls `sort`"),
        (lambda key, t: ADD.reduce(t["a"]), "it uses `numpy.add.reduce`"),
        (
            lambda key, t: jnp.reshape(t["a"], (2,), order="F"),
            "it calls `reshape` with arguments",
        ),
        (lambda key, t: t["a"].values(), "it asks by `.values` which leaves there are"),
        (lambda key, t: t[0], "it looks at the tree as a whole"),
        (lambda key, t: t["a"] if key == "b" else t["c"], "it looks at the key by `__eq__`"),
        (lambda key, t: t[key.lower()], "it looks at the key by `.lower`"),
        (lambda key, t: 3, "it gives int that does not come from an array"),
        (lambda key, t: [t["a"]], "it gives list that does not come from an array"),
        (lambda key, t: 1 / 0, "it raises ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(Untraceable, match=f"^{re.escape(flaw)}"):
            traced(function)


def test_a_flaw_that_the_function_hides() -> None:
    def sneaky(key: Any, t: Any) -> Any:
        try:
            return t["a"] * 2 if t["a"] > 0 else t["a"]
        except BaseException:  # noqa: BLE001  (nobody should, and somebody does)
            return t["a"] * 2

    with pytest.raises(Untraceable, match="it asks for values, by `__bool__`"):
        traced(sneaky)


def test_expressions() -> None:
    for function, expression in (
        (lambda key, t: t["a"]["b"] + t.c.d, "source['a/b'] + source['c/d']"),
        (lambda key, t: t["a"][key] * t[key], "source[f'a/{key}'] * source[key]"),
        (lambda key, t: jnp.add(1, t["a"]), "1 + source['a']"),
    ):
        assert traced(function) == expression


# --- hooks ----------------------------------------------------------------------------------------------


def test_names_are_those_of_the_functions() -> None:
    def _hidden(v: Any) -> Any:
        return v

    def infer_it(v: Any) -> Any:
        return v

    hooks = AddedHooks()
    given = [named, named, _hidden, lambda v: v, Doubler(), infer_it]
    names = [hooks.added(TransformHook(function, function)) for function in given]
    assert names == ["named", "named_2", "hidden", "function", "function_2", "it"]
    assert set(hooks.functions) == {*names, *(f"infer_{name}" for name in names)}


@pytest.mark.parametrize("elements", [1 << 20, 0], ids=["called", "traced"])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda v: v[:, :1] * 2, ((4, 1), np.float32)),
        (lambda v: jnp.mean(v, axis=0), ((6,), np.float32)),
        (lambda v: v.astype(ml_dtypes.bfloat16), ((4, 6), ml_dtypes.bfloat16)),
        (lambda v: np.sort(v) if v[0, 0] > 0 else v[0], ((4, 6), np.float32)),
        (lambda v: 3, ((), np.int64)),
    ],
)
def test_what_is_known_of_a_result(
    monkeypatch: pytest.MonkeyPatch, function: Any, expected: Any, elements: int
) -> None:
    monkeypatch.setattr(orbax_transforms, "CALLED_TO_INFER", elements)
    if elements == 0 and expected[0] == ():
        expected = ((), np.int32)  # as JAX has it
    assert inferred(function, [ArraySpec((4, 6), np.dtype(np.float32))]) == expected


def test_64_bits_are_not_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orbax_transforms, "CALLED_TO_INFER", 0)
    assert inferred(lambda v: v * 2, [ArraySpec((2,), np.dtype(np.float64))]) == ((2,), np.float64)
