"""`value_fn` and `multi_value_fn` of Orbax's transforms as expressions, or as hooks where none says them."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions import MAX_TEXT
from ckpt_surgery.migration.orbax_hooks import Hooks, TreeHook, ValueHook
from ckpt_surgery.migration.orbax_templates import literal
from ckpt_surgery.migration.originals import Original
from ckpt_surgery.migration.samples import OF_JAX, as_jax, drawn, shrunk, usual_specs
from ckpt_surgery.migration.standins import Branch, Recorder, Traced, Wanted, source_leaf
from ckpt_surgery.migration.tracing import Trace, trace
from ckpt_surgery.migration.verifying import Verdict, X, verdict

SEEDS = (1, 2)
"""Two draws: a function that is random, or that counts its calls, gives different results."""
SMALL = 1 << 18
"""Elements up to which sample arrays have the shapes of the original."""
LARGE = 1 << 24
"""Elements up to which they have them if the function works on no smaller ones."""
MOST_LEAVES = 32
"""Leaves of the original, of different shapes and dtypes, that a function is tried on."""
NO_RESTORE_ARGS = SimpleNamespace(restore_type=None, dtype=None, sharding=None, global_shape=None)
"""Third argument of a `multi_value_fn` of a RestoreTransform, whose defaults say nothing."""


@dataclass(frozen=True)
class Sample:
    """One array as a `value_fn` gets it."""

    array: np.ndarray
    number: bool = False
    on_devices: bool = False

    @property
    def given(self) -> Any:
        """What the function is called with."""
        return self.array.item() if self.number else as_jax(self.array) if self.on_devices else self.array


class Values:
    """Writes functions as expressions, and keeps those that remain functions."""

    def __init__(self, original: Original | None, hooks: Hooks):
        self._original = original
        self._hooks = hooks

    # --- functions of one value ---

    def of_one(self, function: Callable[[Any], Any], pattern: str, original_key: str | None) -> str | None:
        """The `value` of a rule for a `value_fn`; None where the function gives what it gets."""
        recorder = Recorder()
        found = trace(function, [Traced(ast.Name(X), recorder)], recorder).expression
        leaves = self._leaves_for(pattern, original_key)
        if (
            found is not None
            and len(found) <= MAX_TEXT
            and _holds_for(found, function, leaves, self._original)
        ):
            return None if found == X else found
        number = bool(leaves) and self._original is not None and all(map(self._original.number_at, leaves))
        hook = ValueHook(function, number, jax=_needs_jax(function))
        return f"hooks.{self._hooks.added(hook, function)}(x)"

    def _leaves_for(self, pattern: str, original_key: str | None) -> Sequence[str]:
        """The leaves of the original that the rule can take; none if that depends on the new tree's keys."""
        if self._original is None:
            return ()
        numeric = self._original.numeric
        if original_key is None:
            return [text for text in numeric if re.fullmatch(pattern, text)]
        return [original_key] if original_key in numeric else []

    # --- functions of the whole tree ---

    def of_tree(self, function: Callable[..., Any], pattern: str, extra: Sequence[Any], inputs: Any) -> str:
        """The `value` of a rule for a `multi_value_fn`.

        `extra`: arguments after the key and the tree. `inputs`: regular expressions for the keys of the
        leaves that the function reads, None if it does not say. Raises UsageError where the original has to
        be known.
        """
        recorder = Recorder()
        key = literal(pattern)
        original = self._original
        if original is None:
            tree: Any = Branch((), recorder)
        else:
            tree = original.rebuilt({text: source_leaf(text, recorder) for text in original.numeric})
        found = trace(function, [Wanted(recorder) if key is None else key, tree, *extra], recorder)
        if found.expression is not None and len(found.expression) <= MAX_TEXT:
            asked = "key" if key is None else key
            agrees = _agrees_in_general if original is None else _agrees_with(original)
            if agrees(found.expression, lambda tree: function(asked, tree, *extra), asked):
                return found.expression
            found = Trace(None, "what it does depends on more than the arrays that it is given")
        if original is None:
            about = f"the `multi_value_fn` of `{shown(pattern)}`"
            raise UsageError(
                f"{about} cannot be written as an expression: {found.flaw}",
                hint="Give the tree or the checkpoint that it is applied to, `original=…`.",
            )
        return self._of_leaves(function, pattern, extra, inputs, original)

    def _of_leaves(
        self,
        function: Callable[..., Any],
        pattern: str,
        extra: Sequence[Any],
        inputs: Any,
        original: Original,
    ) -> str:
        """The call of a hook with the leaves that the function may read."""
        wanted = None if inputs is None else [re.compile(text) for text in inputs]
        keys = [k for k in original.numeric if wanted is None or any(w.fullmatch(k) for w in wanted)]
        call = _Partial(function, extra)
        name = self._hooks.added(TreeHook(call, keys, original), function)
        text = f"hooks.{name}({', '.join(['key', *(_lookup(k) for k in keys)])})"
        if len(text) > MAX_TEXT:
            raise UsageError(
                f"the `multi_value_fn` of `{shown(pattern)}` runs as a function of {len(keys)} leaves, "
                "which are too many for one expression",
                hint="Say which leaves it reads: RestoreTransform(multi_value_fn_input_args=…).",
            )
        return text


@dataclass(frozen=True)
class _Partial:
    """A function of key and tree, with what it is given besides."""

    function: Callable[..., Any]
    extra: Sequence[Any]

    def __call__(self, key: str, tree: Any) -> Any:
        return self.function(key, tree, *self.extra)


def _lookup(key: str) -> str:
    return f"source[{ast.unparse(ast.Constant(key))}]"


# --- comparing an expression with its function ---


def _holds_for(
    expression: str, function: Callable[[Any], Any], leaves: Sequence[str], original: Original | None
) -> bool:
    """Whether expression and function agree: on the leaves that are known, or else on usual arrays."""
    if not leaves or original is None:
        return _agree(expression, function, _usual_samples(expression), strictly=False)
    return _agree(expression, function, _samples_like(leaves, original), strictly=True)


def _agree(
    expression: str, function: Callable[[Any], Any], samples: Iterator[Sample], strictly: bool
) -> bool:
    """Whether the results are the same, somewhere at least.

    `strictly`: the samples are what the function is called with, so that the expression has to work there.
    """
    same = False
    for sample in samples:
        found = verdict(expression, lambda: function(sample.given), {X: sample.array})  # noqa: B023
        if found is Verdict.DIFFERENT and not _narrowed(function, sample):
            return False
        if found is Verdict.UNSAID and strictly:
            return False
        same = same or found is Verdict.SAME
    return same


def _narrowed(function: Callable[[Any], Any], sample: Sample) -> bool:
    """Whether a function of JAX made 32 bits of 64, which it does to every array of NumPy."""
    if sample.array.dtype.itemsize < 8 or sample.array.dtype.kind not in "iuf":
        return False
    import jax

    return isinstance(function(sample.given), jax.Array)


def _usual_samples(expression: str) -> Iterator[Sample]:
    for seed in SEEDS:
        for spec in usual_specs(expression):
            array = drawn(spec, seed)
            if spec.dtype.name not in OF_JAX:
                yield Sample(array)
            if spec.dtype.itemsize < 8:
                yield Sample(array, on_devices=True)


def _samples_like(leaves: Sequence[str], original: Original) -> Iterator[Sample]:
    """Samples with the shapes and dtypes of these leaves, each once; smaller ones for large leaves."""
    known = {}
    for text in leaves:
        spec = original.leaves[text].spec
        assert spec is not None
        known[spec, original.number_at(text), original.on_devices(text)] = None
    smallest = sorted(known, key=lambda kind: kind[0].size)[:MOST_LEAVES]
    for spec, number, on_devices in smallest:
        for seed in SEEDS:
            yield Sample(drawn(spec if spec.size <= SMALL else shrunk(spec), seed), number, on_devices)


def _agrees_in_general(expression: str, function: Callable[[Any], Any], key: str) -> bool:
    """Whether a function of a tree agrees with its expression where all leaves are alike."""
    texts = list(_looked_up(expression, key))
    same = False
    for seed in SEEDS:
        for spec in usual_specs(expression):
            arrays = {text: drawn(spec, seed + i) for i, text in enumerate(texts)}
            on_devices = spec.dtype.name in OF_JAX
            tree = _tree_of({k: as_jax(a) if on_devices else a for k, a in arrays.items()})
            found = verdict(expression, lambda: function(tree), arrays, key)  # noqa: B023
            if found is Verdict.DIFFERENT and spec.dtype.itemsize < 8:
                return False
            same = same or found is Verdict.SAME
    return same


def _agrees_with(original: Original) -> Callable[[str, Callable[[Any], Any], str], bool]:
    """Compares where the leaves are those of the original, with other values."""

    def agrees(expression: str, function: Callable[[Any], Any], key: str) -> bool:
        texts = [text for text in _looked_up(expression, key) if text in original.numeric]
        specs = {text: _spec_of(original, text) for text in texts}
        size = sum(spec.size for spec in specs.values())
        found = Verdict.FAILS
        if size > SMALL:
            found = _compared(expression, function, key, original, {t: shrunk(s) for t, s in specs.items()})
        if found in (Verdict.FAILS, Verdict.UNSAID) and size <= LARGE:
            found = _compared(expression, function, key, original, specs)
        return found is Verdict.SAME

    return agrees


def _spec_of(original: Original, text: str) -> ArraySpec:
    spec = original.leaves[text].spec
    assert spec is not None
    return spec


def _compared(
    expression: str,
    function: Callable[[Any], Any],
    key: str,
    original: Original,
    specs: Mapping[str, ArraySpec],
) -> Verdict:
    """The verdict on two draws of the leaves that the expression reads. All other leaves are zeros."""
    zeros = {t: _zeros(_spec_of(original, t)) for t in original.numeric}
    found = Verdict.FAILS
    for seed in SEEDS:
        arrays = {text: drawn(spec, seed + i) for i, (text, spec) in enumerate(specs.items())}
        values = {
            text: as_jax(array) if original.on_devices(text) else original.given(text, array)
            for text, array in {**zeros, **arrays}.items()
        }
        tree = original.rebuilt(values)
        found = verdict(expression, lambda: function(tree), arrays, key)  # noqa: B023
        if found is not Verdict.SAME:
            return found
    return found


def _zeros(spec: ArraySpec) -> np.ndarray:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def _looked_up(expression: str, key: str) -> Iterator[str]:
    """The keys of the leaves that an expression reads, where `key` is the key that is asked for."""
    for node in ast.walk(ast.parse(expression, mode="eval")):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "source":
            match node.slice:
                case ast.Constant(str(text)):
                    yield text
                case ast.Name("key"):
                    yield key
                case ast.JoinedStr([ast.Constant(str(text)), _]):
                    yield text + key


class _Tree(dict[str, Any]):
    """A tree that gives its branches as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _tree_of(leaves: Mapping[str, Any]) -> _Tree:
    root = _Tree()
    for text, value in leaves.items():
        *branches, name = text.split("/")
        node = root
        for branch in branches:
            found = node.setdefault(branch, _Tree())
            node = found if isinstance(found, _Tree) else _Tree()
        node[name] = value
    return root


def _needs_jax(function: Callable[[Any], Any]) -> bool:
    """Whether a function takes arrays of JAX and none of NumPy, as `x.at[0].set(…)` does."""
    array = np.ones((4, 4), np.float32)
    return _works(function, as_jax(array)) and not _works(function, array)


def _works(function: Callable[[Any], Any], value: Any) -> bool:
    try:
        np.asarray(function(value))
    except Exception:  # noqa: BLE001  (whatever a function does with what is not for it)
        return False
    return True
