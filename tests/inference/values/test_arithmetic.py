"""Sums and products with one number, guessed from limits, and the matches after undoing them."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.inference.expressions.formations import Evidence, Value
from ckpt_surgery.inference.values.arithmetic import operations
from ckpt_surgery.inference.values.by_values import match_after_operation
from tests.inference.two_sides import Arrays, computed, fingerprint, normal, sides

GUESSES = [
    (" + 1.0", "norms that are kept less one"),
    (" - 1.0", "and back"),
    (" + 0.125", "a sum that is no whole number"),
    (" * 2.0", "a whole number"),
    (" * -3.0", "negative"),
    (" * sqrt(64)", "a root that is a whole number is one: 8.0"),
    (" * sqrt(48)", "of a width"),
    (" * -sqrt(48)", "of a width, negative"),
    (" * (1 / 4)", "a part"),
    (" * (1 / sqrt(48))", "of the width of a head"),
    (" * (48 ** -0.5)", "as code for attention says it"),
    (" * (-1 / sqrt(48))", "negative"),
]


@pytest.mark.parametrize(("operation", "what"), GUESSES, ids=[what for _, what in GUESSES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_guess_gives_the_values(operation: str, what: str, dtype: str) -> None:
    array = normal(16, 8).astype(getattr(ml_dtypes, dtype, dtype))
    wanted = fingerprint(computed(Value(f"x{operation}"), {"x": array}))
    guesses = list(operations(fingerprint(array), wanted))
    assert wanted.total in [fingerprint(computed(Value(f"x{one}"), {"x": array})).total for one in guesses]


def test_any_other_number_is_the_quotient() -> None:
    array = normal(16, 8)
    assert list(operations(fingerprint(array), fingerprint(array * np.float32(0.75)))) == [" * 0.75"]


WORDS = [
    ((-1.0, 3.0), (0.0, 4.0), [" + 1.0"]),
    ((-1.0, 3.0), (-1.5, 2.5), [" - 0.5"]),
    ((-1.0, 3.0), (-8.0, 24.0), [" * 8.0", " * sqrt(64)"]),
    ((-1.0, 3.0), (-24.0, 8.0), [" * -8.0", " * -sqrt(64)"]),
    ((-1.0, 3.0), (-0.25, 0.75), [" * (1 / 4)", " * (1 / sqrt(16))", " * (16 ** -0.5)", " * 0.25"]),
    ((-1.0, 3.0), (-1.0, 3.0), []),
    ((-1.0, 3.0), (-1.0, 30.0), []),  # neither a sum nor a product
    ((0.0, 0.0), (1.0, 1.0), []),  # one repeated value proves nothing
    ((-1.0, 3.0), (0.0, 0.0), []),
]


@pytest.mark.parametrize(("given", "wanted", "words"), WORDS, ids=str)
def test_words(given: tuple[float, float], wanted: tuple[float, float], words: list[str]) -> None:
    one, other = (fingerprint(np.array(limits, np.float32)) for limits in (given, wanted))
    assert list(operations(one, other)) == words


def test_values_without_limits_have_no_operation() -> None:
    finite = fingerprint(np.array([1.0, 2.0], np.float32))
    infinite = fingerprint(np.array([1.0, np.inf], np.float32))
    assert list(operations(finite, infinite)) == list(operations(infinite, finite)) == []


@given(
    factor=st.floats(0.001, 1000).filter(lambda one: abs(one - 1) > 0.01),
    sign=st.sampled_from([1, -1]),
)
def test_every_product_in_float64_is_among_the_guesses(factor: float, sign: int) -> None:
    """The number itself is among the guesses if nothing is rounded on the way."""
    array = normal(32, dtype=np.float64)
    wanted = array * (sign * factor)
    guesses = list(operations(fingerprint(array), fingerprint(wanted)))
    assert any(np.allclose(computed(Value(f"x{one}"), {"x": array}), wanted, rtol=1e-12) for one in guesses)


LAYERS: Arrays = {f"l_{i}/s": normal(6, seed=i) for i in range(4)}


def values(source: Arrays, target: Arrays, operation: str) -> dict[str, tuple[str, Evidence]]:
    matches = match_after_operation(operation, *sides(source, target), list(source), list(target)).formations
    return {formation.target: (str(formation.value), formation.evidence) for formation in matches}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"s": LAYERS["l_2/s"] + np.float32(1)}, "x + 1.0"),
        ({"s": np.stack([LAYERS["l_1/s"], LAYERS["l_3/s"]]) + np.float32(1)}, "stack(xs) + 1.0"),
        ({"s": np.stack(list(LAYERS.values()), 1) + np.float32(1)}, "stack(xs, axis=1) + 1.0"),
    ],
)
def test_formations(target: Arrays, said: str) -> None:
    assert values(LAYERS, target, " + 1.0") == {"s": (said, Evidence.ARITHMETIC)}


def test_parts_are_those_of_the_changed_leaf() -> None:
    whole = {"s": normal(6, 4)}
    target = {f"l/{i}": whole["s"][:, i] * np.float32(2) for i in range(4)}
    parts = values(whole, target, " * 2.0")
    assert {text for text, _ in parts.values()} == {f"x[:, {i}] * 2.0" for i in range(4)}


def test_nothing_is_found_where_nothing_fits() -> None:
    assert values(LAYERS, {"s": normal(6, seed=9)}, " + 1.0") == {}
    assert values({"n": np.arange(4)}, {"m": np.arange(4) + 1}, " + 1") == {}
    assert values(LAYERS, {"s": LAYERS["l_0/s"] + np.float32(1)}, " * sqrt(7)") == {}
