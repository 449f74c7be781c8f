"""What `lint` does, for Python. Nothing of plans is needed, nor imported."""

import os
from collections.abc import Iterable, Iterator

from ckpt_surgery.core.errors import Problem, RecipeError, UsageError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.checks import Finding
from ckpt_surgery.language.loading import Recipe, load_recipe

PathLike = str | os.PathLike[str]


def lint(recipes: PathLike | Iterable[PathLike]) -> list[tuple[str, tuple[Problem, ...]]]:
    """All problems of each recipe, without a checkpoint; that there is no such file is one too."""
    paths = [recipes] if isinstance(recipes, str | os.PathLike) else recipes
    found: list[tuple[str, tuple[Problem, ...]]] = []
    for path in (os.fspath(path) for path in paths):
        try:
            load_recipe(path, check=format_findings)
            found.append((path, ()))
        except (RecipeError, UsageError) as error:
            found.append((path, error.problems))
    return found


def format_findings(recipe: Recipe) -> Iterator[Finding]:
    """That the recipe names a format that cannot be written, or not so, whatever the command line may say."""
    output = recipe.output
    if output is None or output.format is None:
        return
    from ckpt_surgery.formats.registry import formats

    name, known = output.format, formats()
    writable = [offer.name for offer in known.values() if offer.open_sink is not None]
    if name not in writable:
        guess = did_you_mean(name, writable)
        wrong = "can be read but not written" if name in known else f"is not known{guess}"
        hint = f"Formats to write: {', '.join(writable)}."
        yield Finding(("output", "format"), f"the format `{name}` {wrong}", hint=hint)
    elif output.structure_file and not known[name].structure_file:
        message = f"{name} checkpoints have no structure file"
        yield Finding(("output", "structure_file"), message, hint="Leave it out.")
