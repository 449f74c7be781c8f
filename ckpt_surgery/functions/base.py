"""The base class of primitives, and the mark of the functions that expressions can call.

A function of expressions is a Python function of lazy arrays, marked with `in_expressions`, in a module of
this package, or of another package that names it under the entry point group `ckpt_surgery.functions`. What
it applies to arrays are other functions, or primitives.

A primitive is a frozen dataclass that describes how an array is computed from other arrays, its inputs. Its
fields are the arguments that are not arrays; the inputs are passed to every method. It is pure: it does no
I/O, keeps no state, and gives the same result whichever chunks the result is computed in.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NewType, TypeVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.dtypes import DType, declared_dtype_of
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.selections import Selection, bounding_box, broadcast, broadcast_needs, of_region
from ckpt_surgery.functions.streams import Pass

Specs = Sequence[ArraySpec]
"""Shapes and dtypes of a function's inputs, in order."""
Blocks = Sequence[np.ndarray]
"""Regions of a function's inputs, read into memory: one for each region that `needs` names, in its order."""

MARK = np.dtype(np.uint8)
"""Dtype of marks: bits that every element made of a marked one gets too.

They tell whether NaN and infinity in a result come from the inputs. Only blocks with such elements get marks.
"""
MARK_BITS = 2
"""Number of bits in use."""

Number = bool | int | float
"""A number in a recipe. As an argument with this annotation `2` stays an int and `2.0` a float."""


class Function:
    """Base class of primitives. Subclasses are frozen dataclasses.

    Tests hold these laws for each of them:

    - `apply` of a region equals that region of the whole result, bit for bit;
    - the result has the shape and dtype that `infer` gives;
    - the regions that `needs` names lie within the inputs, and no element outside them affects the result;
    - the same holds for the elements that `uses` names;
    - the manifest that `relink` gives decodes to the result of `apply`.
    """

    name: ClassVar[str] = ""
    """The name in messages, that of the function of expressions that applies it. By default it is that of the
    class, `in_place_of` for `InPlaceOf`."""
    is_layout: ClassVar[bool] = False
    """Whether elements are only moved: each is an unchanged element of an input, or a constant filler."""
    elementwise: ClassVar[bool] = False
    """Whether each element of the result depends only on the elements at the same index of the inputs, after
    broadcasting. Neighbouring functions of this kind are evaluated together in small tiles, so that
    intermediate arrays are never held whole."""
    widens: ClassVar[bool] = False
    """Whether narrow numbers are computed in a wider dtype: arithmetic on bfloat16, say, is in float32, and
    rounded to the declared dtype, bfloat16, once, at the end of the expression."""
    exact_inputs: ClassVar[bool] = False
    """Whether inputs computed in a wider dtype must first be rounded to their own, as for a bit cast."""

    reinterprets: ClassVar[bool] = False
    """Whether the result is numbers that the bytes of others stand for: NaN and infinity in it count as read,
    not as computed."""
    full_copies: ClassVar[int] = 0
    """Number of arrays of the size of the whole result (at least 4 bytes per element) that `apply` holds even
    for a region. 0: its memory is proportional to the region."""

    scratch: ClassVar[int] = 0
    """Bytes that `apply` holds besides arrays of the size of the region, or a pass of `stream` besides a few
    numbers, however large the region is."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def called(self) -> str:
        """The operator, which is the field `op`, or the name of the function, for messages."""
        return str(getattr(self, "op", self.name))

    def infer(self, ins: Specs) -> ArraySpec:
        """Shape and dtype of the array that `apply` gives. Raises FunctionError if the inputs do not fit."""
        raise NotImplementedError

    def declared_dtype(self, result: DType, dtypes: Sequence[DType]) -> DType:
        """The dtype of the result as the user sees it, from the declared dtypes of the inputs.

        `result` is what `infer` gives for inputs of these.
        """
        return declared_dtype_of(result, dtypes) if self.widens else result

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        """The regions of the inputs that a region of the result is computed from, as (input number, region).

        A subclass that is not elementwise defines `needs` or `uses`, and the other follows from it. It
        defines both if the exact set of elements is smaller than any box that contains it.
        """
        if not ins:
            return []
        if self.elementwise:
            alike = len({spec.shape for spec in ins}) == 1
            return [(i, region if alike else broadcast_needs(region, s.shape)) for i, s in enumerate(ins)]
        if type(self).uses is Function.uses:
            raise NotImplementedError
        return [(i, bounding_box(part)) for i, part in self.uses(of_region(region), ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        """A region of the result; `blocks[i]` holds the elements of the i-th region that `needs` names.

        Raises DataError for values that have no result, such as an integer overflow.
        """
        raise NotImplementedError

    def keeps_finite(self) -> bool:
        """Whether elements that are made of finite ones are finite, so that no result is looked at."""
        return self.is_layout or self.reinterprets

    def marks(self, region: Region, ins: Specs, blocks: Blocks, marks: Blocks) -> np.ndarray:
        """For each element of a region of the result, the marks of all elements that it is made of, joined.

        `marks[i]` are those of `blocks[i]`, bits of a uint8; some are set. The default is quick for functions
        that are elementwise or of layout; for others it asks `needs` about each element.
        """
        if self.elementwise:
            return np.array(np.broadcast_to(functools.reduce(np.bitwise_or, marks), region.shape))
        if self.is_layout:
            return self.apply(region, as_marks(ins), marks)
        result: np.ndarray = np.zeros(region.shape, MARK)
        given = list(zip(self.needs(region, ins), marks, strict=True))
        for element in chunk_regions(region.shape, (1,) * len(region.shape)):
            for number, part in self.needs(element.moved(region.starts), ins):
                for (other, whole), block in given:
                    if other == number and part.common(whole) == part:
                        joined = np.bitwise_or.reduce(block[part.within(whole)], axis=None)
                        result[element.starts] |= joined
                        break
        return result

    def permits(self, result: np.ndarray) -> np.ndarray | None:
        """Elements of a result that may be not finite although they are made of finite ones, as a mask.

        None (the default) if the call permits none.
        """
        return None

    def stream(self, ins: Specs) -> Pass | None:
        """The first pass over the one input that gives the whole result, which has to be a small array.

        None (the default) if regions of the result are computed by `apply` alone. Otherwise `apply` is not
        asked while a plan is carried out: the passes are made once for each output, before its regions, in
        blocks that fit into the memory; every process makes its own. `apply` has to give the same bits.
        """
        return None

    def passes(self, ins: Specs) -> int:
        """Maximum number of passes of a stream that gives the result, for the plan's costs."""
        return 1

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        """The elements of the inputs that these elements of the result are computed from.

        `selection` holds ascending indices for each axis. The answer is a list of (input number, selection);
        one input may occur several times. By default it is the whole region that `needs` names.
        """
        if self.elementwise:
            return [(i, broadcast(selection, spec.shape)) for i, spec in enumerate(ins)]
        return [(i, of_region(region)) for i, region in self.needs(bounding_box(selection), ins)]

    def window(self, ins: Specs) -> tuple["Function", Region] | None:
        """This function of its one input, as another function of one region of that input.

        `x[3:5]` is the function `x[:]` applied to the region 3:5 of `x`. Functions that differ only in the
        region have the same first part, which lets the planner decide once for thousands of slices of one
        stacked array. None (the default) if the function does not depend on a single region of its input.
        """
        return None

    def input_axis(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        """Input axis and offset that a result axis keeps step with, or None.

        Index `i` of the result's axis comes from index `i + offset` of the input's axis, for all `i`: if a
        region of the result moves by `n` along its axis, the region that `needs` names moves by `n` along
        the input's axis and along no other.
        """
        return (axis, 0) if self.elementwise and len(ins) == 1 else None

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        """The result as a manifest that refers to the stored bytes of the inputs, so that none is rewritten.

        None if the stored bytes cannot be used as they are and the result has to be computed.
        """
        return None


def as_marks(ins: Specs) -> list[ArraySpec]:
    """Shapes and dtype of the marks of these inputs."""
    return [ArraySpec(spec.shape, MARK) for spec in ins]


LeafKey = NewType("LeafKey", str)
"""Type of a keyword-only parameter that the rule gives and no call can: the text of the key of the output."""

Plain = Callable[..., Any]
"""A Python function of lazy arrays, text and numbers that expressions can call."""

_F = TypeVar("_F", bound=Callable[..., Any])


def in_expressions(function: _F) -> _F:
    """Let expressions call a Python function by its name, without a `_` at its end.

    Its annotations say what a call can give: `Array`, `Sequence[Array]` (also for `*xs: Array`), `Series`, a
    dtype, text, numbers, `tuple`s of those, `|` of several, or `Any` for what is not an array. `**axes: int`
    takes keywords of any name. Its docstring is its text in the reference.
    """
    function.expression_name = function.__name__.rstrip("_")  # type: ignore[attr-defined]
    return function


def expression_name(value: Any) -> str:
    """The name of a function in expressions; empty for what they cannot call."""
    return str(getattr(value, "expression_name", ""))
