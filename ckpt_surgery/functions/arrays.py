"""Lazy arrays: leaves that are read, and functions that are applied to them; axis arguments, bounds on sizes.

A graph of nodes holds no data. A node knows its shape and dtype, so these are known for every output while
planning. A node can be the input of many others: `x + x` in each of a hundred passes is a hundred nodes, with
2^100 paths to the leaf. So every walk over nodes visits each of them once, and none calls itself at each
level, because thousands of passes make graphs that are thousands of levels deep.

Operators and subscripts import the primitives that they apply when they are used: their modules also have
functions of arrays, and import this one.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import has_infinity, has_nan
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import brief, bytes_text
from ckpt_surgery.functions.base import Function, Number


@frozen(eq=False)
class Read:
    """The stored value of a leaf of a source, or of the target (then `source` is `"target"`)."""

    source: str
    leaf: Leaf
    height: ClassVar[int] = 0

    @property
    def spec(self) -> ArraySpec:
        assert self.leaf.spec is not None, "strings and empty nodes have no array"
        return self.leaf.spec

    @property
    def kinds(self) -> frozenset[LeafKind]:
        return _ONE_KIND[self.leaf.kind]


_ONE_KIND = {kind: frozenset([kind]) for kind in LeafKind}  # shared: leaves and their values are many


@dataclass(frozen=True, eq=False)
class Apply:
    """A function applied to other nodes."""

    function: Function
    inputs: tuple["Node", ...] = field(repr=False)  # as text, a graph can have as many parts as it has paths
    height: int = field(init=False, repr=False)
    """The largest number of functions between the node and a leaf, itself included. A node is higher than
    all nodes that it is computed from."""
    kinds: frozenset[LeafKind] = field(init=False, repr=False)
    """The kinds of all leaves that it is computed from."""

    __repr__ = brief

    def __post_init__(self) -> None:
        inputs = self.inputs
        if len(inputs) == 1:
            height, kinds = inputs[0].height, inputs[0].kinds
        else:
            height = max([node.height for node in inputs], default=0)
            kinds = frozenset[LeafKind]().union(*{node.kinds for node in inputs})
        self.__dict__["height"] = height + 1
        self.__dict__["kinds"] = kinds

    @cached_property
    def spec(self) -> ArraySpec:
        """Raises FunctionError if the inputs do not fit the function, and for an array that is too large."""
        if any(isinstance(node, Apply) and "spec" not in vars(node) for node in self.inputs):
            for node in inputs_first(self.inputs):
                _ = node.spec  # from below, so that none calls itself at each level
        spec = self.function.infer([node.spec for node in self.inputs])
        check_size(self.function.called(), spec, self._bytes_read)
        return spec

    def _bytes_read(self) -> int:
        return sum(read.spec.nbytes for read in reads(self) if read.leaf.spec is not None)

    @cached_property
    def streamed(self) -> bool:
        """Whether the whole value is computed once, in a stream of blocks of its input."""
        is_stream = type(self.function).stream is not Function.stream
        return is_stream and self.function.stream([node.spec for node in self.inputs]) is not None

    @cached_property
    def weight(self) -> int:
        """The number of inputs, and of indices in the function's fields, with 1 for the function itself."""
        fields = vars(self.function).values()
        return 1 + len(self.inputs) + sum([len(value) for value in fields if type(value) is tuple])


Node = Read | Apply


def _operator(symbol: str, reflected: bool = False) -> Callable[["Array", Any], Any]:
    """The method for an operator, where the array is on its left, or (`reflected`) on its right."""

    def operator(x: "Array", other: Any) -> Any:
        if not isinstance(other, Array | Number):
            return NotImplemented
        return binary(symbol, other, x) if reflected else binary(symbol, x, other)

    return operator


def _unary_operator(name: str) -> Callable[["Array"], "Array"]:
    def operator(x: "Array") -> "Array":
        from ckpt_surgery.functions.operators import Unary

        return apply(Unary(name), x)

    return operator


@frozen(eq=False)
class Array:
    """An array as a value of expressions: its node, and its declared dtype.

    It has the operators, subscripts and attributes that arrays have in expressions, all of them lazy: no
    element is read. They raise FunctionError for shapes and dtypes that do not fit. The dtype of the node is
    wider while narrow floats are computed in float32 (`Function.declared_dtype`).
    """

    node: Node
    dtype: np.dtype[Any]

    __add__, __radd__ = _operator("+"), _operator("+", True)
    __sub__, __rsub__ = _operator("-"), _operator("-", True)
    __mul__, __rmul__ = _operator("*"), _operator("*", True)
    __truediv__, __rtruediv__ = _operator("/"), _operator("/", True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", True)
    __mod__, __rmod__ = _operator("%"), _operator("%", True)
    __pow__, __rpow__ = _operator("**"), _operator("**", True)
    __and__, __rand__ = _operator("&"), _operator("&", True)
    __or__, __ror__ = _operator("|"), _operator("|", True)
    __matmul__, __rmatmul__ = _operator("@"), _operator("@", True)
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __eq__, __ne__ = _operator("=="), _operator("!=")
    __hash__ = object.__hash__
    __iter__ = None  # else Python would ask for x[0], x[1] and so on
    __array_ufunc__ = None  # so that NumPy's numbers leave operators to it

    __neg__, __invert__ = _unary_operator("neg"), _unary_operator("not")

    def __pos__(self) -> "Array":
        return self

    def __getitem__(self, index: Any) -> "Array":
        from ckpt_surgery.functions.indexing import Index

        items = index if isinstance(index, tuple) else (index,)
        plain = tuple((i.start, i.stop, i.step) if isinstance(i, slice) else i for i in items)
        return apply(Index(plain), self)

    def __bool__(self) -> bool:
        message = f"an array {self.spec} is neither true nor false"
        raise FunctionError(message, hint="For conditions on elements, use where(…), `&` and `|`.")

    @property
    def spec(self) -> ArraySpec:
        """Shape, and declared dtype."""
        return ArraySpec(self.node.spec.shape, self.dtype)

    @property
    def shape(self) -> Shape:
        return self.node.spec.shape

    @property
    def ndim(self) -> int:
        return self.node.spec.ndim

    @property
    def size(self) -> int:
        return self.node.spec.size

    @property
    def T(self) -> "Array":
        """The array with its axes in reverse order."""
        from ckpt_surgery.functions.layout import Transpose

        return apply(Transpose(), self)

    def rounded_to_declared(self) -> Node:
        """The node, rounded to the declared dtype if it is computed in a wider one.

        Numbers out of its range become what IEEE 754 says, which `evaluating.Evaluator` refuses in results.
        """
        return self._rounded("inf" if has_nan(self.dtype) or has_infinity(self.dtype) else "error")

    def exact(self) -> Node:
        """The same, where numbers out of range are an error, unless `allow_nonfinite` gave them."""
        from ckpt_surgery.functions.nonfinite import AllowNonfinite

        permits = isinstance(self.node, Apply) and isinstance(self.node.function, AllowNonfinite)
        return self.rounded_to_declared() if permits else self._rounded("error")

    def _rounded(self, on_overflow: str) -> Node:
        if self.node.spec.dtype == self.dtype:
            return self.node
        from ckpt_surgery.functions.dtypes import Rounded

        return Apply(Rounded(self.dtype, on_overflow), (self.node,))


@dataclass(frozen=True, eq=False)
class Series:
    """The value of `xs`: the leaves that one rule sends to one key, in order."""

    items: tuple[Array, ...]
    places: tuple[int, ...] | None  # Place of each item, ascending, if `by` gave integers; otherwise None


def require_no_gaps(series: Series) -> tuple[Array, ...]:
    """The arrays of a series. Raises FunctionError if `by` leaves a gap between their places."""
    if series.places is None or series.places == tuple(range(len(series.items))):
        return series.items
    missing = next(i for i, place in enumerate((*series.places, -1)) if i != place)
    more = f", … {series.places[-1]}" if len(series.places) > 8 else ""
    message = f"no leaf is at place {missing}; `by` gives {', '.join(map(str, series.places[:8]))}{more}"
    raise FunctionError(message, hint="If that is intended, say what fills the gaps: stack(xs, fill=0.0).")


def apply(function: Function, *inputs: Array) -> Array:
    """The lazy array of a function of arrays. Raises FunctionError if their shapes or dtypes do not fit."""
    nodes = tuple(array.exact() if function.exact_inputs else array.node for array in inputs)
    node = Apply(function, nodes)
    spec, dtypes = node.spec, [array.dtype for array in inputs]
    if dtypes != [child.spec.dtype for child in nodes]:
        spec = function.infer([array.spec for array in inputs])
    return Array(node, function.declared_dtype(spec.dtype, dtypes))


def binary(symbol: str, left: Array | Number, right: Array | Number) -> Array:
    """`left symbol right` of arrays, or of an array and a number. Raises FunctionError as `apply` does."""
    inputs = [side for side in (left, right) if isinstance(side, Array)]
    if symbol == "@":
        if len(inputs) < 2:
            raise FunctionError("`@` takes two arrays, not a number")
        from ckpt_surgery.functions.contractions import matmul

        return matmul(*inputs)
    from ckpt_surgery.functions.operators import Binary

    numbers = [None if isinstance(side, Array) else side for side in (left, right)]
    return apply(Binary(symbol, *numbers), *inputs)


def reads(node: Node, seen: set[int] | None = None) -> list[Read]:
    """Reads that a value is computed from, each once, depth first. `seen`: see `nodes_of`."""
    if seen is None:
        while isinstance(node, Apply) and len(node.inputs) == 1:
            (node,) = node.inputs  # nearly all values are one chain
        if isinstance(node, Read):
            return [node]
    return [each for each in nodes_of(node, set() if seen is None else seen) if isinstance(each, Read)]


def nodes_of(root: Node, seen: set[int], ends: Container[int] = ()) -> list[Node]:
    """Nodes that a value is computed from and its own, each once, depth first.

    `seen`: identities of nodes to leave out with all below them; those that are visited are added to it.
    `ends`: identities of nodes below which nothing is visited.
    """
    nodes: list[Node] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            nodes.append(node)
            if isinstance(node, Apply) and id(node) not in ends:
                stack += node.inputs[::-1]
    return nodes


def inputs_first(nodes: Iterable[Node]) -> Iterator[Apply]:
    """Functions of several values, each once and after its inputs."""
    return below_first(_functions(nodes), lambda node: _functions(node.inputs))


def _functions(nodes: Iterable[Node]) -> list[Apply]:
    return [node for node in nodes if isinstance(node, Apply)]


T = TypeVar("T", bound=Hashable)


def below_first(roots: Sequence[T], below: Callable[[T], Sequence[T]]) -> Iterator[T]:
    """Items, each once and after all that `below` names for it: depth first, from the first root on."""
    done: set[T] = set()
    stack = list(reversed(roots))
    while stack:
        item = stack.pop()
        if item in done:
            continue
        waiting = [other for other in below(item) if other not in done]
        if waiting:
            stack.append(item)
            stack += reversed(waiting)
        else:
            done.add(item)
            yield item


MOST_BYTES = 1 << 40
"""Bytes above which an array must not have more than MOST_GROWTH times the bytes of its leaves."""
MOST_GROWTH = 16  # So that stacks of large arrays, and casts of those, may be of any size
MOST_AXES = 32  # Limit on the number of axes: what NumPy and TensorStore hold
LONGEST = 2**63 - 1  # Limit on the length of an axis, and on the bytes of an array


def check_axes(name: str, count: int) -> None:
    """Raises FunctionError if the function `name` is given, or would give, too many axes."""
    if count > MOST_AXES:
        raise FunctionError(f"`{name}`: {count:,} axes; the limit is {MOST_AXES}")


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` as a number from 0 to `ndim - 1`. Raises FunctionError if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise FunctionError(f"`{name}`: there is no axis {axis} in an array of {ndim} axes")
    return axis % ndim


def axes_of(axes: int | tuple[int, ...] | None, ndim: int, name: str) -> tuple[int, ...]:
    """One axis, several, or all (None), each as a number from 0 to `ndim - 1`, in the order given.

    Raises FunctionError if there is no such axis, or if one is given twice.
    """
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, tuple) else (axes,)
    check_axes(name, len(given))
    numbers = tuple(axis_of(axis, ndim, name) for axis in given)
    if len(set(numbers)) < len(numbers):
        raise FunctionError(f"`{name}`: an axis is given twice in {given}")
    return numbers


def check_alike(name: str, ins: Sequence[ArraySpec]) -> None:
    """Raises FunctionError if the arrays of a list, of the function `name`, have different shapes."""
    for i, spec in enumerate(ins):
        if spec.shape != ins[0].shape:
            message = f"array 0 is {ins[0]}, array {i} is {spec}; shapes have to be equal"
            raise FunctionError(f"`{name}`: {message}")


def broadcasts_to(shape: Shape, wanted: Shape) -> bool:
    """Whether an array of a shape broadcasts to the wanted one."""
    tail = wanted[len(wanted) - len(shape) :]
    return len(shape) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def check_size(name: str, spec: ArraySpec, bytes_read: Callable[[], int]) -> None:
    """Raises FunctionError if the result of the function `name` is too large to be computed or stored.

    `spec`: shape and dtype of the result. `bytes_read`: gives the bytes of all leaves that it is made of.
    """
    check_axes(name, spec.ndim)
    longest = max(spec.shape, default=0)
    if longest > LONGEST:
        length = f"2^{longest.bit_length() - 1} or more"
        raise FunctionError(f"`{name}` would make an axis of {length} elements; the limit is 2^63 - 1")
    nbytes = spec.nbytes
    if nbytes > MOST_BYTES and nbytes > min(MOST_GROWTH * (given := bytes_read()), LONGEST):
        size = bytes_text(nbytes) if nbytes <= LONGEST else f"2^{nbytes.bit_length() - 1} bytes"
        limit = f"{bytes_text(MOST_BYTES)}, or {MOST_GROWTH} times the leaves that it is made of"
        message = f"`{name}` would make {spec}, {size} out of {bytes_text(given)}; the limit is {limit}"
        raise FunctionError(message)
