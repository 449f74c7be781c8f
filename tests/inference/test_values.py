"""Expressions with holes."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.inference.formations import Value
from ckpt_surgery.inference.values import XS, X, around, cast, node_of
from tests.inference.two_sides import computed, normal
from tests.support.comparing import same
from tests.support.leaves import leaf

BF16 = np.dtype(ml_dtypes.bfloat16)


def test_holes_are_counted_on() -> None:
    inner = around(X, "", "[{0}]", 3)
    found = around(inner, "reshape(", ", ({0}, {1}))", 2, 5)
    assert found == Value("reshape(x[{0}], ({1}, {2}))", (3, 2, 5))
    assert str(found) == "reshape(x[3], (2, 5))"


def test_a_cast() -> None:
    assert str(cast(X, BF16)) == "cast(x, 'bfloat16')"
    array = normal(3, 4)
    assert same(computed(cast(X, BF16), {"x": array}), array.astype(BF16))


def test_several_leaves() -> None:
    arrays = {"a": normal(2, 3), "b": normal(2, 3, seed=1)}
    assert same(computed(around(XS, "stack(", ", axis=1)"), arrays), np.stack(list(arrays.values()), 1))
    wanted = np.vstack([arrays["b"], arrays["a"][1:]])
    assert same(computed(Value("concat([xs[1], xs[0][{0}:]])", (1,)), arrays), wanted)


def test_what_has_no_result() -> None:
    with pytest.raises(SurgeryError, match="reshape"):
        node_of(Value("reshape(x, (5, 5))"), [leaf("w")])
