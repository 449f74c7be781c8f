"""Reading values in blocks, within a budget."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core import leaves as core_leaves
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.inference.expressions.formations import Value
from ckpt_surgery.inference.expressions.holders import after, laid, of_leaves
from ckpt_surgery.inference.expressions.layouts import transposing
from ckpt_surgery.inference.values.reading import fingerprint_of, fingerprints_of, node_of
from tests.inference.two_sides import assert_equal, fingerprint, leaf_of, normal, reader, side
from tests.support.leaves import leaf

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def test_fingerprints_of_all_numbers() -> None:
    arrays = {"a": normal(4, 6), "b": np.arange(5)}
    leaves = {key: leaf_of(key, array) for key, array in arrays.items()}
    leaves |= {"s": leaf("s", "string"), "e": leaf("e", "empty")}
    done: list[int] = []
    by_leaf = fingerprints_of(leaves, reader(arrays), 8 * 24, [BF16, F32], done.append)
    assert {key: set(known) for key, known in by_leaf.items()} == {"a": {F32, BF16}, "b": {arrays["b"].dtype}}
    assert_equal(by_leaf["a"][F32], fingerprint(arrays["a"]))
    assert_equal(by_leaf["a"][BF16], fingerprint(arrays["a"].astype(BF16)))
    assert_equal(by_leaf["b"][arrays["b"].dtype], fingerprint(arrays["b"]))
    assert done == [96, 40]


def test_the_fingerprint_of_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"a": normal(4, 6), "b": normal(4, 6, seed=1)}
    wanted = np.stack([arrays["a"].T, arrays["b"].T]) * np.float32(0.5)
    stack = of_leaves(list(arrays), (2,), (4, 6))
    value = after(" * 0.5", laid(transposing(stack.shape, (0, 2, 1)), stack))
    monkeypatch.setattr(core_leaves, "READ_BYTES", 40)  # bytes: many blocks
    assert_equal(fingerprint_of(value, side(arrays), F32), fingerprint(wanted))
    assert_equal(fingerprint_of(value, side(arrays), BF16), fingerprint(wanted.astype(BF16)))
    wide = fingerprint_of(value, side(arrays), np.dtype(np.float64))
    assert_equal(wide, fingerprint(wanted.astype(np.float64)))


def test_what_has_no_result() -> None:
    with pytest.raises(SurgeryError, match="reshape"):
        node_of(Value("reshape(x, (5, 5))"), [leaf("w")])
