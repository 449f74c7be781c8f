"""Compare an expression with the function that it was traced from, on arrays that the function may get."""

import ast
import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.migration.originals import Original
from ckpt_surgery.migration.samples import DTYPES, EITHER, OF_JAX, as_jax, drawn, shrunk, usual_specs
from ckpt_surgery.migration.verifying import Verdict, X, verdict

SEEDS = (1, 2)
"""Seeds of two draws, which expose functions that are random or count their calls."""
SMALL = 1 << 18
"""Limit on the elements of sample arrays with the shapes of the original."""
LARGE = 1 << 24
"""The same limit for a function that fails on smaller arrays."""
MOST_LEAVES = 32
"""Limit on the leaves of the original, of different shapes and dtypes, that a function is tried on."""


def holds_for(
    expression: str, function: Callable[[Any], Any], leaves: Sequence[str], original: Original | None
) -> bool:
    """True if an expression and a function of one array agree.

    They are compared on arrays like those leaves or, without any, on arrays of many kinds.
    """
    if not leaves or original is None:
        return _in_general(expression, lambda arrays: function(arrays[X]), [X], "")
    kinds: dict[Hashable, str] = {}
    for text in leaves:
        kind = _spec_of(original, text), original.number_at(text), original.on_devices(text)
        kinds.setdefault(kind, text)
    smallest = sorted(kinds.values(), key=lambda text: _spec_of(original, text).size)[:MOST_LEAVES]
    verdicts: set[Verdict] = set()
    for text in smallest:
        spec = _spec_of(original, text)
        call = functools.partial(_called_like, function, original, text)
        verdicts.update(_verdicts(expression, call, {X: spec if spec.size <= SMALL else shrunk(spec)}))
    return Verdict.SAME in verdicts and verdicts <= {Verdict.SAME, Verdict.FAILS}


def _called_like(
    function: Callable[[Any], Any], original: Original, text: str, arrays: Mapping[str, np.ndarray]
) -> Any:
    """Call a function of one array with what the original would have at this key."""
    return function(_as_held(original, text, arrays[X]))


def _as_held(original: Original, text: str, array: np.ndarray) -> Any:
    """Convert an array to what the original holds at this key; the function may change it."""
    return as_jax(array) if original.on_devices(text) else original.given(text, array.copy())


def _verdicts(
    expression: str,
    call: Callable[[Mapping[str, np.ndarray]], Any],
    specs: Mapping[str, ArraySpec],
    key: str = "",
) -> Iterator[Verdict]:
    """Compare on two draws of the leaves that the expression reads."""
    for seed in SEEDS:
        arrays = {text: drawn(spec, seed + i) for i, (text, spec) in enumerate(specs.items())}
        yield verdict(expression, functools.partial(call, arrays), arrays, key)


def agrees_in_general(expression: str, function: Callable[[Any], Any], key: str) -> bool:
    """True if a function of a tree agrees with its expression on trees of similar leaves."""
    texts = list(_looked_up(expression, key))
    return _in_general(expression, lambda arrays: function(_tree_of(arrays)), texts, key)


def _in_general(
    expression: str, function: Callable[[Mapping[str, Any]], Any], texts: Sequence[str], key: str
) -> bool:
    """True if the results are equal wherever both exist, and both exist somewhere.

    `function` gets arrays by name, `texts`: of NumPy, and of JAX. With some dtypes these two compute
    differently, and the expression like one of them.
    """

    def compared(spec: ArraySpec, seed: int, jax: bool) -> set[Verdict]:
        arrays = {text: drawn(spec, seed + i) for i, text in enumerate(texts)}
        forms: list[Mapping[str, Any]] = [{text: array.copy() for text, array in arrays.items()}]
        if jax:
            forms.append({text: as_jax(array) for text, array in arrays.items()})
        return {verdict(expression, functools.partial(function, form), arrays, key) for form in forms}

    by_spec = {spec: compared(spec, SEEDS[0], jax=False) for spec in usual_specs(expression)}
    works = next((spec for spec, verdicts in by_spec.items() if Verdict.SAME in verdicts), None)
    if works is None or any(Verdict.DIFFERENT in verdicts for verdicts in by_spec.values()):
        return False
    for dtype in DTYPES:
        verdicts = compared(ArraySpec(works.shape, dtype_named(dtype)), SEEDS[1], jax=dtype in OF_JAX)
        if Verdict.DIFFERENT in verdicts and not (Verdict.SAME in verdicts and dtype in EITHER):
            return False
    return True


def agrees_with(original: Original) -> Callable[[str, Callable[[Any], Any], str], bool]:
    """Make a comparison on leaves with the specs of the original's and random values.

    Leaves that the expression does not read are zeros of NumPy.
    """

    def agrees(expression: str, function: Callable[[Any], Any], key: str) -> bool:
        texts = [text for text in _looked_up(expression, key) if text in original.numeric]
        specs = {text: _spec_of(original, text) for text in texts}
        size = sum(spec.size for spec in specs.values())

        def call(arrays: Mapping[str, np.ndarray]) -> Any:
            others = original.numeric.keys() - arrays.keys()
            values = {text: original.given(text, _zeros(_spec_of(original, text))) for text in others}
            values |= {text: _as_held(original, text, array) for text, array in arrays.items()}
            return function(original.rebuilt(values))

        def compared(specs: Mapping[str, ArraySpec]) -> Verdict:
            verdicts = _verdicts(expression, call, specs, key)
            return next((one for one in verdicts if one is not Verdict.SAME), Verdict.SAME)

        result = Verdict.FAILS
        if size > SMALL:
            result = compared({text: shrunk(spec) for text, spec in specs.items()})
        if result in (Verdict.FAILS, Verdict.UNSAID) and size <= LARGE:
            result = compared(specs)
        return result is Verdict.SAME

    return agrees


def _spec_of(original: Original, text: str) -> ArraySpec:
    spec = original.leaves[text].spec
    assert spec is not None
    return spec


def _zeros(spec: ArraySpec) -> np.ndarray:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def _looked_up(expression: str, key: str) -> Iterator[str]:
    """Yield the keys of the leaves that an expression reads, if `key` is the requested one."""
    for node in ast.walk(ast.parse(expression, mode="eval")):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "source":
            match node.slice:
                case ast.Constant(str(text)):
                    yield text
                case ast.Name("key"):
                    yield key
                case ast.JoinedStr([ast.Constant(str(text)), _]):
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
            child = node.setdefault(branch, _ItemTree())
            node = child if isinstance(child, _ItemTree) else _ItemTree()
        node[name] = value
    return root
