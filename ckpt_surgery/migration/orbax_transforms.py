"""Translate transforms of Orbax's `apply_transformations` to a recipe.

Functions without an expression become hooks: they get whole arrays, and their results become arrays.
"""

import ast
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import Interrupted, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions.parsing import MAX_TEXT
from ckpt_surgery.live.tree import key_of
from ckpt_surgery.migration.agreement import X, as_jax, tree_agrees, value_agrees
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.numpy_calls import FUNCTIONS
from ckpt_surgery.migration.originals import Original
from ckpt_surgery.migration.recipes import AddedHooks, MigratedRecipe
from ckpt_surgery.migration.replacing import replaced
from ckpt_surgery.migration.standins import Branch, Recorder, RequestedKey, Traced, Untraceable
from ckpt_surgery.migration.transforming import NamedTransform, read_transforms

CALLED_TO_INFER = 1 << 20
"""Limit on the elements of all arguments for a trial call with ones, which shows the result's spec."""

Form = Callable[[np.ndarray], Any]


def form_for(function: Callable[..., Any]) -> Form:
    """Find the first form of arrays that a function accepts: unchanged, writable, or of JAX.

    A function that takes none of them gets them as they are, and says why it fails.
    """
    forms: tuple[Form, ...] = (np.asarray, np.array, as_jax)
    sample = np.ones((4, 4), np.float32)
    sample.flags.writeable = False
    for form in forms:
        with suppress(Exception):  # whatever a function does with what is not for it
            np.asarray(function(form(sample)))
            return form
    return np.asarray


class TransformHook:
    """A function of a transform as a hook: `hooks.name(x)`, or `hooks.name(key, …)` with several leaves."""

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any]):
        """`call`: calls the function with what it takes in place of arrays of NumPy."""
        self.made_of = function
        self._call = call

    def __call__(self, *arguments: Any) -> np.ndarray:
        return np.asarray(self._call(*arguments))

    def infer(self, *arguments: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the result, from the key, if there is one, and from those of the arrays."""
        key = [argument for argument in arguments if isinstance(argument, str)]
        return inferred(functools.partial(self, *key), arguments[len(key) :])


def inferred(call: Callable[..., Any], specs: Sequence[ArraySpec]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the function's result for arrays of these specs.

    It is called on ones if they are small; else JAX traces it, or it is called after all.
    """
    is_narrow = all(spec.dtype.itemsize <= 4 for spec in specs)  # JAX narrows 64 bits
    if is_narrow and sum(spec.size for spec in specs) > CALLED_TO_INFER:
        import jax

        with suppress(Exception):  # NumPy's functions, branches on values, …: then it has to be called
            abstract = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in specs]  # type: ignore[no-untyped-call]
            result = jax.eval_shape(call, *abstract)
            return tuple(result.shape), np.dtype(result.dtype)
    ones = [np.broadcast_to(np.ones((), spec.dtype), spec.shape) for spec in specs]
    with np.errstate(all="ignore"):
        array = np.asarray(call(*ones))
    return array.shape, array.dtype


def trace(function: Any, arguments: Sequence[Any], recorder: Recorder) -> str:
    """Write the function's result for stand-ins as an expression. Raises Untraceable if there is none."""
    function = inspect.unwrap(function, stop=lambda f: isinstance(f, FunctionType))  # from `jax.jit`
    try:
        with replaced(function):
            result = function(*arguments)
    except (Interrupted, MemoryError, KeyboardInterrupt, Untraceable):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it does with what is no array)
        said = f": {error}" if str(error) else ""
        raise Untraceable(recorder.flaw or f"it raises {type(error).__name__}{said}") from None
    if recorder.flaw is not None:  # which the function has hidden
        raise Untraceable(recorder.flaw)
    if not isinstance(result, Traced):
        raise Untraceable(f"it gives {type(result).__name__} that does not come from an array")
    return ast.unparse(result._node)


def _value_of_leaf(transform: NamedTransform, original: Original | None, hooks: AddedHooks) -> str | None:
    """Write a `value_fn` as the `value` of a rule; None if the function returns its argument."""
    function, key = transform.given.value_fn, transform.given.original_key
    # Leaves of the original that the rule can take; none if that depends on the new tree's keys.
    numeric = {} if original is None else original.numeric
    if key is None:
        leaves = [text for text in numeric if re.fullmatch(transform.pattern, text)]
    else:
        leaves = [key] if key in numeric else []
    recorder = Recorder(FUNCTIONS)
    with suppress(Untraceable):
        expression = trace(function, [Traced(ast.Name(X), recorder)], recorder)
        if len(expression) <= MAX_TEXT and value_agrees(expression, function, leaves, original):
            return None if expression == X else expression
    is_number = original is not None and leaves and all(map(original.number_at, leaves))
    form: Form = (lambda array: array.item()) if is_number else form_for(function)
    return f"hooks.{hooks.added(TransformHook(function, lambda x: function(form(x))))}(x)"


def _value_of_tree(transform: NamedTransform, original: Original | None, hooks: AddedHooks) -> str:
    """Write a `multi_value_fn` as the `value` of a rule.

    Raises UsageError if the original has to be known, and for a function of too many leaves.
    """
    function, pattern = transform.given.multi_value_fn, transform.pattern
    # A RestoreTransform's function gets restore arguments, which have their defaults.
    defaults = SimpleNamespace(restore_type=None, dtype=None, sharding=None, global_shape=None)
    extra = (defaults,) if hasattr(transform.given, INPUTS) else ()
    recorder = Recorder(FUNCTIONS)
    key = literal(pattern)
    if original is None:
        tree: Any = Branch((), recorder)
    else:
        nodes = {k: ast.Subscript(ast.Name("source"), ast.Constant(k)) for k in original.numeric}
        tree = original.rebuilt({k: Traced(node, recorder) for k, node in nodes.items()})
    try:
        expression = trace(function, [RequestedKey(recorder) if key is None else key, tree, *extra], recorder)
        asked = "key" if key is None else key
        called: Callable[[Any], Any] = lambda tree: function(asked, tree, *extra)  # noqa: E731
        if len(expression) <= MAX_TEXT and tree_agrees(expression, called, asked, original):
            return expression
        flaw = "what it does depends on more than the arrays that it is given"
    except Untraceable as error:
        flaw = str(error)
    if original is None:
        raise UsageError(
            f"the `multi_value_fn` of `{shown(pattern)}` cannot be written as an expression: {flaw}",
            hint="Give the tree or the checkpoint that it is applied to, `original=…`.",
        )
    # A hook is called with the leaves that the function may read.
    inputs = getattr(transform.given, INPUTS, None)
    keys = [k for k in original.numeric if inputs is None or any(re.fullmatch(text, k) for text in inputs)]

    def call(key: str, *arrays: np.ndarray) -> Any:
        given = {k: original.given(k, array) for k, array in zip(keys, arrays, strict=True)}
        return function(key, original.rebuilt(given), *extra)

    arguments = ["key", *(f"source[{ast.unparse(ast.Constant(k))}]" for k in keys)]
    text = f"hooks.{hooks.added(TransformHook(function, call))}({', '.join(arguments)})"
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"the `multi_value_fn` of `{shown(pattern)}` runs as a function of {len(keys)} leaves, which are "
            "too many for one expression",
            hint="Say which leaves it reads: RestoreTransform(multi_value_fn_input_args=…).",
        )
    return text


KIND = "kind(target[key])"
"""Expression for the kind of a leaf of the new tree. Orbax's transforms do not see empty nodes."""
INPUTS = "multi_value_fn_input_args"
"""Field of a RestoreTransform that a Transform lacks."""


def recipe_of_transforms(
    transforms: Any, default_to_original: bool, original: Original | None
) -> MigratedRecipe:
    """Make the recipe, as `ckpt_surgery.from_orbax_transforms` describes it.

    `original` is what is known of the tree that the transforms are applied to. Raises UsageError.
    """
    parsed = read_transforms(transforms, lambda path: key_of(path).text, "from_orbax_transforms")
    overlapping = any(literal(transform.pattern) is None for transform in parsed)
    if overlapping:
        # Of rules the first that matches wins, in Orbax the last one does, but one that falls back to the
        # new tree leaves what another one gave.
        parsed.reverse()
        parsed.sort(key=lambda t: bool(t.given.use_fallback and default_to_original))
    hooks = AddedHooks()
    rules = [_rule(transform, original, hooks, default_to_original) for transform in parsed]
    target = {"dtype": "source", "missing": "fallback"}
    before = []
    if not default_to_original:
        target = {"prefer": "target", "dtype": "source"}
    elif overlapping:
        before = [{"fill": ".*", "fallback": True, "when": f"{KIND} == 'empty'", "optional": True}]
    names = {n: f"transform `{shown(transform.key)}`" for n, transform in enumerate(parsed, len(before))}
    # Last, a `...` in the new tree gets the original's leaf at the same key, as in Orbax.
    both = {"fill": ".*", "when": "has(source[key]) and kind(source[key]) != 'empty'", "optional": True}
    rules = [*before, *rules, *([both] if default_to_original else [])]
    document = {"version": 1, "target": target} | ({"rules": rules} if rules else {})
    return MigratedRecipe(document, hooks.functions, names)


def _rule(
    transform: NamedTransform, original: Original | None, hooks: AddedHooks, default_to_original: bool
) -> dict[str, Any]:
    """Make the rule for one transform, with its fields in the usual order."""
    given, value = transform.given, None
    if given.value_fn is not None:
        value = _value_of_leaf(transform, original, hooks)
    elif given.multi_value_fn is not None:
        value = _value_of_tree(transform, original, hooks)
    is_pattern = literal(transform.pattern) is None
    rule = {
        "fill": transform.pattern,
        "from": transform.template,
        "fallback": True if given.use_fallback else None,
        "value": value,
        "when": f"{KIND} != 'empty'" if is_pattern and not default_to_original else None,
        "optional": True,
    }
    return {name: part for name, part in rule.items() if part is not None}
