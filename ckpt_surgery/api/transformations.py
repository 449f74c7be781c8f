"""Transformations of pytrees: what Orbax's `apply_transformations` does."""

from typing import Any

from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.migration.transforming import apply_transforms, original_in_memory


def apply_transformations(
    original_tree: Any, transformations: Any, new_tree: Any, default_to_original: bool = True
) -> Any:
    r"""Make a tree of the structure of `new_tree` from the leaves of another one, as Orbax's function does.

        new_tree = {"a2": ..., "dense/kernel": ...}
        transformations = {
            "a2": Transform(original_key="a"),
            r"dense/(.*)": Transform(original_key=r"layer/\1", value_fn=lambda kernel: kernel.T),
        }
        new = apply_transformations(original_tree, transformations, new_tree)

    `transformations` is a tree of `Transform`s, ours or Orbax's. Keys with `/` between their parts are
    regular expressions, which have to match a whole key of `new_tree`. Of several that match, the last one
    wins, in the order of `jax.tree`, where dicts are sorted; one with `use_fallback` keeps what an earlier
    one gave, and all their functions are called. A key that no transform matches keeps its value of
    `original_tree`, or with `default_to_original=False` that of `new_tree`; a key that the original does not
    have keeps that of `new_tree`.

    Leaves can be anything, also PartitionSpecs, `...`, and values that `jax.jit` traces. Functions are called
    with the leaves themselves; they may return subtrees. Shapes are not compared, and leaves of the original
    that are not used are left out: a recipe made by `from_orbax_transforms` is stricter.

    Raises OriginalMissingError, a PlanError and a ValueError, that names every leaf that the original lacks,
    before any function is called; TransformError, a ValueError, for fields that contradict each other;
    UsageError for what is not a transform, for regular expressions that recipes do not take, and for two
    leaves of `new_tree` with the same key; MissingLibraryError without jax.
    """
    with report_missing("jax", "`apply_transformations` needs jax"):
        import jax  # noqa: F401
    return apply_transforms(original_in_memory(original_tree), transformations, new_tree, default_to_original)
