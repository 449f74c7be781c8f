"""The history of a checkpoint in words."""

from collections.abc import Iterator
from datetime import UTC

from ckpt_surgery.core.history import IN_MEMORY, NO_RECIPE, History, Origin, PastRecipe
from ckpt_surgery.core.text import shown


def history_sentences(history: History) -> Iterator[str]:
    """The history in words: how it was made, what came before that, and the config that is recorded."""
    last = history.recipes[-1] if history.recipes else None
    is_conversion = last is not None and last.name == NO_RECIPE
    verb = "converted" if is_conversion else "made"
    made = f"{verb} from {_list(map(_origin, history.sources))}" if history.sources else verb
    by = "" if last is None or is_conversion else f" by {_recipe(last)}"
    when = "" if history.written is None else f", {history.written.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    version = "" if history.version is None else f" with ckpt-surgery {shown(history.version)}"
    yield f"{made}{by}{when}{version}"
    if len(history.recipes) > 1:
        yield f"before that by {_list(map(_recipe, history.recipes[:-1]))}"
    if history.config:
        yield f"a config of {len(history.config)} entries is recorded in it"


def _origin(source: Origin) -> str:
    chosen = "" if source.step is None else f", step {source.step}"
    chosen += "" if source.item is None else f", item {shown(source.item)}"
    return f"{shown(source.path)} ({shown(source.format)}{chosen})"


def _recipe(one: PastRecipe) -> str:
    names = {IN_MEMORY: "a recipe given as data", NO_RECIPE: "a conversion"}
    name = names.get(one.name, shown(one.name))
    params = ", ".join(f"{shown(key)}={shown(str(value))}" for key, value in one.params.items())
    return f"{name} with {params}" if params else name


def _list(parts: Iterator[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
