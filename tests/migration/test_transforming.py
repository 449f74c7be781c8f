"""`apply_transformations`, ours and Orbax's: the same programs with one changed import, the same results."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax.core import FrozenDict
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import ckpt_surgery
from ckpt_surgery import Transform, apply_transformations
from ckpt_surgery.core.errors import (
    OriginalMissingError,
    PlanError,
    SurgeryError,
    TransformError,
    UsageError,
)
from tests.oracle.test_guide import GUIDE, Example
from tests.oracle.test_transform_utils import CASES, REFUSED, Case
from tests.oracle.trees import Tree, assert_identical
from tests.support.effort import examples
from tests.support.pytrees import Keyless, Pair, Point


def as_in_orbax(original: Tree, transforms: Tree, new: Tree, default: bool = True) -> Tree:
    """Compare the results for transforms of Orbax, and for the same ones of ours. The result."""
    theirs = ocp.apply_transformations(original, transforms, new, default)
    assert_identical(apply_transformations(original, transforms, new, default), theirs)
    own = jax.tree.map(own_transform, transforms)
    assert_identical(apply_transformations(original, own, new, default), theirs)
    return theirs


def own_transform(given: Any) -> Transform:
    return Transform(given.original_key, given.use_fallback, given.value_fn, given.multi_value_fn)


# --- the programs of the guide --------------------------------------------------------------------------


@pytest.mark.parametrize("example", GUIDE, ids=lambda example: example.recipe)
def test_the_examples_of_the_guide(example: Example) -> None:
    as_in_orbax(example.original, example.transforms, example.new)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_what_orbaxs_own_tests_look_at(case: Case) -> None:
    as_in_orbax(case.original, case.transforms, case.new, case.default_to_original)


# --- leaves and containers ------------------------------------------------------------------------------


LEAVES = [
    PartitionSpec("data", None),
    ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.float16),
    jax.ShapeDtypeStruct((2, 3), jnp.bfloat16),
    "name",
    ...,
    np.sqrt,
    np.float16(0.1),
    np.arange(3).astype(ml_dtypes.bfloat16),
    jnp.arange(3.0),
    np.array([None, "a"], object),
    jax.random.key(3),
    int,
]


def test_leaves_are_opaque() -> None:
    """They come out as the objects that they are, whatever the new tree has in their place."""
    transforms = {
        "moved/.*": Transform(original_key="old/x"),
        "doubled": Transform(original_key="kept", value_fn=lambda v: (v, v)),
    }
    for leaf in LEAVES:
        new = {"kept": np.zeros(5), "moved": [..., 3], "own": leaf, "doubled": ...}
        original = {"kept": leaf, "old": {"x": leaf}, "unused": leaf}
        for function in (apply_transformations, ocp.apply_transformations):
            result = function(original, transforms, new)
            assert list(result) == ["doubled", "kept", "moved", "own"] or list(result) == list(new)
            found = [result["kept"], *result["moved"], result["own"], *result["doubled"]]
            assert len(found) == 6
            assert all(value is leaf for value in found)


@pytest.mark.parametrize("new", [{}, [], (), None, {"a": None}, {"a": {}}, 0, np.zeros(()), ...], ids=repr)
def test_trees_without_leaves_and_of_one_leaf(new: Tree) -> None:
    as_in_orbax({"a": 1}, {".*": ocp.Transform(use_fallback=True)}, new)
    as_in_orbax(5, {}, new)
    as_in_orbax(5, {"(?=z).*": ocp.Transform()}, new)


def test_keys_of_flat_dicts_are_matched_as_orbax_names_them() -> None:
    original = {("a", "w"): 1, ("a", "b"): 2}
    as_in_orbax(original, {}, {("a", "w"): ..., ("a", "c"): ...})
    as_in_orbax(original, {r".*'c'\)": ocp.Transform(original_key="('a', 'b')")}, {("a", "c"): ...})
    assert as_in_orbax(original, {}, {"a": {"w": ...}}) == {"a": {"w": ...}}
    as_in_orbax({3: 1, 4: 2}, {r"\d": ocp.Transform(original_key="3")}, {4: ..., 5: ...})


def test_arrays_are_rounded_as_functions_round_them() -> None:
    """A recipe computes in float32 and rounds once: here the last bit would differ."""
    x = (np.arange(200) / 7).astype(ml_dtypes.bfloat16)
    result = as_in_orbax({"x": x}, {"x": ocp.Transform(value_fn=lambda v: v * v / 3 + v)}, {"x": ...})
    once = (x.astype(np.float32) ** 2 / 3 + x.astype(np.float32)).astype(x.dtype)
    assert (result["x"] != once).any()


def test_under_jit() -> None:
    transforms = {
        "b": ocp.Transform(original_key="a", value_fn=lambda v: v * 2),
        "c": ocp.Transform(multi_value_fn=lambda key, tree: tree["a"].sum()),
    }
    a = jnp.arange(4.0)
    run = lambda lib: jax.jit(lambda a: lib.apply_transformations({"a": a}, transforms, {"b": 0, "c": 0}))(a)  # noqa: E731
    assert_identical(run(ckpt_surgery), run(ocp))


# --- which transform wins -------------------------------------------------------------------------------


def test_functions_are_called_as_often_and_in_the_order_of_orbax() -> None:
    def calls(lib: Any) -> Tree:
        seen: list[Any] = []
        count = lambda *given: seen.append(given[0]) or len(seen)  # noqa: E731
        transforms = {
            ".*": lib.Transform(original_key="x", value_fn=count),
            "[ab]": lib.Transform(multi_value_fn=count),
            "b": lib.Transform(original_key="y"),
        }
        new = lib.apply_transformations({"x": 7, "y": 8}, transforms, {"b": 0, "a": 0, "c": 0})
        return new, seen

    assert calls(ckpt_surgery) == calls(ocp) == ({"a": 2, "b": 8, "c": 5}, [7, "a", 7, "b", 7])


# --- at random ------------------------------------------------------------------------------------------


NAMES = ("a", "b", "ab", "c")
PATTERNS = [
    *(".*", "a.*", ".*b", "(.*)/b", "([abc]+)", "([abc]+)(/.*)?"),
    *("[^/]*", "(?P<n>a|b).*", "c|ab", r"\w+", "a"),
]
KEYS = ("first", "second", "old/a", "old/b", r"old/\1", r"old/\g<n>", "second", "first")
OLD = {
    "first": np.full((2, 3), 100, np.float32),
    "second": np.full((2, 3), 200, np.float32),
    "old": {name: np.full((2, 3), 300 + i, np.float32) for i, name in enumerate(NAMES)},
}
"""What every original has besides, so that most transforms find what they name."""


def trees(start: int) -> Any:
    leaf = st.integers(start, start + 9).map(lambda n: np.full((2, 3), n, np.float32))
    inner = st.one_of(leaf, st.fixed_dictionaries({"a": leaf, "b": leaf}))
    return st.dictionaries(st.sampled_from(NAMES), inner, min_size=2)


@st.composite
def transforms_of(draw: st.DrawFn) -> Tree:
    """Transforms whose regular expressions overlap."""
    keys = st.sampled_from(KEYS)
    tenfold = lambda value: value * 10  # noqa: E731
    both = lambda key, tree: tree["first"] + tree["second"] * 2  # noqa: E731
    fixed = [ocp.Transform(use_fallback=True)] * 4 + [ocp.Transform(multi_value_fn=both)] * 3
    made = st.one_of(
        st.sampled_from([*fixed, ocp.Transform(), ocp.Transform(value_fn=tenfold)]),
        keys.map(lambda key: ocp.Transform(original_key=key)),
        keys.map(lambda key: ocp.Transform(original_key=key, value_fn=tenfold)),
    )
    drawn: Tree = draw(st.dictionaries(st.sampled_from(PATTERNS), made, min_size=3, max_size=5))

    def has_groups(pattern: str, key: str) -> bool:
        return (r"\1" not in key or "(" in pattern) and ("<n>" in pattern or "<n>" not in key)

    return {pattern: t for pattern, t in drawn.items() if has_groups(pattern, t.original_key or "")}


def outcome(function: Callable[..., Tree], *arguments: Any) -> tuple[bool, Tree]:
    """Whether a function fails, and what it returns."""
    try:
        return False, function(*arguments)
    except (KeyError, TypeError, ValueError, SurgeryError):
        return True, None


@examples(150)
@given(trees(0), trees(50), transforms_of(), st.booleans(), st.booleans())
def test_overlapping_transforms(
    original: Tree, new: Tree, transforms: Tree, default: bool, is_complete: bool
) -> None:
    """Both fail or neither, and the results are the same. Often the original lacks a leaf."""
    original = {**original, **OLD} if is_complete else original
    fails, theirs = outcome(ocp.apply_transformations, original, transforms, new, default)
    failed, ours = outcome(apply_transformations, original, transforms, new, default)
    assert failed == fails
    assert_identical(ours, theirs)


MORE_LEAVES = st.sampled_from(
    [..., "text", PartitionSpec("x"), np.float16(1.5), 3, jnp.ones(2, jnp.bfloat16)]
)
NODES: list[Callable[[Any, Any], Any]] = [
    lambda a, b: {"a": a, "b": b},
    lambda a, b: [a, b],
    lambda a, b: (a, b),
    Pair,
    Point,
    Keyless,
    lambda a, b: FrozenDict({"b": a, "a": b}),
    lambda a, b: {1: a, 0: b},
]


def any_trees() -> Any:
    node = lambda inner: st.builds(lambda make, a, b: make(a, b), st.sampled_from(NODES), inner, inner)  # noqa: E731
    return st.recursive(MORE_LEAVES, node, max_leaves=6)


ANY_TRANSFORMS = st.dictionaries(
    st.sampled_from([".*", "a.*", ".*b", "[^/]*", r"(.*)/(\w+)", r"\w/\d", "first", "0", "1", "b/a"]),
    st.sampled_from(
        [
            ocp.Transform(use_fallback=True),
            ocp.Transform(),
            ocp.Transform(original_key="a"),
            ocp.Transform(original_key="0"),
            ocp.Transform(original_key="b/b", value_fn=lambda v: [v, v]),
            ocp.Transform(value_fn=lambda v: {"of": v}),
            ocp.Transform(multi_value_fn=lambda key, tree: (key, tree)),
        ]
    ),
    max_size=4,
)


@examples(150)
@given(any_trees().filter(lambda tree: not isinstance(tree, str)), any_trees(), ANY_TRANSFORMS, st.booleans())
def test_any_containers(original: Tree, new: Tree, transforms: Tree, default: bool) -> None:
    fails, theirs = outcome(ocp.apply_transformations, original, transforms, new, default)
    failed, ours = outcome(apply_transformations, original, transforms, new, default)
    assert failed == fails
    assert_identical(ours, theirs)


# --- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "original_key", "old", "new"),
    [
        (r"(?P<x>a)(?P<key>b)(?P=x)", r"\g<key>/\g<x>", "b/a", "aba"),
        (r"b", r"\101\n\g<0>", "A\nb", "b"),
        (r"{a}{2}\{{b}[{1}]{", "b", "b", "{a}}{{b}1{"),
        pytest.param("|".join([*(f"layer_{i}" for i in range(999)), "a"]), "b", "b", "a", id="long"),
        (r"(?:(.*)/)?w", r"\1/w", "/w", "w"),
        (r"(?i)A", "é", "é", "a"),
    ],
)
def test_original_keys(pattern: str, original_key: str, old: str, new: str) -> None:
    *parts, last = old.split("/")
    original = functools.reduce(lambda inner, name: {name: inner}, reversed(parts), {last: 5})
    result = as_in_orbax(original, {pattern: ocp.Transform(original_key=original_key)}, {new: ...})
    assert result == {new: 5}


# --- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_what_orbax_refuses_is_refused(case: Case) -> None:
    with pytest.raises(OriginalMissingError):
        apply_transformations(case.original, case.transforms, case.new, case.default_to_original)


def test_all_missing_leaves_are_in_one_error_and_nothing_is_called() -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    transforms = {
        r"(\w)1": Transform(original_key=r"\1"),
        ".*/w": Transform(value_fn=never),
        "n.*": Transform(multi_value_fn=never),
    }
    with pytest.raises(ValueError, match="no leaf") as caught:
        apply_transformations({"kernel": 1, "a": 2}, transforms, {"a1": 0, "b1": 0, "c": {"w": 0}, "n": 0})
    assert isinstance(caught.value, PlanError)
    assert [re.findall("`(.*?)`", problem.message) for problem in caught.value.problems] == [
        ["b", r"(\w)1", "b1"],
        ["c/w", ".*/w", "c/w"],
    ]


def test_a_missing_leaf_comes_with_the_nearest_one() -> None:
    with pytest.raises(OriginalMissingError, match="`kernal`; did you mean `kernel`"):
        apply_transformations({"kernel": 1}, {"w": Transform(original_key="kernal")}, {"w": 0})


FIELDS = {"original_key": "a", "use_fallback": True, "value_fn": print, "multi_value_fn": print}


@pytest.mark.parametrize("names", [*itertools.combinations(FIELDS, 2), tuple(FIELDS)[:3]], ids="-".join)
def test_fields_that_contradict_each_other(names: tuple[str, ...]) -> None:
    if names == ("original_key", "value_fn"):
        return  # these go together
    fields: Any = {name: FIELDS[name] for name in names}
    with pytest.raises(AssertionError):
        ocp.Transform(**fields)
    with pytest.raises(ValueError, match="contradict each other") as caught:
        Transform(**fields)
    assert isinstance(caught.value, UsageError)
    assert re.findall("`(.*?)`", caught.value.problems[0].message) == list(fields)
    changed = [ocp.Transform(), Transform()]
    for transform in changed:
        vars(transform).update(fields)
        with pytest.raises(TransformError, match="the transform `a` has"):
            apply_transformations({"a": 1}, {"a": transform}, {"a": 0})


def test_fields_are_orbaxs() -> None:
    ours, theirs = ([(f.name, f.default) for f in dataclasses.fields(c)] for c in (Transform, ocp.Transform))
    assert ours == theirs
    assert Transform("a", False, abs) == Transform(original_key="a", value_fn=abs)


def test_any_object_with_their_fields_is_a_transform() -> None:
    given = SimpleNamespace(original_key="b", use_fallback=False, value_fn=None, multi_value_fn=None)
    assert apply_transformations({"b": 1}, {"a": given}, {"a": 0}) == {"a": 1}
    restoring = ocp.transform_utils.RestoreTransform(multi_value_fn=lambda key, tree: tree["b"])
    as_in_orbax({"b": 1}, {"a": restoring}, {"a": 0})


@pytest.mark.parametrize("value", [..., 3, lambda v: v], ids=["placeholder", "number", "function"])
def test_what_is_not_a_transform(value: Any) -> None:
    with pytest.raises(UsageError, match=r"at `a/b`, which is not a transform"):
        apply_transformations({"a": {"b": 1}}, {"a": {"b": value}}, {"a": {"b": 0}})


@pytest.mark.parametrize("pattern", ["(a", "*"])
def test_what_is_not_a_regular_expression(pattern: str) -> None:
    for function in (apply_transformations, ocp.apply_transformations):
        with pytest.raises((re.error, UsageError)):
            function({"a": 1}, {pattern: Transform()}, {"a": 0})


def test_two_leaves_of_the_new_tree_with_one_key() -> None:
    new = {"a/b": 1, "a": {"b": 2}}
    with pytest.raises(ValueError, match="leaves"):
        ocp.apply_transformations({"c": 1}, {}, new)
    with pytest.raises(UsageError, match="two leaves of the new tree are called `a/b`"):
        apply_transformations({"c": 1}, {}, new)
    as_in_orbax({"a/b": 1, "a": {"b": 2}}, {}, {"a/b": 0})


def test_the_docstring_of_orbax() -> None:
    original = {"a": 1, "b": {"c": 5, "d": [0, 1, 2, 3]}, "f": 2, "b1": {"c": 2}, "b2": {"c": 3}}
    transforms = {
        "a1": ocp.Transform(original_key="a"),
        "b": {"c": ocp.Transform(multi_value_fn=lambda key, kv: kv["b"]["c"] * 2)},
        "c1": ocp.Transform(original_key="b/c"),
        "c2": ocp.Transform(original_key="b/c"),
        "x": ocp.Transform(multi_value_fn=lambda key, kv: kv["b"]["d"][0]),
        "y": ocp.Transform(multi_value_fn=lambda key, kv: kv["b"]["d"][1:]),
        "z": ocp.Transform(multi_value_fn=lambda key, kv: kv["a"] * 2 + sum(kv["b"]["d"])),
        r"x(\d.*)": ocp.Transform(original_key=r"b\1"),
    }
    new = dict.fromkeys(("a1", "c1", "c2", "x", "y", "z", "f"), ...)
    new |= {"b": {"c": ...}, "g": 5, "x1": {"c": 2}, "x2": {"c": 3}}
    result = as_in_orbax(original, transforms, new)
    assert all(leaf is not ... for leaf in jax.tree.leaves(result))
