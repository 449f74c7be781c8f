"""Write `value_fn` and `multi_value_fn` of Orbax's transforms as expressions, or else as hooks."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions.parsing import MAX_TEXT
from ckpt_surgery.migration.agreement import X, agrees_in_general, agrees_with, holds_for
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.numpy_calls import NumpyRecorder
from ckpt_surgery.migration.orbax_hooks import AddedHooks, TreeHook, ValueHook, as_number, form_for
from ckpt_surgery.migration.originals import Original
from ckpt_surgery.migration.standins import Branch, RequestedKey, Traced, source_leaf
from ckpt_surgery.migration.tracing import Trace, trace

NO_RESTORE_ARGS = SimpleNamespace(restore_type=None, dtype=None, sharding=None, global_shape=None)
"""Third argument of a RestoreTransform's `multi_value_fn`: restore arguments with their defaults."""


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
            tree = original.rebuilt({text: source_leaf(text, recorder) for text in original.numeric})
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
    """A function of key and tree with its further arguments bound."""

    function: Callable[..., Any]
    extra: Sequence[Any]

    def __call__(self, key: str, tree: Any) -> Any:
        return self.function(key, tree, *self.extra)


def _lookup(key: str) -> str:
    return f"source[{ast.unparse(ast.Constant(key))}]"
