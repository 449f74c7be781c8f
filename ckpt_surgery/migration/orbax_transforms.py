"""Translate transforms of Orbax's `apply_transformations` to a recipe."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

from ckpt_surgery.core.errors import Interrupted, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions.parsing import MAX_TEXT
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.migration.agreement import X, agrees_in_general, agrees_with, holds_for
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.numpy_calls import NumpyRecorder
from ckpt_surgery.migration.orbax_hooks import AddedHooks, TreeHook, ValueHook, as_number, form_for
from ckpt_surgery.migration.originals import Original, original_of_tree
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.replacing import replaced
from ckpt_surgery.migration.standins import Branch, Recorder, RequestedKey, Traced, Untraceable
from ckpt_surgery.migration.transforms import NamedTransform, read_transforms

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
        leaves = self._leaves_for(pattern, original_key)
        if (
            expression is not None
            and len(expression) <= MAX_TEXT
            and holds_for(expression, function, leaves, self._original)
        ):
            return None if expression == X else expression
        number = bool(leaves) and self._original is not None and all(map(self._original.number_at, leaves))
        hook = ValueHook(function, as_number if number else form_for(function))
        return f"hooks.{self._hooks.added(hook, function)}(x)"

    def _leaves_for(self, pattern: str, original_key: str | None) -> Sequence[str]:
        """Leaves of the original that the rule can take; none if that depends on the new tree's keys."""
        if self._original is None:
            return ()
        numeric = self._original.numeric
        if original_key is None:
            return [text for text in numeric if re.fullmatch(pattern, text)]
        return [original_key] if original_key in numeric else []

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
        return self._of_leaves(function, pattern, extra, inputs, original)

    def _of_leaves(
        self,
        function: Callable[..., Any],
        pattern: str,
        extra: Sequence[Any],
        inputs: Any,
        original: Original,
    ) -> str:
        """Write the call of a hook with the leaves that the function may read."""
        wanted = None if inputs is None else [re.compile(text) for text in inputs]
        keys = [k for k in original.numeric if wanted is None or any(w.fullmatch(k) for w in wanted)]
        hook = TreeHook(lambda key, tree: function(key, tree, *extra), keys, original)
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
    weak = [t for t in transforms if t.falls_back and default_to_original]
    strong = [t for t in transforms if t not in weak]
    return [*reversed(strong), *reversed(weak)]


def _rule(transform: NamedTransform, values: ValueWriter, default_to_original: bool) -> dict[str, Any]:
    """Make the rule for one transform, with its fields in the usual order."""
    rule: dict[str, Any] = {"fill": transform.pattern}
    if transform.template is not None:
        rule["from"] = transform.template
    if transform.falls_back:
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
