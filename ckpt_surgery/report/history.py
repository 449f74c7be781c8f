"""How a checkpoint was made: by which recipes, from what, when."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ckpt_surgery.core.text import shown

RECORD = "ckpt_surgery"
"""Name of the entry in custom metadata; recipes read it as `ckpt_surgery/recipes/NAME/params/PARAM`."""
NO_RECIPE = "(none)"
"""Name in plans of the empty recipe, that of a conversion: it has no file."""
IN_MEMORY = "(recipe)"
"""Name of a recipe that was given as data, not as a file."""


@dataclass(frozen=True)
class Origin:
    """A checkpoint that another one was made from."""

    name: str
    """Name of the source in the recipe."""
    path: str
    """Path as it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """The step that was chosen from a directory of steps; None for any other checkpoint."""
    item: str | None
    """The item that was chosen from a composite checkpoint; None for any other checkpoint."""


@dataclass(frozen=True)
class PastRecipe:
    """A recipe that a checkpoint went through."""

    name: str
    """Path or name of the recipe."""
    sha256: str
    """Hexadecimal digest of its text."""
    params: Mapping[str, Any]
    """Values of its params."""


@dataclass(frozen=True)
class History:
    """How a checkpoint was made by this tool."""

    recipes: tuple[PastRecipe, ...]
    """The recipes that it went through, the latest last."""
    sources: tuple[Origin, ...] = ()
    """What the last run made it from; empty where no record says that."""
    version: str | None = None
    """Version of the tool that made it; None where no record says that."""
    written: datetime | None = None
    """When its record was written, by the time of that file; None in a bucket, or where there is none."""
    config: tuple[str, ...] = ()
    """Names of the entries of the config that is recorded in it."""


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own custom metadata: all but the entry of this tool."""
    return {name: value for name, value in metadata.items() if name != RECORD}


def history_json(history: History) -> dict[str, Any]:
    """The member `history` of the JSON document of `inspect`."""
    written = None if history.written is None else history.written.astimezone(UTC).isoformat("T", "seconds")
    return {
        "recipes": [
            {"name": one.name, "sha256": one.sha256, "params": dict(one.params)} for one in history.recipes
        ],
        "sources": [asdict(one) for one in history.sources],
        "version": history.version,
        "written": written,
        "config": list(history.config),
    }


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
