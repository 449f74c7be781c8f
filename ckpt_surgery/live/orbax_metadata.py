"""Orbax metadata in targets: the results of `metadata()` in Orbax versions 0 and 1.

It is recognized by names of types and attributes: Orbax is not imported. Recorded shardings are ignored.
"""

import functools
from collections.abc import Callable, Mapping, Set
from typing import Any, get_args, get_origin

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.notices import few_keys

_ONE_ITEM = "Give the metadata of one item: `target=metadata.{}[NAME]`."
_WRAPPERS = {
    "StepMetadata": "item_metadata",
    "CheckpointMetadata": "metadata",
    "TreeMetadata": "tree",
}
"""Types of metadata that stand for a tree, and the attribute with what they hold."""


def unwrapped(tree: Any) -> Any:
    """Replace metadata of checkpoints, and of trees, by the tree that they describe, at any depth.

    Raises UsageError for metadata of several items, and for metadata without a tree.
    """
    import jax

    wraps: Callable[[Any], bool] = lambda value: _wrapper(value) is not None  # noqa: E731
    if not any(map(wraps, jax.tree.leaves(tree, is_leaf=wraps))):
        return tree
    return jax.tree.map(_inner, tree, is_leaf=wraps)


def _wrapper(value: Any) -> str | None:
    """Name of the type of metadata that stands for a tree; None for anything else."""
    names = type_names(type(value))  # type: ignore[arg-type]
    if "Composite" in names and isinstance(value, Mapping):  # the metadata of items by name
        return "Composite"
    return next((n for n, attribute in _WRAPPERS.items() if n in names and hasattr(value, attribute)), None)


@functools.lru_cache(maxsize=256)  # a tree has leaves of few types
def type_names(type_: Any) -> Set[str]:
    """Names of a type, and of those that it derives from."""
    return {base.__name__ for base in type_.__mro__}


def _inner(value: Any) -> Any:
    """The tree that metadata describes; any other value as it is. Raises UsageError."""
    kind = _wrapper(value)
    if kind is None:
        return value
    inner = _only_item(value, "item_metadata") if kind == "Composite" else getattr(value, _WRAPPERS[kind])
    if kind == "CheckpointMetadata" and _is_of_items(value):
        inner = _only_item(inner, "metadata")
    if inner is None:
        raise UsageError(
            f"the {type(value).__name__} given as the target describes no arrays",
            hint="Orbax logs why it could not read them. Give another tree as the target, or none.",
        )
    return _without_values(inner) if kind == "CheckpointMetadata" else unwrapped(inner)


def _only_item(items: Mapping[str, Any], attribute: str) -> Any:
    """The metadata of the only item with arrays. Raises UsageError if there are several."""
    described = {name: metadata for name, metadata in items.items() if metadata is not None}
    if len(described) > 1:
        names = few_keys(sorted(described))
        raise UsageError(
            f"the metadata given as the target is that of {len(described)} items: {names}",
            hint=_ONE_ITEM.format(attribute),
        )
    return next(iter(described.values()), None)


def _is_of_items(metadata: Any) -> bool:
    """True if metadata of version 1 is that of items by name, as `checkpointables_metadata` returns it.

    That of one tree, from `metadata` and `pytree_metadata`, is a `CheckpointMetadata[PyTreeMetadata]`.
    """
    if not isinstance(metadata.metadata, Mapping):
        return False
    arguments = get_args(getattr(metadata, "__orig_class__", None))
    return not arguments or get_origin(arguments[0]) is dict


def _without_values(tree: Any) -> Any:
    """Tree with the types of numbers and texts, by which version 1 describes them, in their place."""
    import jax

    def described(value: Any) -> Any:
        return type(value) if type(value) in (bool, int, float, str) else value

    return jax.tree.map(described, unwrapped(tree))
