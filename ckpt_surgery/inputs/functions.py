"""Functions given in place of a recipe: they are traced with the listings of their sources."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.inputs.opening import open_sources
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.migration.functions.tracing import recipe_of_function
from ckpt_surgery.migration.originals import Original, original_of_leaves, original_of_live
from ckpt_surgery.planner.disguised import bfloat16_of, is_uint16


@without_collection()
def traced(request: Request) -> Request:
    """Trace the function of a request: return the request with a recipe in its place, and open sources.

    Raises errors of opening them and of the function, and UsageError for code that no recipe can say.
    """
    sources = open_sources(request)
    known = list(map(_known, sources))
    is_disguised = request.uint16 == "bfloat16" and any(map(is_uint16, _leaves(known)))
    if is_disguised:
        known = [replace(original, leaves=_as_bfloat16(original.leaves)) for original in known]
    recipe = recipe_of_function(request.recipe, known, {"uint16": "bfloat16"} if is_disguised else {})
    return replace(request, recipe=recipe, opened=tuple(sources))


def _known(source: Source) -> Original:
    """Listing of a source, for the function."""
    if isinstance(source, TreeSource):
        return original_of_live(source.tree)
    return original_of_leaves(source.leaves())


def _leaves(known: Iterable[Original]) -> Iterator[Leaf]:
    for original in known:
        yield from original.leaves.values()


def _as_bfloat16(leaves: Mapping[str, Leaf]) -> Mapping[str, Leaf]:
    return {
        text: replace(leaf, spec=bfloat16_of(Read("", leaf)).spec) if is_uint16(leaf) else leaf
        for text, leaf in leaves.items()
    }
