"""Transforms as Orbax's `apply_transformations` takes them: their fields, their order, their keys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import TransformError, UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.expressions.regexes import MAX_PATTERN
from ckpt_surgery.migration.key_templates import (
    check_pattern,
    template_of,
    with_free_names,
    with_plain_braces,
)

ValueFunction = Callable[[Any], Any]
MultiValueFunction = Callable[[str, Any], Any]


@dataclass
class Transform:
    r"""Rule of `apply_transformations` for the keys of the new tree that a regular expression matches.

    These are the fields of `orbax.checkpoint.Transform`, in its order; like it, objects can be changed.
    Raises TransformError, a ValueError, for fields that contradict each other.
    """

    original_key: str | None = None
    r"""Key of the leaf of the original tree that the value is taken from, with `/` between its parts. `\1`
    and `\g<name>` stand for groups of the regular expression. None: the leaf of the same key."""
    use_fallback: bool = False
    """Take the value of the new tree, or with `default_to_original=False` that of the original."""
    value_fn: ValueFunction | None = None
    """Called with that value; returns the new one."""
    multi_value_fn: MultiValueFunction | None = None
    """Called with the key and the whole original tree; returns the value."""

    def __post_init__(self) -> None:
        check_fields(self)


_FIELDS = ("original_key", "use_fallback", "value_fn", "multi_value_fn")


def check_fields(transform: Any, about: str = "a transform") -> None:
    """Raise TransformError, naming the fields, if those that are set contradict each other."""
    given = [name for name in _FIELDS if getattr(transform, name) not in (None, False)]
    if len(given) > 1 and given != ["original_key", "value_fn"]:
        names = ", ".join(f"`{name}`" for name in given[:-1]) + f" and `{given[-1]}`"
        raise TransformError(
            f"{about} has {names}, which contradict each other",
            hint="Give one of them; `original_key` and `value_fn` go together.",
        )


@dataclass(frozen=True, eq=False)
class NamedTransform:
    """One transform of a tree of them."""

    key: str
    """Its key as it was given: a regular expression."""
    expression: str
    """The regular expression for `compile_pattern`."""
    pattern: str
    """The regular expression with group names that recipes accept."""
    template: str | None
    """`original_key` as a template of recipes; None for the key itself."""
    given: Any
    """The given transform: ours, or Orbax's."""

    @property
    def falls_back(self) -> bool:
        """True if it takes the value of the tree that is not preferred."""
        return bool(self.given.use_fallback)


def read_transforms(
    tree: Any, name_of: Callable[[Sequence[Any]], str], caller: str, longest: int = MAX_PATTERN
) -> Sequence[NamedTransform]:
    """Read the transforms of a tree in Orbax's order: that of `jax.tree`, which sorts dicts.

    `name_of` makes keys of paths of `jax.tree_util`. Of two transforms with the same key, the last counts.
    `longest` is the limit on the characters of a key. Raises UsageError for what is not a transform, and for
    regular expressions and keys that recipes do not take; TransformError for fields that contradict each
    other; MissingLibraryError, naming `caller`, without jax.
    """
    with report_missing("jax", f"`{caller}` needs jax"):
        import jax

    given = {name_of(path): value for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]}
    return [_named(key, value, longest) for key, value in given.items()]


_PLAIN = "Write its key so that Python's `re` reads it without doubt; `\\` before a sign stands for the sign."


def _named(key: str, given: Any, longest: int) -> NamedTransform:
    if not all(hasattr(given, field) for field in _FIELDS):
        raise UsageError(
            f"the transforms have {shown(abridged(given))} at `{shown(key)}`, which is not a transform",
            hint="Leave the key out, or give a `ckpt_surgery.Transform`.",
        )
    about, original_key = f"the transform `{shown(key)}`", given.original_key
    expression = with_plain_braces(key)
    check_pattern(expression, f"the transform `{shown(expression)}`", longest, _PLAIN)
    check_fields(given, about)
    pattern, names = with_free_names(expression)
    if not isinstance(original_key, str | None):
        wanted = "text with `/` between its parts"
        raise UsageError(f"{about}: `original_key` has to be {wanted}, not {shown(abridged(original_key))}")
    told = f"{about}: `original_key` {shown(repr(original_key))}"
    template = None if original_key is None else template_of(original_key, key, told, names)
    return NamedTransform(key, expression, pattern, template, given)
