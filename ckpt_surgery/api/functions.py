"""Functions of trees as recipes: `from_function`, and Orbax's planned `load_and_transform`."""

import inspect
import os
from collections.abc import Callable
from typing import Any, Literal

from ckpt_surgery.api.restoring import restore
from ckpt_surgery.core.arguments import CheckpointLike
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.inputs.functions import traced
from ckpt_surgery.inputs.opening import open_sources
from ckpt_surgery.inputs.request import requested
from ckpt_surgery.migration.functions.tracing import OnFlatDicts
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.migration.t5x import TranslatorFunction


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
        raise UsageError(
            f"`load_and_transform`: neither {abridged(first)} nor {abridged(second)} is a function",
            hint="Give a path, a function of its tree, and the target; or a function and its paths.",
        )
    if len(others) > 1 or (others and target is not None):
        raise UsageError(
            "`load_and_transform`: after a path and a function comes the target alone",
            hint="For several checkpoints, give the function first.",
        )
    return restore(second, first, target=others[0] if others else target, **options)


def _is_function(given: Any) -> bool:
    return callable(given) and not isinstance(given, str | os.PathLike)


_OWN = list(inspect.signature(load_and_transform).parameters.values())[:3]
_OPTIONS = [p for p in inspect.signature(restore).parameters.values() if p.kind is p.KEYWORD_ONLY]
load_and_transform.__signature__ = inspect.Signature([*_OWN, *_OPTIONS])  # type: ignore[attr-defined]
