"""What expressions can call: one frozen dataclass per function, found by discovery.

A function describes an array that is computed from other arrays. Its fields are the call's static
arguments; its inputs are given to every method. It is pure: no I/O, no state, same result for any
chunking. To add one, write one class in a module of this package (or in another package, under the
entry point group `ckpt_surgery.functions`).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.selections import Selection, bounding_box, broadcast, of_region
from ckpt_surgery.functions.signatures import takes

Specs = Sequence[ArraySpec]
Blocks = Sequence[np.ndarray]

Number = bool | int | float
"""A number as recipes write it: annotate a field so where an int has to stay an int."""

Operand = Annotated[Number | None, "operand"]
"""Annotates a field for a number in the place of an array: None where the array is an input.

Inputs keep the order of the parameters: `where(c, 0, x)` has the fields `None, 0, None` and two inputs.
"""


class Function:
    """Base of all array functions. Subclasses are frozen dataclasses.

    Laws, held by tests: `apply` of any region equals that region of the whole; `infer` agrees with
    the result; `needs` is enough and within bounds, and so is `uses`; `relink` decoded equals `apply`.
    """

    name: ClassVar[str] = ""
    """What expressions call; empty for those that only syntax reaches (operators, subscripts)."""
    kind: ClassVar[str] = ""
    """What saved plans call the class, and no other: its name, where it says nothing else."""
    external: ClassVar[tuple[str, ...]] = ()
    """Fields for what exists in one process only: a saved plan has none of them, who loads it fills them."""
    parameters: ClassVar[tuple[str, ...] | None] = None
    """The call's positional parameters, in order; None: `x`, then the fields. A name that is not a field
    is an array; `*name` is a list of arrays, or, in last place after others, all remaining arguments. Those
    before a `/` are given by place only, as in Python."""
    remaining: ClassVar[str | None] = None
    """The field that collects keywords of free names, as `tuple[tuple[str, value], ...]`."""
    context: ClassVar[tuple[str, ...]] = ()
    """Fields that the caller of `bind` fills (`leaf_key`, `places`): no call can name them."""
    parts: ClassVar[tuple[str, ...]] = ()
    """A call gives a list of arrays, one per name: the function with its field `part` set to that name."""
    list_form: ClassVar["type[Function] | None"] = None
    """The function that is meant where the first argument is a list: `mean(xs)` beside `mean(x, 0)`."""
    is_layout: ClassVar[bool] = False
    """Layout only: elements of the inputs, moved about, with fillers at most."""
    elementwise: ClassVar[bool] = False
    """Each element is computed from those at its place of the inputs, which broadcast: `needs` asks for
    no more. Such functions are evaluated together, in tiles, so that what is between them stays small."""
    exact_inputs: ClassVar[bool] = False
    """Inputs must be rounded to their declared dtype first (bit casts), not left at computation width."""

    full_copies: ClassVar[int] = 0
    """How many copies of the whole result, of 4 bytes an element at least, `apply` holds whatever region is
    wanted; 0: it makes no more than the region."""

    def __init_subclass__(cls) -> None:
        if "kind" not in vars(cls):
            cls.kind = cls.name

    def takes(self, inputs: int) -> bool:
        """Whether it can have so many inputs."""
        return takes(self, inputs)

    def infer(self, ins: Specs) -> ArraySpec:
        """Shape and dtype of what `apply` gives. Raises FunctionError where the inputs do not fit."""
        raise NotImplementedError

    def declared_dtype(self, dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
        """The dtype that the result has for the user, from the inputs' declared dtypes.

        Arithmetic on narrow floats is *computed* in float32 (what `infer` says) and rounded once at
        the end of the expression to this type.
        """
        return dtypes[0]

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        """Which regions of which inputs an output region is computed from: the boxes of what it `uses`.

        A function defines one of the two; both where it can tell more of single elements than of a region.
        """
        if type(self).uses is Function.uses:
            raise NotImplementedError
        return [(i, bounding_box(part)) for i, part in self.uses(of_region(region), ins)]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        """The output region; `blocks[i]` holds the i-th region that `needs` asked for."""
        raise NotImplementedError

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        """Which elements of which inputs these elements of the output, in ascending order, are computed from.

        Exact where a function says so itself; otherwise all of the box that `needs` asks for.
        """
        if self.elementwise:
            return [(i, broadcast(selection, spec.shape)) for i, spec in enumerate(ins)]
        return [(i, of_region(region)) for i, region in self.needs(bounding_box(selection), ins)]

    def window(self, ins: Specs) -> tuple["Function", Region] | None:
        """The same result as another function of one region of the only input: `x[3:5]` is `x[:]` of 3:5.

        None: there is no use in looking at the function like that.
        """
        return None

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        """Which axis of the only input an output axis is a stretch of, and where on it that begins.

        What `needs` gives for a region that is moved along the one is moved as far along the other, and
        nowhere else. None: nothing of that kind can be said.
        """
        return (axis, 0) if self.elementwise and len(ins) == 1 else None

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        """The whole result over stored bytes of the inputs, as they are. None: it takes new bytes."""
        return None

    def constant(self) -> Number:
        """The value where every operand is a number (`sqrt(2)`); for functions with `Operand` fields."""
        raise NotImplementedError


Plain = Callable[..., Any]
"""A function of names and numbers only, marked with `plain`: evaluated while planning."""


def plain(function: Plain) -> Plain:
    """Mark a Python function on strings and numbers as callable from expressions under its name."""
    function.expression_name = function.__name__.rstrip("_")  # type: ignore[attr-defined]
    return function
