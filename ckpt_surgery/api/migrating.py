"""Make recipes of Orbax transforms; their functions are traced on the leaves of a tree or a checkpoint."""

from typing import Any

from ckpt_surgery.core.arguments import CheckpointLike
from ckpt_surgery.inputs.opening import open_input
from ckpt_surgery.inputs.request import InMemory, checkpoint_or_tree
from ckpt_surgery.migration import orbax_transforms
from ckpt_surgery.migration.originals import Original, original_of_leaves, original_of_tree
from ckpt_surgery.migration.recipes import MigratedRecipe


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
    known = None if original is None else _original(original)
    return orbax_transforms.from_orbax_transforms(
        transforms, default_to_original=default_to_original, original=known
    )


def _original(given: CheckpointLike) -> Original:
    """Describe the checkpoint or tree that transforms are applied to."""
    checkpoint = checkpoint_or_tree(given)
    if isinstance(checkpoint, InMemory):
        return original_of_tree(checkpoint.tree)
    return original_of_leaves(open_input(checkpoint).leaves())
