"""Arithmetic that was seen in one leaf, tried on all that is left: `1 + w` of one norm is that of all norms.

Names pair leaves one to one, or a whole family with its stack. Where leaves are stacked otherwise, every
second layer for instance, only values can tell; and these agree after the same sum or product.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.by_values import Resembles, found_by_values
from ckpt_surgery.inference.fingerprints import kind_of
from ckpt_surgery.inference.formations import Evidence, Formation, Value
from ckpt_surgery.inference.reading import evaluated, fingerprint_of
from ckpt_surgery.inference.sides import Side
from ckpt_surgery.inference.values import X, around, node_of

MOST_OPERATIONS = 4
"""How many different sums and products are tried on what is left: each reads it once more."""
_QUOTED = re.compile(r"('[^']*')")
_OPERAND = re.compile(r"stack\(xs(?:, axis=\d+)?\)|xs\[\d+\]|\bx\b")


def found_by_operations(
    operations: Collection[str],
    source: Side,
    target: Side,
    unused: Collection[str],
    missing: Collection[str],
    resembles: Resembles,
) -> list[Formation]:
    """How missing leaves of the target follow from unused ones of the source after one of these operations.

    `operations`: what follows an array in an expression, such as ` + 1.0`. Both sides have values.
    """
    found: dict[str, Formation] = {}
    for operation in list(operations)[:MOST_OPERATIONS]:
        wanted = _floats(target, [key for key in missing if key not in found])
        used = {key for one in found.values() for key in one.sources}
        given = _of_fitting_size(_floats(source, [key for key in unused if key not in used]), wanted)
        if not wanted or not given:
            continue
        changed = _changed(operation, source, given, wanted)
        known = {key: target.fingerprints[key] for key in wanted}
        said = found_by_values(changed, replace(target, leaves=wanted, fingerprints=known), resembles)
        for one in said.formations:
            value = _after(operation, one.value)
            if value is not None:
                found[one.target] = replace(one, value=value, evidence=Evidence.ARITHMETIC)
    return list(found.values())


def _floats(side: Side, keys: Collection[str]) -> dict[str, Leaf]:
    """The leaves that are arrays of floats with known values."""
    known = {key: side.leaves[key] for key in keys if key in side.fingerprints and side.is_array(key)}
    return {key: leaf for key, leaf in known.items() if leaf.spec and kind_of(leaf.spec.dtype) == "f"}


def _of_fitting_size(given: Mapping[str, Leaf], wanted: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """The leaves that are as large as a wanted one, several times as large, or a part of it."""
    sizes = {_size(leaf) for leaf in wanted.values() if _size(leaf)}
    return {
        key: leaf
        for key, leaf in given.items()
        if (own := _size(leaf)) and any(size % own == 0 or own % size == 0 for size in sizes)
    }


def _size(leaf: Leaf) -> int:
    assert leaf.spec is not None, "only arrays have fingerprints"
    return leaf.spec.size


def _changed(operation: str, source: Side, given: Mapping[str, Leaf], wanted: Mapping[str, Leaf]) -> Side:
    """The source as it is after an operation: of these leaves, in the dtypes of those that are wanted."""
    dtypes = dict.fromkeys(leaf.spec.dtype for leaf in wanted.values() if leaf.spec)
    value = around(X, "", operation)
    fingerprints = {
        key: {dtype: fingerprint_of(value, [leaf], source, dtype) for dtype in dtypes}
        for key, leaf in given.items()
    }
    return replace(source, leaves=given, fingerprints=fingerprints, read=partial(_read, value, source))


def _read(value: Value, source: Side, leaf: Leaf, region: Region) -> np.ndarray:
    return evaluated(node_of(value, [leaf]), region, source)


def _after(operation: str, value: Value) -> Value | None:
    """A value of leaves as they are, as one of leaves after an operation; None where it is not known how."""
    parts = _QUOTED.split(value.text)
    plain = [_OPERAND.sub("", part) for part in parts[::2]]
    if any(re.search(r"\bxs\b", part) for part in plain):
        return None
    changed = list(_with(operation, parts))
    text = "".join(changed)
    whole = len(list(_OPERAND.finditer(value.text))) == 1 and _OPERAND.fullmatch(value.text)
    return Value(text[1:-1] if whole else text, value.numbers)


def _with(operation: str, parts: list[str]) -> Iterator[str]:
    for at, part in enumerate(parts):
        yield part if at % 2 else _OPERAND.sub(lambda match: f"({match.group()}{operation})", part)
