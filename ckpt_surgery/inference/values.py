"""Expressions with holes: how they are put into each other, and what they are for given leaves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Array, Node, Read, Series
from ckpt_surgery.inference.formations import Value
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Scope

SOURCE = "source"
"""Name of the source in drafts."""
X, XS = Value("x"), Value("xs")


def around(inner: Value, before: str, after: str, *numbers: int) -> Value:
    """An expression between two texts. The holes of `after` are counted from `{0}`, as if it stood alone."""
    first = len(inner.numbers)
    shifted = after.format(*(f"{{{first + n}}}" for n in range(len(numbers))))
    return Value(f"{before}{inner.text}{shifted}", (*inner.numbers, *numbers))


def cast(inner: Value, dtype: np.dtype[Any]) -> Value:
    """The expression, rounded to a dtype."""
    return around(inner, "cast(", f", '{dtype.name}')")


def node_of(value: Value, leaves: Sequence[Leaf]) -> Node:
    """What an expression is for these leaves of the source.

    Raises SurgeryError where it has no result for their shapes and dtypes.
    """
    arrays = [_array(leaf) for leaf in leaves]
    names: Mapping[str, Any] = {"x": arrays[0], "xs": Series(tuple(arrays), tuple(range(len(arrays))))}
    found = parse(str(value)).evaluate(Scope(names, leaves[0].key.text))
    assert isinstance(found, Array), "values of formations are arrays"
    return found.rounded_to_declared()


def _array(leaf: Leaf) -> Array:
    assert leaf.spec is not None, "only arrays are computed with"
    return Array(Read(SOURCE, leaf), leaf.spec.dtype)
