"""Leaves of one repeated value go as others of their family do."""

import numpy as np

from ckpt_surgery.inference.expressions.formations import Evidence, Formation, Value, X
from ckpt_surgery.inference.values.constants import of_families, same_constant
from tests.inference.two_sides import Arrays, normal, side, sides

ONES = np.ones((2, 3), np.float32)


def decided(source: Arrays, target: Arrays, *known: Formation) -> dict[str, tuple[tuple[str, ...], str]]:
    found = of_families(*sides(source, target), {one.target: one for one in known})
    return {one.target: (one.sources, str(one.value)) for one in found}


def formation(target: str, *sources: str, value: Value = X) -> Formation:
    return Formation(target, sources, value, Evidence.VALUES)


def test_they_follow_a_member_of_their_family() -> None:
    source = {"a/0": normal(2, 3), "a/1": ONES, "a/2": ONES * 2, "b/0": normal(2, 3), "b/1": ONES}
    target = {"new/0": source["a/0"].T.copy(), "new/1": ONES.T.copy(), "new/2": ONES.T * 2}
    found = decided(source, target, formation("new/0", "a/0", value=Value("x.T")))
    assert found == {"new/1": (("a/1",), "x.T"), "new/2": (("a/2",), "x.T")}


def test_all_sources_have_the_same_value() -> None:
    source = {"a/0": normal(3), "a/1": np.ones(3, "f4"), "b/0": normal(3, seed=1), "b/1": np.zeros(3, "f4")}
    target = {"c/0": np.concatenate([source["a/0"], source["b/0"]]), "c/1": np.ones(6, "f4")}
    known = formation("c/0", "a/0", "b/0", value=Value("concat(xs)"))
    assert decided(source, target, known) == {}
    assert decided({**source, "b/1": source["a/1"]}, target, known) == {"c/1": (("a/1", "b/1"), "concat(xs)")}


def test_other_values_or_sources_are_not_taken() -> None:
    known = formation("n/0", "a/0")
    first = normal(2, 3)
    assert decided({"a/0": first, "a/1": ONES}, {"n/0": first, "n/1": ONES * 2}, known) == {}
    assert decided({"a/0": first, "a/2": ONES}, {"n/0": first, "n/1": ONES}, known) == {}
    assert decided({"a/0": first, "a/1": ONES}, {"n/0": first, "n/1": first}, known) == {}


def test_leaves_of_other_shapes_and_dtypes_are_not_taken() -> None:
    """`pad(x, axis=0, to=4)` is right for the first member only: the second is as long as it was."""
    source = {"a/0": normal(2, 3), "a/1": ONES, "a/2": np.ones((4, 3), np.float32)}
    padded = np.concatenate([source["a/0"], np.zeros((2, 3), np.float32)])
    target = {"n/0": padded, "n/1": ONES, "n/2": np.ones((4, 3), np.float32)}
    assert "n/1" not in decided(source, target, formation("n/0", "a/0", value=Value("pad(x, axis=0, to=4)")))
    source = {"a/0": normal(3), "a/1": np.ones(3, np.float32)}
    target = {"n/0": source["a/0"], "n/1": np.ones(3, np.float16)}
    assert decided(source, target, formation("n/0", "a/0")) == {}


def test_members_with_other_indices_decide_nothing() -> None:
    source = {"a/0": normal(3), "a/1": normal(3, seed=1), "a/2": np.ones(3, "f4")}
    target = {"n/0": source["a/1"], "n/1": source["a/0"], "n/2": np.ones(3, "f4")}
    assert decided(source, target, formation("n/0", "a/1"), formation("n/1", "a/0")) == {}


def test_what_is_decided_stays() -> None:
    source = {"a/0": normal(3), "a/1": np.ones(3, "f4")}
    target = {"n/0": source["a/0"], "n/1": source["a/1"]}
    assert decided(source, target, formation("n/0", "a/0"), formation("n/1", "a/1")) == {}


def test_the_same_constant() -> None:
    source = side({"one": ONES, "two": ONES * 2, "any": normal(2, 3), "whole": ONES.astype("i4")})
    target = side({"one": ONES.T, "any": normal(2, 3)}, {"text": "string"})
    assert same_constant(source, ("one",), target, "one")
    assert same_constant(source, ("one", "one"), target, "one")
    for keys, key in [(("two",), "one"), (("one", "two"), "one"), (("any",), "any"), (("whole",), "one")]:
        assert not same_constant(source, keys, target, key)
    assert not same_constant(source, ("one",), target, "text")
