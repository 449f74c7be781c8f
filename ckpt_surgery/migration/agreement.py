"""Compare an expression with the function that it was traced from, on arrays that the function may get."""

import ast
import enum
import functools
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import Interrupted, SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Leaves, Scope
from ckpt_surgery.migration.originals import Original

SHAPES = ((4, 6), (4, 4), (6,), (2, 4, 6), (2, 3, 4, 6), ())
"""Shapes for a function without known inputs."""
DTYPES = ("float32", "float64", "int64", "int32", "float16", "bfloat16")
"""Dtypes with which such a function is tried, in a shape that it works on."""
EITHER = ("int32", "bfloat16")
"""Dtypes whose sums and quotients have other dtypes in NumPy than in JAX."""
MOST_ELEMENTS = 1 << 22
"""Limit on the elements of a sample whose shape follows from the numbers in an expression."""


def drawn(specs: Mapping[str, ArraySpec], seed: int) -> dict[str, np.ndarray]:
    """Draw random values without 0 for each spec: positive and negative ones, if the dtype has both."""
    arrays = {}
    for number, (text, spec) in enumerate(specs.items(), seed):
        random = np.random.default_rng(number)
        choices = {"b": [0, 1], "u": [*range(1, 7)], "i": [*range(-6, 0), *range(1, 7)]}.get(spec.dtype.kind)
        values = random.choice(choices, spec.shape) if choices else random.normal(size=spec.shape) * 2
        arrays[text] = np.asarray(values).astype(spec.dtype)
    return arrays


def as_jax(array: np.ndarray) -> Any:
    """Convert to an array of JAX with the same values."""
    import jax.numpy as jnp

    return jnp.asarray(array)


def _shapes_of_numbers(expression: str) -> Iterator[tuple[int, ...]]:
    """Yield shapes that are large enough for an expression's indices, and fit its reshapes."""
    tree = ast.parse(expression, mode="eval")
    numbers = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    largest = max(numbers, default=0)
    if 1 < largest <= MOST_ELEMENTS // 8:
        yield from ((2 * largest,), (3, 2 * largest), (2 * largest, 3))
    if 1 < largest <= 1024:
        yield largest + 1, largest + 1
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            lengths = [n.value for n in node.elts if isinstance(n, ast.Constant) and type(n.value) is int]
            size = math.prod(lengths)
            if 0 < size <= MOST_ELEMENTS // 2:
                yield from ((size,), (2 * size,))


SOURCE = "source"
X = "x"


class Verdict(enum.Enum):
    SAME = "the same result"
    DIFFERENT = "another result"
    FAILS = "the function fails, so that nothing is known"
    UNSAID = "the expression fails, or has the same values in 64 bits, of which JAX makes 32"


class Samples(Leaves):
    """Arrays by key."""

    name = SOURCE

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays

    def lookup(self, text: str) -> Array | None:
        array = self.arrays.get(text)
        return None if array is None else lazy(text, array)

    def kind(self, text: str) -> str | None:
        return LeafKind.ARRAY.value

    def keys(self) -> Collection[str]:
        return self.arrays.keys()


def lazy(text: str, array: np.ndarray) -> Array:
    """Wrap an array as expressions see a leaf."""
    leaf = Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype))
    return Array(Read(SOURCE, leaf), array.dtype)


def verdict(
    expression: str, function: Callable[[], Any], arrays: Mapping[str, np.ndarray], key: str = ""
) -> Verdict:
    """Compare an expression with a call. `arrays`: leaves of `source`, and `x`. `key`: its value there."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function()
            wanted = np.asarray(result)
    except (Interrupted, MemoryError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit):  # noqa: BLE001  (whatever it does with values that are not for it)
        return Verdict.FAILS
    names: dict[str, Any] = {SOURCE: Samples(arrays), "key": key}
    if X in arrays:
        names[X] = lazy(X, arrays[X])
    try:
        value = parse(expression).evaluate(Scope(names, key))
        if wanted.dtype.kind in "OUS" or not isinstance(value, Array):
            return Verdict.UNSAID
        node = value.rounded_to_declared()
        whole = Region.whole(node.spec.shape)
        computed = evaluate(node, whole, lambda s, leaf, r: arrays[leaf.key.text][r.slices])
    except SurgeryError:
        return Verdict.UNSAID
    if _agree(computed, wanted):
        return Verdict.SAME
    is_wider = (computed.dtype.kind, wanted.dtype.itemsize) == (wanted.dtype.kind, 4)
    narrowed = is_wider and computed.dtype.itemsize == 8 and _agree(computed.astype(wanted.dtype), wanted)
    of_jax = not isinstance(result, np.ndarray | np.generic)
    return Verdict.UNSAID if narrowed and of_jax else Verdict.DIFFERENT


def _agree(computed: np.ndarray, wanted: np.ndarray) -> bool:
    if (computed.shape, computed.dtype) != (wanted.shape, wanted.dtype):
        return False
    if computed.dtype.kind in "biu" or not computed.size:
        return bool(np.array_equal(computed, wanted))
    kind = np.complex128 if computed.dtype.kind == "c" else np.float64
    a, b = computed.astype(kind), wanted.astype(kind)
    # 16 units in the last place of the largest value: sums have no fixed order.
    units = 16 * float(ml_dtypes.finfo(computed.dtype).eps)  # type: ignore[no-untyped-call]
    near = float(np.max(np.abs(b), where=np.isfinite(b), initial=0.0)) * units
    return bool(np.allclose(a, b, rtol=0, atol=near, equal_nan=True))


SEEDS = (1, 2)
"""Seeds of two draws, which expose functions that are random or count their calls."""
SMALL = 1 << 18
"""Limit on the elements of sample arrays with the shapes of the original."""
LARGE = 1 << 24
"""The same limit for a function that fails on smaller arrays."""
MOST_LEAVES = 32
"""Limit on the leaves of the original, of different shapes and dtypes, that a function is tried on."""
Arrays = Mapping[str, np.ndarray]


def value_agrees(
    expression: str, function: Callable[[Any], Any], leaves: Sequence[str], original: Original | None
) -> bool:
    """True if an expression and a function of one array agree.

    They are compared on arrays like those leaves or, without any, on arrays of many kinds.
    """
    if original is None or not leaves:
        return _in_general(expression, lambda arrays: function(arrays[X]), [X], "")

    def compared(text: str) -> Verdict:
        call: Callable[[Arrays], Any] = lambda arrays: function(_as_held(original, text, arrays[X]))  # noqa: E731
        return _compared(expression, call, {X: original.spec(text)}, "")

    kinds = {(original.spec(t), original.number_at(t), original.on_devices(t)): t for t in leaves}
    smallest = sorted(kinds.values(), key=lambda text: original.spec(text).size)[:MOST_LEAVES]
    verdicts = set(map(compared, smallest))
    return Verdict.SAME in verdicts and verdicts <= {Verdict.SAME, Verdict.FAILS}


def tree_agrees(expression: str, function: Callable[[Any], Any], key: str, original: Original | None) -> bool:
    """True if a function of a tree agrees with its expression.

    They are compared on trees like the original, with zeros of NumPy as leaves that the expression does not
    read, or without one, on trees of similar leaves.
    """
    texts = list(_looked_up(expression, key))
    if original is None:
        return _in_general(expression, lambda arrays: function(_tree_of(arrays)), texts, key)
    numeric = original.numeric

    def call(arrays: Arrays) -> Any:
        values: dict[str, Any] = {text: _as_held(original, text, array) for text, array in arrays.items()}
        for text in numeric.keys() - arrays.keys():
            spec = original.spec(text)
            values[text] = original.given(text, np.broadcast_to(np.zeros((), spec.dtype), spec.shape))
        return function(original.rebuilt(values))

    specs = {text: original.spec(text) for text in texts if text in numeric}
    return _compared(expression, call, specs, key) is Verdict.SAME


def _as_held(original: Original, text: str, array: np.ndarray) -> Any:
    """Convert an array to what the original holds at this key; the function may change it."""
    return as_jax(array) if original.on_devices(text) else original.given(text, array.copy())


def _compared(text: str, call: Callable[[Arrays], Any], specs: Mapping[str, ArraySpec], key: str) -> Verdict:
    """Compare on two draws of leaves with these specs, or if they are large, of smaller ones that work."""
    size, result = sum(spec.size for spec in specs.values()), Verdict.FAILS
    # Of the same rank; axes of equal length stay equal, also across arrays.
    smaller = {
        text: ArraySpec(tuple(n if n < 16 else 4 + n % 13 for n in spec.shape), spec.dtype)
        for text, spec in specs.items()
    }
    attempts = [smaller] if size > SMALL else []
    for attempt in [*attempts, specs] if size <= LARGE else attempts:
        if result in (Verdict.FAILS, Verdict.UNSAID):
            draws = (drawn(attempt, seed) for seed in SEEDS)
            verdicts = (verdict(text, functools.partial(call, d), d, key) for d in draws)
            result = next((one for one in verdicts if one is not Verdict.SAME), Verdict.SAME)
    return result


def _in_general(
    expression: str, function: Callable[[Mapping[str, Any]], Any], texts: Sequence[str], key: str
) -> bool:
    """True if the results are equal wherever both exist, and both exist somewhere.

    `function` gets arrays by name, `texts`: of NumPy, and of JAX. With some dtypes these two compute
    differently, and the expression like one of them.
    """

    def compared(spec: ArraySpec, seed: int, jax: bool) -> set[Verdict]:
        arrays = drawn(dict.fromkeys(texts, spec), seed)
        forms: list[Mapping[str, Any]] = [{text: array.copy() for text, array in arrays.items()}]
        if jax:
            forms.append({text: as_jax(array) for text, array in arrays.items()})
        return {verdict(expression, functools.partial(function, form), arrays, key) for form in forms}

    shapes = dict.fromkeys((*SHAPES, *_shapes_of_numbers(expression)))
    float32 = np.dtype(np.float32)
    by_shape = {shape: compared(ArraySpec(shape, float32), SEEDS[0], jax=False) for shape in shapes}
    works = next((shape for shape, verdicts in by_shape.items() if Verdict.SAME in verdicts), None)
    if works is None or any(Verdict.DIFFERENT in verdicts for verdicts in by_shape.values()):
        return False
    for dtype in DTYPES:
        verdicts = compared(ArraySpec(works, dtype_named(dtype)), SEEDS[1], jax=dtype in ("float32", *EITHER))
        if Verdict.DIFFERENT in verdicts and not (Verdict.SAME in verdicts and dtype in EITHER):
            return False
    return True


def _looked_up(expression: str, key: str) -> Iterator[str]:
    """Yield the keys of the leaves that an expression reads, if `key` is the requested one."""
    for node in ast.walk(ast.parse(expression, mode="eval")):
        match node:
            case ast.Subscript(ast.Name("source"), ast.Constant(str(text))):
                yield text
            case ast.Subscript(ast.Name("source"), ast.Name("key")):
                yield key
            case ast.Subscript(ast.Name("source"), ast.JoinedStr([ast.Constant(str(text)), _])):
                yield text + key


class _ItemTree(dict[str, Any]):
    """A tree with its branches as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _tree_of(leaves: Mapping[str, Any]) -> _ItemTree:
    root = _ItemTree()
    for text, value in leaves.items():
        *branches, name = text.split("/")
        node = root
        for branch in branches:
            node = node.setdefault(branch, _ItemTree())
        node[name] = value
    return root
