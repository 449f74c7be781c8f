"""Translate transforms of Orbax's `apply_transformations` to a recipe."""

from collections.abc import Sequence
from typing import Any

from ckpt_surgery.core.text import shown
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.orbax_hooks import AddedHooks
from ckpt_surgery.migration.orbax_values import NO_RESTORE_ARGS, ValueWriter
from ckpt_surgery.migration.originals import Original, original_of_tree
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.transforms import NamedTransform, read_transforms

KIND = "kind(target[key])"
"""Expression for the kind of a leaf of the new tree. Orbax's transforms do not see empty nodes."""
BOTH = {"fill": ".*", "when": "has(source[key]) and kind(source[key]) != 'empty'", "optional": True}
"""Last rule: a `...` in the new tree gets the original's leaf at the same key, as in Orbax."""
INPUTS = "multi_value_fn_input_args"
"""Field of a RestoreTransform that a Transform lacks."""


def from_orbax_transforms(
    transforms: Any, *, default_to_original: bool = True, original: Any = None
) -> MigratedRecipe:
    """Make the recipe, as `ckpt_surgery.api.migrating.from_orbax_transforms` describes it.

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
