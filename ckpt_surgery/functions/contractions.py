"""Products summed over axes: the matrix product `@` and `einsum`.

Each element of a result is summed in an order that depends only on the lengths of the summed axes, so a
result is the same, bit for bit, for any chunking. That is why BLAS is not used: its order depends on the
shape of a block.
"""

import functools
import math
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, grown, ravelled
from ckpt_surgery.core.dtypes import DType, converted, is_integer, promoted
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.selections import Positions, Selection, broadcast, broadcast_needs
from ckpt_surgery.functions.arrays import Array, apply
from ckpt_surgery.functions.base import MARK, MARK_BITS, Blocks, Function, Specs, in_expressions
from ckpt_surgery.functions.integers import bound, can_overflow, check_exact, summation
from ckpt_surgery.functions.operators import broadcast_shapes


@dataclass(frozen=True)
class Einsum(Function):
    """Products of the inputs, summed over the axes whose letters the result does not have."""

    widens: ClassVar[bool] = True
    subscripts: str
    symbol: str = "einsum"  # Name in messages: `@` for the matrix product

    def called(self) -> str:
        return self.symbol

    def infer(self, ins: Specs) -> ArraySpec:
        _, result = _parsed(self.subscripts, len(ins))
        lengths = self._lengths(ins)
        shape = tuple(lengths[letter] for letter in result)
        return ArraySpec(shape, self._dtype(ins))

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        terms, result = _parsed(self.subscripts, len(ins))
        places: dict[str, Positions] = {letter: range(n) for letter, n in self._lengths(ins).items()}
        places |= dict(zip(result, selection, strict=True))
        parts = (tuple(places[letter] for letter in term) for term in terms)
        return [(i, broadcast(part, ins[i].shape)) for i, part in enumerate(parts)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        dtype = self._dtype(ins)
        terms, result = _parsed(self.subscripts, len(ins))
        order = result + "".join(sorted(set("".join(terms)) - set(result)))
        laid = []  # with one axis for each letter of `order`, of length 1 for letters that a block lacks
        for block, term in zip(blocks, terms, strict=True):
            letters = "".join(dict.fromkeys(term))
            wide = converted(block, dtype)
            diagonal = wide if letters == term else np.einsum(f"{term}->{letters}", wide)
            present = diagonal.transpose([letters.index(letter) for letter in order if letter in letters])
            laid.append(present[tuple(slice(None) if letter in letters else None for letter in order)])
        with np.errstate(all="ignore"):
            return summed_products(self.symbol, laid, region.shape, region)

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        """An element is marked where one marked factor is in it.

        For each bit and input, 1 at marked elements and 0 at others are multiplied with ones of all others.
        """
        specs = [ArraySpec(spec.shape, np.dtype(np.float32)) for spec in ins]
        ones = [np.ones(block.shape, np.float32) for block in marks]
        result: np.ndarray = np.zeros(region.shape, MARK)
        for number, block in enumerate(marks):
            for bit in range(MARK_BITS):
                if (chosen := block >> bit & 1).any():
                    factors = [*ones[:number], chosen.astype(np.float32), *ones[number + 1 :]]
                    result |= (self.apply(region, specs, factors) != 0).astype(MARK) << bit
        return result

    def _dtype(self, ins: Specs) -> DType:
        """The dtype of products and sums: 64 bits for integers; bools have `and` and `or` in their places."""
        work = promoted([spec.dtype for spec in ins], self.symbol)
        return summation(work) if is_integer(work) else work

    def _lengths(self, ins: Specs) -> dict[str, int]:
        """The length of the axis of each letter. Raises FunctionError if arrays disagree about it."""
        lengths: dict[str, int] = {}
        for term, spec in zip(_parsed(self.subscripts, len(ins))[0], ins, strict=True):
            if len(term) != spec.ndim:
                raise FunctionError(f"`einsum`: `{term}` is for {len(term)} axes, the array is {spec}")
            own: dict[str, int] = {}
            for letter, length in zip(term, spec.shape, strict=True):
                known = lengths.get(letter, 1)
                if own.setdefault(letter, length) != length:  # the axes of a diagonal are equally long
                    known = own[letter]
                elif known == 1 or length == 1 or known == length:
                    lengths[letter] = length if known == 1 else known
                    continue
                where = f"`{letter}` of '{self.subscripts}'"
                raise FunctionError(f"`einsum`: {where} has the lengths {known} and {length}, in {spec}")
        return lengths


@in_expressions
def einsum(subscripts: str, *operands: Array) -> Array:
    """`einsum('bij,bjk->bik', a, b)`: products of any number of arrays, summed over some of their axes.

    The subscripts name the axes of each array by letters, like those of `numpy.einsum`; axes whose letters
    are not in the result are summed over. A letter that stands twice for one array means its diagonal.
    Without `->` the result has the letters that occur once, in alphabetical order. An axis of length 1
    broadcasts. `...` is not supported. Integers are multiplied and added in 64 bits. Raises FunctionError if
    subscripts and shapes do not fit together, and DataError if a sum is out of range of the result's dtype.
    """
    return apply(Einsum(subscripts), *operands)


def matmul(a: Array, b: Array) -> Array:
    """`a @ b`: the matrix product, like `numpy.matmul`: leading axes broadcast, and vectors are allowed.

    Integers are multiplied and added in 64 bits. Raises DataError if a sum is out of range of the result's
    dtype.
    """
    if 0 in (a.ndim, b.ndim):
        raise FunctionError("`@` needs arrays with axes; multiply by a number with `*`")
    if a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
        raise FunctionError(f"`@`: the last axis of {a.spec} does not fit {b.spec}")
    broadcast_shapes([a.shape[:-2], b.shape[:-2]], "@")
    return apply(product(a.ndim, b.ndim), a, b)


def product(left: int, right: int) -> Einsum:
    """The matrix product of arrays with so many axes; a vector has neither rows nor columns."""
    batch = string.ascii_letters[3 : max(left, right, 2) + 1]
    rows, columns = "a" * (left > 1), "b" * (right > 1)
    first, second = (batch[len(batch) - max(0, ndim - 2) :] for ndim in (left, right))
    return Einsum(f"{first}{rows}c,{second}c{columns}->{batch}{rows}{columns}", "@")


@functools.lru_cache(maxsize=256)
def _parsed(subscripts: str, inputs: int) -> tuple[list[str], str]:
    """The letters of each input, and those of the result. Raises FunctionError for a mistake in them."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    counts = Counter("".join(terms))
    if not arrow:
        result = "".join(sorted(letter for letter, count in counts.items() if count == 1))
    if not all(c.isascii() and c.isalpha() for c in "".join(terms) + result):
        raise FunctionError(f"`einsum`: '{subscripts}' can have only letters, commas and one `->`")
    if len(set(result)) < len(result) or not set(result) <= set(counts):
        wanted = "should have letters of the inputs, each at most once"
        raise FunctionError(f"`einsum`: the result of '{subscripts}' {wanted}")
    if len(terms) != inputs:
        raise FunctionError(f"`einsum`: '{subscripts}' is for {len(terms)} arrays, {inputs} given")
    return terms, result


_BLOCK_ELEMENTS = 1 << 15
"""Number of elements of the result summed at a time, so that their sums stay in the processor's cache."""


def summed_products(name: str, operands: Sequence[np.ndarray], shape: Shape, region: Region) -> np.ndarray:
    """The product of all operands, summed over all axes except the leading ones, whose lengths are `shape`.

    All operands have the same number of axes, and broadcast. `region` is the region of the result that the
    sums are; its shape is `shape`, but for axes of length 1. Raises DataError, which calls the function
    `name`, with the exact value of an integer sum that is out of the range of its dtype.
    """
    outer, dtype = len(shape), operands[0].dtype
    summed = np.broadcast_shapes(*(operand.shape[outer:] for operand in operands))
    terms = [np.broadcast_to(operand, operand.shape[:outer] + summed) for operand in operands]
    checked = is_integer(dtype) and _may_overflow(operands, summed)
    result: np.ndarray = np.zeros(shape, dtype)
    for part in chunk_regions(shape, grown((1,) * outer, shape, _BLOCK_ELEMENTS)):
        cut = [term[broadcast_needs(part, term.shape[:outer]).slices] for term in terms]
        _add_products(part.taken_from(result), cut, summed)
        if checked and _may_overflow(cut, summed):
            sizes: np.ndarray = np.zeros(part.shape, np.float64)
            _add_products(sizes, cut, summed, lambda factor: np.abs(factor.astype(np.float64)))
            if not can_overflow(2 * sizes.max(), dtype):  # twice, because the float64 sums are rounded
                continue  # Python's integers, which would be exact, take a hundred times as long
            exact: np.ndarray = np.zeros(part.shape, object)
            _add_products(exact, cut, summed, lambda factor: factor.astype(object))
            check_exact(name, exact, dtype, region, ravelled(part.starts, shape))
    return result


def _add_products(
    total: np.ndarray,
    terms: Sequence[np.ndarray],
    summed: Shape,
    changed: Callable[[np.ndarray], np.ndarray] = lambda factor: factor,
) -> None:
    """Adds to `total` the products of the terms at each index of their trailing axes `summed`, one by one."""
    for index in np.ndindex(*summed):
        total += functools.reduce(np.multiply, (changed(term[(..., *index)]) for term in terms))


def _may_overflow(operands: Sequence[np.ndarray], summed: Shape) -> bool:
    magnitude = math.prod(map(bound, operands)) * math.prod(summed)
    return can_overflow(magnitude, operands[0].dtype)
