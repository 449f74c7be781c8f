"""Transform pytrees as Orbax's `apply_transformations` does, and make recipes of its transforms."""

import os
from typing import Any

from ckpt_surgery.api.opening import open
from ckpt_surgery.core.arguments import CheckpointLike
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.inputs.checkpoints import Checkpoint
from ckpt_surgery.inputs.opening import open_input
from ckpt_surgery.inputs.request import InMemory, checkpoint_or_tree
from ckpt_surgery.live.tree import live_tree
from ckpt_surgery.migration.orbax_transforms import recipe_of_transforms
from ckpt_surgery.migration.originals import Original, original_of_leaves, original_of_live
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.transforming import apply_transforms


def apply_transformations(
    original_tree: Any, transformations: Any, new_tree: Any, default_to_original: bool = True
) -> Any:
    r"""Make a tree of the structure of `new_tree` from the leaves of another one, as Orbax's function does.

        new_tree = {"a2": ..., "dense": {"kernel": ...}}
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

    `original_tree` can also be the path of a checkpoint, or one that `open` opened, or a part of one. Leaves
    that nothing asks for are not read; the others are read as `PyTreeCheckpointer().restore` of Orbax reads
    them: arrays of JAX with their recorded sharding, arrays of NumPy, numbers of Python. A `multi_value_fn`
    gets dicts and lists in which a leaf is read when it is first used, and kept until all transforms are
    done; to use them in `jax.tree.map` together with another tree, make ordinary ones of them,
    `jax.tree.map(lambda leaf: leaf, subtree)`. Where the devices of a recorded sharding do not exist, arrays
    are on the default device.

    Raises OriginalMissingError, a PlanError and a ValueError, that names every leaf that the original lacks,
    before any function is called; TransformError, a ValueError, for fields that contradict each other;
    UsageError for a value that is not a transform, for regular expressions that recipes do not take, and for
    two leaves of `new_tree` with the same key; SourceError for a checkpoint that cannot be opened or read, or
    that changes meanwhile; MissingLibraryError without jax.
    """
    with report_missing("jax", "`apply_transformations` needs jax"):
        import jax  # noqa: F401
    checkpoint = open(original_tree) if isinstance(original_tree, str | os.PathLike) else original_tree
    is_stored = isinstance(checkpoint, Checkpoint)
    return apply_transforms(checkpoint, is_stored, transformations, new_tree, default_to_original)


def from_orbax_transforms(
    transforms: Any, *, default_to_original: bool = True, original: CheckpointLike | None = None
) -> MigratedRecipe:
    """Make a recipe of transforms: it does what Orbax's `apply_transformations` does with them.

    The new tree is the target: `ckpt_surgery.restore(recipe, checkpoint, target=new_tree)`. As in Orbax,
    the last transform that matches a key wins, in the order of `jax.tree`, where dicts are sorted; the
    dtypes are those of the original, and a key that nothing gives keeps the target's value. Other than in
    Orbax, a transform that another one overrules may name a key that does not exist, shapes have to be the
    target's, values that do not fit a dtype are an error, and values of bfloat16 and float16 are computed in
    float32 and rounded once, at the end: where a function has several operations, Orbax rounds after each,
    and the last bit can differ.

    `value_fn` and `multi_value_fn` become expressions: they are called with stand-ins that write down
    operators, indexing, methods and functions of arrays, and the result is compared with the function on
    small random arrays. A function that no expression can say is kept, and is called with whole arrays.

    `original` is what the transforms are applied to, a pytree or the path of a checkpoint; functions that
    look at which leaves there are need it, and with it expressions are compared for its shapes and dtypes.
    Without it, arrays of one dtype are assumed where a function combines several.

    Raises UsageError for values that are not transforms, for regular expressions and keys that recipes do not
    take, and for functions that need `original`; SourceError for a checkpoint that cannot be opened.
    """
    known: Original | None = None
    if original is not None:
        given = checkpoint_or_tree(original)
        if isinstance(given, InMemory):
            known = original_of_live(live_tree(given.tree))
        else:
            known = original_of_leaves(open_input(given).leaves())
    return recipe_of_transforms(transforms, default_to_original, known)
