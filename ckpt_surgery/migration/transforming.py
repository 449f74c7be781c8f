"""Transforms as Orbax's `apply_transformations` takes them, and their application to trees: functions are
called with the leaves.

Leaves are opaque: nothing looks at their shapes, dtypes or values. What Orbax does was observed with 0.12.8;
tests/migration/test_transforming.py runs both.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import Code, OriginalMissingError, Problem, TransformError, UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import abridged, did_you_mean, shown
from ckpt_surgery.language.expressions.regexes import MAX_PATTERN, MatchBudget, compile_pattern
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.reading_containers import reading, restored_value, settled
from ckpt_surgery.live.tree import orbax_name
from ckpt_surgery.migration.key_templates import (
    check_pattern,
    literal,
    template_of,
    with_free_names,
    with_plain_braces,
)


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
    value_fn: Callable[[Any], Any] | None = None
    """Called with that value; returns the new one."""
    multi_value_fn: Callable[[str, Any], Any] | None = None
    """Called with the key and the whole original tree; returns the value."""

    def __post_init__(self) -> None:
        check_fields(self)


_FIELDS = ("original_key", "use_fallback", "value_fn", "multi_value_fn")


def check_fields(transform: Any, about: str = "a transform") -> None:
    """Raise TransformError, naming the fields, if those that are set contradict each other."""
    given = [name for name in _FIELDS if getattr(transform, name) not in (None, False)]
    if len(given) > 1 and given != ["original_key", "value_fn"]:
        names = ", ".join(f"`{name}`" for name in given[:-1]) + f" and `{given[-1]}`"
        hint = "Give one of them; `original_key` and `value_fn` go together."
        raise TransformError(f"{about} has {names}, which contradict each other", hint=hint)


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


def read_transforms(
    tree: Any, name_of: Callable[[Sequence[Any]], str], caller: str, longest: int = MAX_PATTERN
) -> list[NamedTransform]:
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


def _named(key: str, given: Any, longest: int) -> NamedTransform:
    if not all(hasattr(given, field) for field in _FIELDS):
        raise UsageError(
            f"the transforms have {shown(abridged(given))} at `{shown(key)}`, which is not a transform",
            hint="Leave the key out, or give a `ckpt_surgery.Transform`.",
        )
    about, original_key = f"the transform `{shown(key)}`", given.original_key
    expression = with_plain_braces(key)
    plain = "Write its key so that Python's `re` reads it without doubt; `\\` before a sign is the sign."
    check_pattern(expression, f"the transform `{shown(expression)}`", longest, plain)
    check_fields(given, about)
    pattern, names = with_free_names(expression)
    if not isinstance(original_key, str | None):
        raise UsageError(
            f"{about}: `original_key` has to be text with `/` between its parts, not "
            f"{shown(abridged(original_key))}"
        )
    replacement = f"{about}: `original_key` {shown(repr(original_key))}"
    template = None if original_key is None else template_of(original_key, key, replacement, names)
    return NamedTransform(key, expression, pattern, template, given)


LONGEST = 50_000
"""Limit on the characters of a regular expression. Programs put hundreds of names into one."""


def apply_transforms(
    original: Any, is_stored: bool, transforms: Any, new_tree: Any, default_to_original: bool
) -> Any:
    """Apply transforms, as `ckpt_surgery.api.functions.apply_transformations` describes it.

    `original` is a pytree, or if `is_stored` an open checkpoint or a part of one, whose leaves are read on
    demand, as Orbax restores them. Of two leaves with the same key the last counts, as in Orbax.
    """
    import jax

    if not jax.tree.leaves(new_tree) and not new_tree:
        return {}
    if is_stored:
        leaves = {key: value for key, value in original.items() if isinstance(value, LazyArray | str)}
        tree = restored_value(reading(original.tree))
    else:
        flat, tree = jax.tree_util.tree_flatten_with_path(original)[0], original
        leaves = {orbax_name(path): leaf for path, leaf in flat}
    nodes, treedef = jax.tree_util.tree_flatten_with_path(new_tree)
    values = {orbax_name(path): leaf for path, leaf in nodes}
    if len(values) < len(nodes):
        counts = Counter(orbax_name(path) for path, _ in nodes)
        raise UsageError(
            *(f"two leaves of the new tree are called `{shown(key)}`" for key in counts if counts[key] > 1),
            hint="Rename a container whose name has a slash.",
        )
    known = read_transforms(transforms, orbax_name, "apply_transformations", LONGEST)
    claims = _claims(leaves, known, values, default_to_original)
    _check_originals(leaves, claims)

    def value(claim: _Claim) -> Any:
        given = [claim.key, tree] if claim.source is None else [leaves[claim.source]]
        if is_stored and claim.source is not None:
            given = [restored_value(given[0])]
        if claim.function is None:
            return given[0]
        result = claim.function(*given)
        return settled(result) if is_stored else result  # ordinary containers, with everything read

    for key, claims_of_key in claims.items():
        for claim in claims_of_key:
            # The last one wins. The functions of the others are called too: they may count calls.
            if claim is claims_of_key[-1] or claim.function is not None:
                values[key] = value(claim)
    return jax.tree.unflatten(treedef, values.values())


@dataclass(frozen=True, eq=False)
class _Claim:
    """A value that a leaf of the new tree gets from the original."""

    key: str
    """Key in the new tree."""
    source: str | None
    """Key in the original; None if a function gets the whole original."""
    function: Callable[..., Any] | None = None
    """Function that computes the value; None if the leaf of the original is the value."""
    pattern: str = ""
    """Regular expression of the transform; empty for a leaf that keeps its key by default."""


def _claims(
    leaves: Mapping[str, Any], transforms: Sequence[NamedTransform], keys: Iterable[str], default: bool
) -> Mapping[str, Sequence[_Claim]]:
    """List the claims of all keys of the new tree, those of each in Orbax's order."""
    budget = MatchBudget()
    patterns: list[int] = []
    by_text = defaultdict[str, list[int]](list)  # thousands of keys, each with its own transform, are usual
    for number, transform in enumerate(transforms):
        text = literal(transform.expression)
        (patterns if text is None else by_text[text]).append(number)

    def claims_of(key: str) -> Iterator[_Claim]:
        is_matched = False
        for number in sorted([*patterns, *by_text.get(key, ())]):
            transform, given = transforms[number], transforms[number].given
            match = budget.fullmatch(compile_pattern(transform.expression, LONGEST), key)
            if match is None:
                continue
            is_matched = True
            if given.multi_value_fn is not None:
                yield _Claim(key, None, given.multi_value_fn, transform.key)
            elif not given.use_fallback or not default:
                source = key if given.original_key is None else match.expand(given.original_key)
                yield _Claim(key, source, given.value_fn, transform.key)
        if not is_matched and default and key in leaves:
            yield _Claim(key, key)

    return {key: list(claims_of(key)) for key in keys}


def _check_originals(leaves: Mapping[str, Any], claims: Mapping[str, Sequence[_Claim]]) -> None:
    """Raise OriginalMissingError if the original lacks leaves; names every one."""
    problems: list[Problem] = []
    for claim in itertools.chain(*claims.values()):
        if claim.source is not None and claim.source not in leaves:
            # Similar names are searched for few: that takes long in large trees.
            guess = did_you_mean(claim.source, leaves) if len(problems) < 20 else ""
            wanted = f"the transform `{shown(claim.pattern)}` takes it for `{shown(claim.key)}`"
            problems.append(Problem(f"the original has no leaf `{shown(claim.source)}`{guess} ({wanted})"))
    if problems:
        raise OriginalMissingError(*problems, code=Code.NO_ENTRY)
