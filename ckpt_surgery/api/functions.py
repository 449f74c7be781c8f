"""Functions of trees and transforms of Orbax as recipes, and carried out at once in Orbax's own terms."""

import inspect
import os
from collections.abc import Callable
from typing import Any, Literal

from ckpt_surgery.api.opening import open
from ckpt_surgery.api.restoring import restore
from ckpt_surgery.core.arguments import CheckpointLike
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import abridged
from ckpt_surgery.inputs.checkpoints import Checkpoint
from ckpt_surgery.inputs.opening import open_input, open_sources, traced
from ckpt_surgery.inputs.request import InMemory, checkpoint_or_tree, requested
from ckpt_surgery.live.tree import live_tree
from ckpt_surgery.migration.functions.tracing import OnFlatDicts
from ckpt_surgery.migration.orbax_transforms import recipe_of_transforms
from ckpt_surgery.migration.originals import Original, original_of_leaves, original_of_live
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.t5x import TranslatorFunction
from ckpt_surgery.migration.transforming import apply_transforms


def from_function(
    function: Callable[..., Any],
    *sources: CheckpointLike,
    step: int | None = None,
    item: str | None = None,
    src_format: str | None = None,
    uint16: Literal["keep", "bfloat16"] | None = None,
) -> MigratedRecipe:
    """Make a recipe of a function of trees, which is called once, with stand-ins in place of arrays.

    `function` takes the tree of each source, in new containers that it may change, and returns a tree.
    `restore`, `apply` and `plan` take the function itself; the recipe is for `to_yaml` and for several calls.
    `sources` are paths of checkpoints, or pytrees; others have to have the same keys and shapes.
    `uint16="bfloat16"` takes their arrays of uint16 as bfloat16 with the same bits, and so will the recipe.

    Leaves that are only moved keep their bytes, and are linked; operators, indexing, methods and functions of
    NumPy, `jax.numpy` and `jax.lax`, also in functions that it calls, become expressions, which compute what
    NumPy does. Leaves that are not returned are dropped. Arrays and numbers of the program are put in as they
    are. `...` asks for the target's value.

    Raises UsageError for code that no expression can say, with its line in the function: there
    `ckpt_surgery.opaque` helps; SourceError for a checkpoint that cannot be opened. Errors of the function
    itself pass on unchanged.
    """
    if not callable(function):
        raise UsageError(f"`from_function`: {abridged(function)} is not a function")
    options: Any = {"step": step, "item": item, "src_format": src_format, "uint16": uint16}
    request = requested(function, sources, None, options)
    return traced(function, open_sources(request), request.uint16)


def from_t5x_translator(translator: Any, *, source: CheckpointLike, **options: Any) -> MigratedRecipe:
    """Make a recipe of a translator of T5X's importer: it does what `translator.apply` does with `source`.

    `translator` is a `ckpt_surgery.t5x.CheckpointTranslator`, T5X's own, or another object whose `rules` are
    pairs of a pattern and a function. `options` are handed to the functions, as by `apply`. `source` is the
    path of a checkpoint, or a pytree; others have to have the same keys and shapes.

    The functions are called once, with stand-ins in place of arrays, as `from_function` describes it.
    Stand-ins are lazy arrays, also those of T5X: `value.astype(dtype).get()` is written down as a cast. What
    needs all leaves at once, such as missing slots, goes into a function around the translator:
    `restore(lambda flat: fix(translator.apply(flat)), path, flat=True)`.

    Raises PlanError, with all keys, for keys without a rule and for several with one new name; UsageError for
    an object that is not a translator, and for code that no expression can say; SourceError for a checkpoint
    that cannot be opened. Errors of a function itself pass on unchanged.
    """
    function = OnFlatDicts(TranslatorFunction(translator, options))
    return traced(function, open_sources(requested(function, (source,), None, {})), None)


def load_and_transform(first: Any, second: Any, *others: Any, target: Any = None, **options: Any) -> Any:
    """Load checkpoints as a function changes their trees: `restore` in the argument order of Orbax's guide.

    Either `load_and_transform(path, function, target)`, where the target may be left out, or
    `load_and_transform(function, path, …, target=None)` with as many paths as the function takes trees. The
    options are those of `restore`. Nothing is written, and leaves that the function does not return are not
    read.

    Raises what `restore` raises, UsageError where neither argument is a function, and what the function
    raises.
    """
    if _is_function(first):
        return restore(first, second, *others, target=target, **options)
    if not _is_function(second):
        problem = f"`load_and_transform`: neither {abridged(first)} nor {abridged(second)} is a function"
        hint = "Give a path, a function of its tree, and the target; or a function and its paths."
        raise UsageError(problem, hint=hint)
    if len(others) > 1 or (others and target is not None):
        problem = "`load_and_transform`: after a path and a function comes the target alone"
        raise UsageError(problem, hint="For several checkpoints, give the function first.")
    return restore(second, first, target=others[0] if others else target, **options)


def _is_function(given: Any) -> bool:
    return callable(given) and not isinstance(given, str | os.PathLike)


_OWN = list(inspect.signature(load_and_transform).parameters.values())[:3]
_OPTIONS = [p for p in inspect.signature(restore).parameters.values() if p.kind is p.KEYWORD_ONLY]
load_and_transform.__signature__ = inspect.Signature([*_OWN, *_OPTIONS])  # type: ignore[attr-defined]


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
