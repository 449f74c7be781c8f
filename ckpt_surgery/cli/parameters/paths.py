"""Which of a command's paths are sources, and which is the destination."""

from collections.abc import Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown

ANY_MORE = "*"
"""Last of the source names of a recipe that takes any number of further sources."""


def source_names(recipe: Any, last: int | None) -> Sequence[str]:
    """Names of the sources that are given by paths; the `last` steps of a run are given by one path."""
    return recipe.recipe.sources if last is None else ("SRC",)


def split_paths(names: Sequence[str], paths: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """The sources among `paths`, and the destination, None where all paths are sources.

    `names` are the recipe's sources. Where they end with `*`, which takes any number of further sources, the
    last path is always the destination. Raises UsageError for too few or too many paths.
    """
    if names[-1] == ANY_MORE:
        return _split_many(names[:-1], paths)
    wanted = len(names)
    if wanted <= len(paths) <= wanted + 1:
        return tuple(paths[:wanted]), paths[wanted] if len(paths) > wanted else None
    takes = f"the recipe takes {wanted} source{'' if wanted == 1 else 's'} ({', '.join(map(shown, names))})"
    if len(paths) < wanted:
        missing = ", ".join(map(shown, names[len(paths) :]))
        raise UsageError(f"{takes}; missing: {missing}", hint="Give their paths in this order.")
    extra = ", ".join(map(shown, paths[wanted + 1 :]))
    first = "With `-e` there is no RECIPE: all paths are sources, and the last one is the destination."
    given = any(path.startswith("@") or path.endswith((".yaml", ".yml")) for path in paths[:wanted])
    raise UsageError(f"{takes} and one destination; too many: {extra}", hint=first if given else None)


def missing_destination(names: Sequence[str]) -> UsageError:
    """The error of paths that are all sources; `names` are the recipe's sources."""
    hint = "Name the directory or file to write after the sources."
    if len(names) == 1:
        return UsageError("DST is missing", hint=hint)
    listed = ", ".join(map(shown, names))
    return UsageError(
        f"DST is missing: the paths are those of the {len(names)} sources ({listed})", hint=hint
    )


def _split_many(names: Sequence[str], paths: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The sources, which may be more than `names`, and the destination, which is the last path."""
    if len(paths) <= len(names):
        few = ", ".join(map(shown, names))
        raise UsageError(
            f"the recipe takes {len(names)} sources or more ({few}, …) and one destination; "
            f"{len(paths)} path{'' if len(paths) == 1 else 's'} given",
            hint="The last path is the destination.",
        )
    return tuple(paths[:-1]), paths[-1]
