"""Functions given in place of a recipe: they are traced with the listings of their sources."""

from collections.abc import Iterable
from dataclasses import replace

from ckpt_surgery.core.arguments import Function
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.migration.functions.tracing import recipe_of_function
from ckpt_surgery.migration.originals import original_of_leaves, original_of_live
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.disguised import as_bfloat16, is_uint16


@without_collection()
def traced(function: Function, sources: Iterable[Source], uint16: str | None) -> MigratedRecipe:
    """Trace a function with the listings of its sources. `uint16`: see `Request`.

    Raises errors of the function, and UsageError for code that no recipe can say.
    """
    known = [
        original_of_live(source.tree)
        if isinstance(source, TreeSource)
        else original_of_leaves(source.leaves())
        for source in sources
    ]
    stored = [leaf for original in known for leaf in original.leaves.values()]
    if uint16 != "bfloat16" or not any(map(is_uint16, stored)):
        return recipe_of_function(function, known)
    retyped = [
        replace(original, leaves={text: as_bfloat16(leaf) for text, leaf in original.leaves.items()})
        for original in known
    ]
    return recipe_of_function(function, retyped, uint16)
