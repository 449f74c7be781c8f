"""Translate transforms of Orbax's `apply_transformations` to a recipe.

Functions without an expression become hooks: they get whole arrays, and their results become arrays.
"""

import ast
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import Interrupted, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions.parsing import MAX_TEXT
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.migration.agreement import X, agrees_in_general, agrees_with, as_jax, holds_for
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.numpy_calls import NumpyRecorder
from ckpt_surgery.migration.originals import Original, original_of_tree
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.replacing import replaced
from ckpt_surgery.migration.standins import Branch, Recorder, RequestedKey, Traced, Untraceable
from ckpt_surgery.migration.transforming import NamedTransform, read_transforms

CALLED_TO_INFER = 1 << 20
"""Limit on the elements of all arguments for a trial call with ones, which shows the result's spec."""

ValueFunction = Callable[..., Any]
Form = Callable[[np.ndarray], Any]


def form_for(function: ValueFunction) -> Form:
    """Find the first form of arrays that a function accepts: unchanged, writable, or of JAX.

    A function that takes none of them gets them as they are, and says why it fails.
    """
    forms: tuple[Form, ...] = (np.asarray, np.array, as_jax)
    sample = np.ones((4, 4), np.float32)
    sample.flags.writeable = False
    return next((form for form in forms if _works(function, form(sample))), forms[0])


def _works(function: ValueFunction, value: Any) -> bool:
    try:
        np.asarray(function(value))
    except Exception:  # noqa: BLE001  (whatever a function does with what is not for it)
        return False
    return True


class TransformHook:
    """A function of a transform as a hook: `hooks.name(x)`, or `hooks.name(key, …)` with several leaves."""

    def __init__(self, function: ValueFunction, call: Callable[..., Any]):
        """`call`: calls the function with what it takes in place of arrays of NumPy."""
        self.made_of = function
        self._call = call

    def __call__(self, *arguments: Any) -> np.ndarray:
        return np.asarray(self._call(*arguments))

    def infer(self, *arguments: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the result, from the key, if there is one, and from those of the arrays."""
        key = [argument for argument in arguments if isinstance(argument, str)]
        return inferred(functools.partial(self, *key), arguments[len(key) :])


def inferred(
    function: Callable[..., Any], specs: Sequence[ArraySpec]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the function's result for arrays of these specs.

    It is called on ones if they are small; else JAX traces it, or it is called after all.
    """
    if sum(spec.size for spec in specs) > CALLED_TO_INFER:
        traced = _traced_by_jax(function, specs)
        if traced is not None:
            return traced
    ones = [np.broadcast_to(np.ones((), spec.dtype), spec.shape) for spec in specs]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*ones))
    return result.shape, result.dtype


def _traced_by_jax(
    function: Callable[..., Any], specs: Sequence[ArraySpec]
) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype by tracing; None if JAX cannot trace the function, or narrows 64 bits."""
    import jax

    if any(spec.dtype.itemsize > 4 for spec in specs):
        return None
    try:
        abstract = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in specs]  # type: ignore[no-untyped-call]
        result = jax.eval_shape(function, *abstract)
        return tuple(result.shape), np.dtype(result.dtype)
    except Exception:  # noqa: BLE001  (NumPy's functions, branches on values, …: all mean that it has to be called)
        return None


class AddedHooks:
    """The hooks of a recipe by name, added on demand."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def added(self, hook: Any, function: Any) -> str:
        """Add a hook; returns its name in expressions, which is the function's if it has one."""
        wanted = re.sub(r"\W|^_+|^infer_", "", getattr(function, "__name__", ""), flags=re.ASCII)
        reserved = wanted == "lambda" or re.fullmatch(r"(constant|leaf)_\d+", wanted)
        name = base = wanted if wanted[:1].isalpha() and not reserved else "function"
        number = 1
        while name in self.functions:
            number += 1
            name = f"{base}_{number}"
        self.functions[name] = hook
        self.functions[f"infer_{name}"] = hook.infer
        return name


NO_RESTORE_ARGS = SimpleNamespace(restore_type=None, dtype=None, sharding=None, global_shape=None)
"""Third argument of a RestoreTransform's `multi_value_fn`: restore arguments with their defaults."""


@dataclass(frozen=True)
class Trace:
    """Outcome of a call of a function with stand-ins."""

    expression: str | None
    """The function's result as an expression; None if no expression can replace it."""
    flaw: str = ""
    """Reason why no expression can replace it: `it asks for values, by …`."""


def trace(function: Callable[..., Any], arguments: Sequence[Any], recorder: Recorder) -> Trace:
    """Call the function with stand-ins. An exception becomes the flaw."""
    function = _uncompiled(function)
    try:
        with replaced(function):
            result = function(*arguments)
    except (Interrupted, MemoryError, KeyboardInterrupt):
        raise
    except Untraceable as error:
        return Trace(None, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it does with what is no array)
        said = f": {error}" if str(error) else ""
        return Trace(None, recorder.flaw or f"it raises {type(error).__name__}{said}")
    if recorder.flaw is not None:  # which the function has hidden
        return Trace(None, recorder.flaw)
    if not isinstance(result, Traced):
        return Trace(None, f"it gives {type(result).__name__} that does not come from an array")
    return Trace(ast.unparse(ast.fix_missing_locations(ast.Expression(result._node))))


def _uncompiled(function: Any) -> Any:
    """Unwrap a function from `jax.jit`."""
    while not isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


class ValueWriter:
    """Writes functions as expressions, and keeps the others as hooks."""

    def __init__(self, original: Original | None, hooks: AddedHooks):
        self._original = original
        self._hooks = hooks

    # --- functions of one value ---

    def of_one(self, function: Callable[[Any], Any], pattern: str, original_key: str | None) -> str | None:
        """Write a `value_fn` as the `value` of a rule; None if the function returns its argument."""
        recorder = NumpyRecorder()
        expression = trace(function, [Traced(ast.Name(X), recorder)], recorder).expression
        # Leaves of the original that the rule can take; none if that depends on the new tree's keys.
        numeric = {} if self._original is None else self._original.numeric
        if original_key is None:
            leaves = [text for text in numeric if re.fullmatch(pattern, text)]
        else:
            leaves = [original_key] if original_key in numeric else []
        if (
            expression is not None
            and len(expression) <= MAX_TEXT
            and holds_for(expression, function, leaves, self._original)
        ):
            return None if expression == X else expression
        number = bool(leaves) and self._original is not None and all(map(self._original.number_at, leaves))
        form = (lambda array: array.item()) if number else form_for(function)
        hook = TransformHook(function, lambda x: function(form(x)))
        return f"hooks.{self._hooks.added(hook, function)}(x)"

    # --- functions of the whole tree ---

    def of_tree(self, function: Callable[..., Any], pattern: str, extra: Sequence[Any], inputs: Any) -> str:
        """Write a `multi_value_fn` as the `value` of a rule.

        `extra`: arguments after the key and the tree. `inputs`: regular expressions for the keys of the
        leaves that the function reads, None if it does not say. Raises UsageError if the original has to
        be known.
        """
        recorder = NumpyRecorder()
        key = literal(pattern)
        original = self._original
        if original is None:
            tree: Any = Branch((), recorder)
        else:
            nodes = {k: ast.Subscript(ast.Name("source"), ast.Constant(k)) for k in original.numeric}
            tree = original.rebuilt({k: Traced(node, recorder) for k, node in nodes.items()})
        traced = trace(function, [RequestedKey(recorder) if key is None else key, tree, *extra], recorder)
        if traced.expression is not None and len(traced.expression) <= MAX_TEXT:
            asked = "key" if key is None else key
            agrees = agrees_in_general if original is None else agrees_with(original)
            if agrees(traced.expression, lambda tree: function(asked, tree, *extra), asked):
                return traced.expression
            traced = Trace(None, "what it does depends on more than the arrays that it is given")
        if original is None:
            about = f"the `multi_value_fn` of `{shown(pattern)}`"
            raise UsageError(
                f"{about} cannot be written as an expression: {traced.flaw}",
                hint="Give the tree or the checkpoint that it is applied to, `original=…`.",
            )
        # A hook is called with the leaves that the function may read.
        wanted = None if inputs is None else [re.compile(text) for text in inputs]
        keys = [k for k in original.numeric if wanted is None or any(w.fullmatch(k) for w in wanted)]

        def call(key: str, *arrays: np.ndarray) -> Any:
            given = {k: original.given(k, array) for k, array in zip(keys, arrays, strict=True)}
            return function(key, original.rebuilt(given), *extra)

        hook = TransformHook(function, call)
        name = self._hooks.added(hook, function)
        text = (
            f"hooks.{name}({', '.join(['key', *(f'source[{ast.unparse(ast.Constant(k))}]' for k in keys)])})"
        )
        if len(text) > MAX_TEXT:
            raise UsageError(
                f"the `multi_value_fn` of `{shown(pattern)}` runs as a function of {len(keys)} leaves, "
                "which are too many for one expression",
                hint="Say which leaves it reads: RestoreTransform(multi_value_fn_input_args=…).",
            )
        return text


KIND = "kind(target[key])"
"""Expression for the kind of a leaf of the new tree. Orbax's transforms do not see empty nodes."""
BOTH = {"fill": ".*", "when": "has(source[key]) and kind(source[key]) != 'empty'", "optional": True}
"""Last rule: a `...` in the new tree gets the original's leaf at the same key, as in Orbax."""
INPUTS = "multi_value_fn_input_args"
"""Field of a RestoreTransform that a Transform lacks."""


def from_orbax_transforms(
    transforms: Any, *, default_to_original: bool = True, original: Any = None
) -> MigratedRecipe:
    """Make the recipe, as `ckpt_surgery.api.transformations.from_orbax_transforms` describes it.

    `original` is what is known of the tree that the transforms are applied to, or the tree itself. Raises
    UsageError.
    """
    known = original if isinstance(original, Original | None) else original_of_tree(original)
    hooks = AddedHooks()
    values = ValueWriter(known, hooks)
    parsed = read_transforms(transforms, lambda path: key_of(path).text, "from_orbax_transforms")
    overlapping = any(literal(transform.pattern) is None for transform in parsed)
    if overlapping:
        parsed = _in_order(parsed, default_to_original)
    rules = [_rule(transform, values, default_to_original) for transform in parsed]
    document: dict[str, Any] = {"version": 1, "target": {"dtype": "source", "missing": "fallback"}}
    if not default_to_original:
        document["target"] = {"prefer": "target", "dtype": "source"}
    before = []
    if default_to_original and overlapping:
        before = [{"fill": ".*", "fallback": True, "when": f"{KIND} == 'empty'", "optional": True}]
    names = {n: f"transform `{shown(transform.key)}`" for n, transform in enumerate(parsed, len(before))}
    after = [BOTH] if default_to_original else []
    document |= {"rules": [*before, *rules, *after]} if rules or after else {}
    return MigratedRecipe(document, hooks.functions, names)


def _in_order(transforms: Sequence[NamedTransform], default_to_original: bool) -> Sequence[NamedTransform]:
    """Order transforms for rules, of which the first that matches wins.

    In Orbax the last one does, but one that falls back to the new tree leaves what another one gave.
    """
    weak = [t for t in transforms if t.given.use_fallback and default_to_original]
    strong = [t for t in transforms if t not in weak]
    return [*reversed(strong), *reversed(weak)]


def _rule(transform: NamedTransform, values: ValueWriter, default_to_original: bool) -> dict[str, Any]:
    """Make the rule for one transform, with its fields in the usual order."""
    rule: dict[str, Any] = {"fill": transform.pattern}
    if transform.template is not None:
        rule["from"] = transform.template
    if transform.given.use_fallback:
        rule["fallback"] = True
    value = _value(transform, values)
    if value is not None:
        rule["value"] = value
    if not default_to_original and literal(transform.pattern) is None:
        rule["when"] = f"{KIND} != 'empty'"
    return {**rule, "optional": True}


def _value(transform: NamedTransform, values: ValueWriter) -> str | None:
    given, pattern = transform.given, transform.pattern
    if given.value_fn is not None:
        return values.of_one(given.value_fn, pattern, given.original_key)
    if given.multi_value_fn is not None:
        with_arguments = hasattr(given, INPUTS)
        extra = (NO_RESTORE_ARGS,) if with_arguments else ()
        return values.of_tree(given.multi_value_fn, pattern, extra, getattr(given, INPUTS, None))
    return None
