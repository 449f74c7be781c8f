"""Transforms of Orbax, as `apply_transformations` takes them, as a recipe."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.paths import key_of
from ckpt_surgery.migration.orbax_hooks import Hooks
from ckpt_surgery.migration.orbax_templates import check_pattern, literal, template_of, with_free_names
from ckpt_surgery.migration.orbax_values import NO_RESTORE_ARGS, Values
from ckpt_surgery.migration.originals import Original, original_of_tree
from ckpt_surgery.migration.recipes import MigratedRecipe

KIND = "kind(target[key])"
"""What a leaf of the new tree is. Orbax's transforms do not see those that are empty, such as None."""
INPUTS = "multi_value_fn_input_args"
"""The field that a RestoreTransform has and a Transform has not."""
_FIELDS = ("original_key", "use_fallback", "value_fn", "multi_value_fn")


@dataclass(frozen=True)
class _Transform:
    """One of Orbax's transforms."""

    key: str
    """Its key as it was given."""
    pattern: str
    """The regular expression that the key is, with names of groups that recipes take."""
    template: str | None
    """Template of the source leaf's key; None for the key itself."""
    given: Any

    @property
    def falls_back(self) -> bool:
        return bool(self.given.use_fallback)


def from_orbax_transforms(
    transforms: Any, *, default_to_original: bool = True, original: Any = None
) -> MigratedRecipe:
    """The recipe, as `ckpt_surgery.api.migrating.from_orbax_transforms` describes it.

    `original` is what is known of the tree that the transforms are applied to, or the tree itself. Raises
    UsageError.
    """
    known = original if isinstance(original, Original | None) else original_of_tree(original)
    hooks = Hooks()
    values = Values(known, hooks)
    found = list(_transforms(transforms))
    overlapping = any(literal(transform.pattern) is None for transform in found)
    if overlapping:
        found = _in_order(found, default_to_original)
    rules = [_rule(transform, values, default_to_original) for transform in found]
    document: dict[str, Any] = {"version": 1, "target": {"dtype": "source", "missing": "fallback"}}
    if not default_to_original:
        document["target"] = {"prefer": "target", "dtype": "source"}
    before = []
    if default_to_original and overlapping:
        before = [{"fill": ".*", "fallback": True, "when": f"{KIND} == 'empty'", "optional": True}]
    names = {n: f"transform `{shown(transform.key)}`" for n, transform in enumerate(found, len(before))}
    document |= {"rules": [*before, *rules]} if rules else {}
    return MigratedRecipe(document, hooks.functions, names)


def _transforms(tree: Any) -> Iterator[_Transform]:
    """The transforms in Orbax's order, each with its whole key. Raises UsageError for what is none."""
    with report_missing("jax", "`from_orbax_transforms` needs jax"):
        import jax

    found: dict[str, Any] = {}
    for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]:
        pattern = key_of(path).text
        if not all(hasattr(value, field) for field in _FIELDS):
            raise UsageError(
                f"the transforms have {value!r} at `{shown(pattern)}`, which is not a transform",
                hint="Leave the key out, or give an `orbax.checkpoint.Transform`.",
            )
        found[pattern] = value
    for pattern, value in found.items():
        check_pattern(pattern)
        _check_fields(pattern, value)
        renamed, names = with_free_names(pattern)
        key = value.original_key
        yield _Transform(pattern, renamed, None if key is None else template_of(key, pattern, names), value)


def _check_fields(pattern: str, transform: Any) -> None:
    if transform.value_fn is not None and transform.multi_value_fn is not None:
        raise UsageError(f"the transform `{shown(pattern)}` has both `value_fn` and `multi_value_fn`")


def _in_order(transforms: list[_Transform], default_to_original: bool) -> list[_Transform]:
    """The transforms as rules, of which the first that matches wins.

    In Orbax the last one does, but one that falls back to the new tree leaves what another one gave.
    """
    weak = [t for t in transforms if t.falls_back and default_to_original]
    strong = [t for t in transforms if t not in weak]
    return [*reversed(strong), *reversed(weak)]


def _rule(transform: _Transform, values: Values, default_to_original: bool) -> dict[str, Any]:
    """The rule for one transform, with its fields in the usual order."""
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


def _value(transform: _Transform, values: Values) -> str | None:
    given, pattern = transform.given, transform.pattern
    if given.value_fn is not None:
        return values.of_one(given.value_fn, pattern, given.original_key)
    if given.multi_value_fn is not None:
        with_arguments = hasattr(given, INPUTS)
        extra = (NO_RESTORE_ARGS,) if with_arguments else ()
        return values.of_tree(given.multi_value_fn, pattern, extra, getattr(given, INPUTS, None))
    return None
