"""The function `rearrange`: a reshape, a transpose and a reshape, written as a pattern of named axes.

Syntax and meaning of patterns, such as `d (h k) -> d h k`, are those of `einops.rearrange` (Rogozhnikov,
"Einops: Clear and Reliable Tensor Manipulations with Einstein-like Notation", ICLR 2022).
"""

import functools
import math
import re
from collections import Counter

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import in_expressions
from ckpt_surgery.functions.layout import reshape, transpose

ELLIPSIS = "..."
MERGED = "(...)"
"""The name of an ellipsis within parentheses, whose axes are merged into one."""

Side = tuple[tuple[str, ...], ...]
"""One side of a pattern: for each axis, the names in its parentheses. `()` and `1` are axes without a
name."""

_TOKEN = re.compile(r"\s*(\.\.\.|[()]|[A-Za-z][A-Za-z0-9_]*|1(?![A-Za-z0-9_]))")


@functools.lru_cache(maxsize=1024)
def parse(pattern: str) -> tuple[Side, Side]:
    """Both sides of a pattern. Raises FunctionError if the pattern is wrong for arrays of every shape."""
    sides = pattern.split("->")
    if len(sides) != 2:
        raise FunctionError(f"`rearrange`: '{pattern}' needs exactly one `->` between two sides")
    left, right = (_parse_side(side, pattern) for side in sides)
    if any(MERGED in axis for axis in left):
        raise FunctionError(f"`rearrange`: '{pattern}' cannot have `...` in parentheses on the left")
    one_sided = sorted(set(_names(left)) ^ set(_names(right)))
    if one_sided:
        raise FunctionError(f"`rearrange`: `{one_sided[0]}` is on only one side of '{pattern}'")
    return left, right


def _parse_side(text: str, pattern: str) -> Side:
    axes: list[tuple[str, ...]] = []
    group: list[str] | None = None
    for token in _tokens(text, pattern):
        if token == "(" and group is None:
            group = []
        elif token == ")" and group is not None:
            axes.append(tuple(group))
            group = None
        elif token in "()":
            raise FunctionError(f"`rearrange`: parentheses in '{pattern}' do not match, or are nested")
        elif group is not None:
            group += [MERGED if token == ELLIPSIS else token] if token != "1" else []
        else:
            axes.append((token,) if token != "1" else ())
    if group is not None:
        raise FunctionError(f"`rearrange`: a parenthesis in '{pattern}' is not closed")
    repeated = [name for name, count in Counter(_names(tuple(axes))).items() if count > 1]
    if repeated:
        raise FunctionError(f"`rearrange`: `{repeated[0]}` stands twice on one side of '{pattern}'")
    return tuple(axes)


def _tokens(text: str, pattern: str) -> list[str]:
    tokens: list[str] = []
    end = 0
    while text[end:].strip():
        match = _TOKEN.match(text, end)
        if match is None:
            raise FunctionError(
                f"`rearrange`: `{text[end:].split()[0]}` in '{pattern}' is not an axis name",
                hint="An axis is a name, `1`, `...` or a group in parentheses. Give lengths as keywords.",
            )
        tokens.append(match[1])
        end = match.end()
    return tokens


def _names(side: Side) -> tuple[str, ...]:
    return tuple(ELLIPSIS if name == MERGED else name for axis in side for name in axis)


@functools.lru_cache(maxsize=4096)
def rearrangement(
    pattern: str, lengths: tuple[tuple[str, int], ...], shape: Shape
) -> tuple[Shape, tuple[int, ...], Shape]:
    """Steps of a pattern with these lengths of axes for an array of this shape.

    They are the shape with one axis for each name on the left side, these axes in the order of the right
    side, and the shape of the result. Raises FunctionError if pattern, lengths and shape do not fit together.
    """
    left, right = parse(pattern)
    names = _names(left)
    for name, length in lengths:
        if name not in names:
            raise FunctionError(f"`rearrange`: no axis `{name}` in '{pattern}'{did_you_mean(name, names)}")
        if length < 1:
            raise FunctionError(f"`rearrange`: the length of `{name}` should be positive, not {length}")
    least = len(left) - (ELLIPSIS in names)
    if least > len(shape) or (least < len(shape) and ELLIPSIS not in names):
        axes = f"{'at least ' if ELLIPSIS in names else ''}{least} axes"
        has = f"the array has {len(shape)}: {list(shape)}"
        raise FunctionError(f"`rearrange`: '{pattern}' is for {axes}, {has}")
    # The axes of `...`, under names that no pattern can contain.
    further = tuple(f"...{i}" for i in range(len(shape) - least))
    left, right = _with_axes(left, further), _with_axes(right, further)
    sizes: dict[str, int] = {}
    for axis, length in zip(left, shape, strict=True):
        sizes |= _sizes(axis, length, dict(lengths), pattern)
    order = _names(left)
    split = tuple(sizes[name] for name in order)
    merged = tuple(math.prod(sizes[name] for name in axis) for axis in right)
    return split, tuple(order.index(name) for name in _names(right)), merged


def _with_axes(side: Side, names: tuple[str, ...]) -> Side:
    """One side of a pattern with these names in place of the ellipsis."""
    axes: list[tuple[str, ...]] = []
    for axis in side:
        if axis == (ELLIPSIS,):
            axes += [(name,) for name in names]
        else:
            axes.append(tuple(name for part in axis for name in (names if part == MERGED else (part,))))
    return tuple(axes)


def _sizes(axis: tuple[str, ...], length: int, lengths: dict[str, int], pattern: str) -> dict[str, int]:
    """The length of each name in one axis of the left side, from the length of the axis."""
    known = {name: lengths[name] for name in axis if name in lengths}
    product = math.prod(known.values())
    unknown = [name for name in axis if name not in lengths]
    if len(unknown) > 1:
        raise FunctionError(
            f"`rearrange`: give the length of `{unknown[0]}` or `{unknown[1]}` "
            f"in '{pattern}': the length {length} of their axis does not determine both"
        )
    if (length % product) if unknown else (length != product):
        what = " ".join(f"{name}={lengths[name]}" for name in known) or "1"
        raise FunctionError(f"`rearrange`: an axis of {length} does not split into {what} of '{pattern}'")
    return known | dict.fromkeys(unknown, length // product)


@in_expressions
def rearrange(x: Array, /, pattern: str, **axes: int) -> Array:  # an axis may be called `x`
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: splits, permutes and merges axes by name.

    The pattern language is that of `einops.rearrange` (Rogozhnikov, ICLR 2022). Both sides name the same
    axes, each once. Parentheses stand for one axis that is the product of the axes within, `1` and `()` for
    an axis of length 1, and `...` for any number of further axes. Keywords give the lengths of axes; in each
    pair of parentheses on the left, one length can be omitted. Raises FunctionError if pattern, lengths and
    shape do not fit together.
    """
    split, permutation, merged = rearrangement(pattern, tuple(axes.items()), x.shape)
    return reshape(transpose(reshape(x, split), permutation), merged)
