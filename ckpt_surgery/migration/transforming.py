"""Apply transforms to trees as Orbax's `apply_transformations` does: functions are called with the leaves.

Leaves are opaque: nothing looks at their shapes, dtypes or values. What Orbax does was observed with 0.12.8;
tests/migration/test_transforming.py runs both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import OriginalMissingError, Problem, UsageError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.expressions.regexes import MatchBudget, compile_pattern
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.paths import orbax_name
from ckpt_surgery.live.reading_containers import reading, restored_value, settled
from ckpt_surgery.migration.key_templates import literal
from ckpt_surgery.migration.transforms import NamedTransform, read_transforms

LONGEST = 50_000
"""Limit on the characters of a regular expression. Programs put hundreds of names into one."""
GUESSES = 20
"""Limit on the missing leaves for which a similar name is searched, which takes long in large trees."""


@dataclass(frozen=True, eq=False)
class OriginalTree:
    """The tree that transforms are applied to."""

    leaves: Mapping[str, Any]
    """Leaves by key; those of a checkpoint are LazyArrays."""
    tree: Any
    """Argument of each `multi_value_fn`."""

    def leaf(self, key: str) -> Any:
        """Return a leaf as the program would have it in memory."""
        return self.leaves[key]

    def result(self, value: Any) -> Any:
        """Complete a value that a function returned by reading everything in it."""
        return value


def original_in_memory(tree: Any) -> OriginalTree:
    """Make the original from a pytree. Of two leaves with the same key the last counts, as in Orbax."""
    import jax

    leaves = {orbax_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
    return OriginalTree(leaves, tree)


class StoredTree(OriginalTree):
    """Original in a checkpoint, or in a part of one, whose leaves are read on demand."""

    def leaf(self, key: str) -> Any:
        """Read a leaf as Orbax restores it."""
        return restored_value(self.leaves[key])

    def result(self, value: Any) -> Any:
        """Replace containers that read on demand by ordinary ones."""
        return settled(value)


def original_in_checkpoint(checkpoint: Mapping[str, Any], tree: Any) -> OriginalTree:
    """Make the original from an open checkpoint: its values by key, and its tree of values."""
    leaves = {key: value for key, value in checkpoint.items() if isinstance(value, LazyArray | str)}
    return StoredTree(leaves, restored_value(reading(tree)))


def apply_transforms(
    original: OriginalTree, transforms: Any, new_tree: Any, default_to_original: bool
) -> Any:
    """Apply transforms, as `ckpt_surgery.api.transformations.apply_transformations` describes it."""
    import jax

    if not jax.tree.leaves(new_tree) and not new_tree:
        return {}
    nodes, treedef = jax.tree_util.tree_flatten_with_path(new_tree)
    keys = [orbax_name(path) for path, _ in nodes]
    _check_distinct(keys)
    values = {key: leaf for key, (_, leaf) in zip(keys, nodes, strict=True)}
    known = read_transforms(transforms, orbax_name, "apply_transformations", LONGEST)
    claims = _claims(original.leaves, known, keys, default_to_original)
    _check_originals(original.leaves, claims)
    for claim, is_last in claims:
        # The last claim of a key wins. The functions of the others are called too: they may count calls.
        if is_last or claim.function is not None:
            values[claim.key] = claim.value(original)
    return jax.tree.unflatten(treedef, values.values())


def _check_distinct(keys: Sequence[str]) -> None:
    if len(set(keys)) < len(keys):
        twice = dict.fromkeys(key for key in keys if keys.count(key) > 1)
        raise UsageError(
            *(f"two leaves of the new tree are called `{shown(key)}`" for key in twice),
            hint="Rename a container whose name has a slash.",
        )


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

    def value(self, original: OriginalTree) -> Any:
        """Look the leaf up, and call the function."""
        given = (self.key, original.tree) if self.source is None else (original.leaf(self.source),)
        return given[0] if self.function is None else original.result(self.function(*given))


def _claims(
    leaves: Mapping[str, Any], transforms: Sequence[NamedTransform], keys: Sequence[str], default: bool
) -> Sequence[tuple[_Claim, bool]]:
    """List the claims of all keys of the new tree in Orbax's order; True marks the last one of a key."""
    budget = MatchBudget()
    patterns: list[int] = []
    by_text: dict[str, list[int]] = {}  # thousands of keys, each with a transform of its own, are usual
    for number, transform in enumerate(transforms):
        text = literal(transform.expression)
        (patterns if text is None else by_text.setdefault(text, [])).append(number)

    def claims_of(key: str) -> Iterator[_Claim]:
        is_matched = False
        for number in sorted([*patterns, *by_text.get(key, ())]):
            transform = transforms[number]
            match = budget.fullmatch(compile_pattern(transform.expression, LONGEST), key)
            if match is None:
                continue
            is_matched = True
            given = transform.given
            if given.multi_value_fn is not None:
                yield _Claim(key, None, given.multi_value_fn, transform.key)
            elif not transform.falls_back or not default:
                source = key if given.original_key is None else match.expand(given.original_key)
                yield _Claim(key, source, given.value_fn, transform.key)
        if not is_matched and default and key in leaves:
            yield _Claim(key, key)

    listed = (list(claims_of(key)) for key in keys)
    return [(claim, claim is claims[-1]) for claims in listed for claim in claims]


def _check_originals(leaves: Mapping[str, Any], claims: Sequence[tuple[_Claim, bool]]) -> None:
    """Raise OriginalMissingError if the original lacks leaves; names every one."""
    problems: list[Problem] = []
    for claim, _ in claims:
        if claim.source is not None and claim.source not in leaves:
            guess = did_you_mean(claim.source, leaves) if len(problems) < GUESSES else ""
            wanted = f"the transform `{shown(claim.pattern)}` takes it for `{shown(claim.key)}`"
            problems.append(Problem(f"the original has no leaf `{shown(claim.source)}`{guess} ({wanted})"))
    if problems:
        raise OriginalMissingError(*problems, code=Code.NO_ENTRY)
