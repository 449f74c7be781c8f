"""Read recipes, and check them without a checkpoint. Imports nothing of planning."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ckpt_surgery.core.arguments import Assignments, RecipeLike, assignments_of
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.history import NO_RECIPE
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.inputs.choices import readable_formats, writable_formats
from ckpt_surgery.language.findings import Finding
from ckpt_surgery.language.hook_functions import HookFunctions
from ckpt_surgery.language.loading import LoadedRecipe, load_recipe, parse_recipe
from ckpt_surgery.language.models import Recipe
from ckpt_surgery.language.one_liners import document_of, in_order, inside_keys
from ckpt_surgery.language.written import IN_MEMORY, is_text, text_of
from ckpt_surgery.language.yaml_document import DocumentPath
from ckpt_surgery.language.yaml_text import yaml_text
from ckpt_surgery.migration.recipes import MigratedRecipe

if TYPE_CHECKING:
    from ckpt_surgery.inputs.request import Request


def read_recipe(recipe: RecipeLike | MigratedRecipe, set: Assignments = ()) -> LoadedRecipe:
    """A recipe, read and checked once, for any number of calls of `plan`, `apply` and `restore`.

    `recipe` is a path, or `@name` for one that comes with the package, or the text of a recipe, or its
    document as a mapping, or a `MigratedRecipe`; messages call the last three `(recipe)`, and name lines of
    a text alone. `set` gives values to its params. Raises RecipeError with all problems of the recipe,
    UsageError where it cannot be read or `set` does not fit.
    """
    given = assignments_of(set)
    if isinstance(recipe, MigratedRecipe):
        hooks = HookFunctions(recipe.hooks) if recipe.hooks else None
        text = text_of(recipe.document)
        rules: dict[DocumentPath, str] = {("rules", n): name for n, name in recipe.rules.items()}
        return parse_recipe(text, IN_MEMORY, given, format_findings, hooks, rules)
    if isinstance(recipe, Mapping):
        return parse_recipe(text_of(recipe), IN_MEMORY, given, format_findings, rules={})
    if isinstance(recipe, str) and is_text(recipe):
        return parse_recipe(recipe, IN_MEMORY, given, format_findings)
    if not isinstance(recipe, str | os.PathLike):
        kind = type(recipe).__name__
        raise UsageError(
            f"a recipe cannot be of type {kind}", hint="Give a path, `@name`, a text or a mapping."
        )
    return load_recipe(os.fspath(recipe), given, format_findings)


def with_recipe(request: "Request") -> "Request":
    """Read the recipe of a request; unchanged where it has none, or one that was read before.

    Raises RecipeError.
    """
    if request.recipe is None or isinstance(request.recipe, LoadedRecipe):
        return request
    return replace(request, recipe=read_recipe(request.recipe, request.set), set=())


def loaded_recipe(request: "Request") -> LoadedRecipe:
    """Read the recipe of a request where it was not read before. Raises RecipeError."""
    if request.recipe is None:
        return parse_recipe("version: 1\n", NO_RECIPE, request.set)
    recipe: LoadedRecipe = with_recipe(request).recipe
    return recipe


def recipe_of_rules(rules: Iterable[str]) -> str:
    """The text of the recipe that rules of the command line are, such as `s|REGEX|TEMPLATE|`.

    Raises UsageError for a text that is not a rule.
    """
    return yaml_text(document_of(tuple(rules)))


def rule_inside_keys(rules: Iterable[str], number: int) -> str | None:
    """The rule that does inside keys what the rule of this number in `recipe_of_rules` does to whole keys.

    None where there is no such rule.
    """
    return inside_keys(in_order(tuple(rules))[number])


def format_findings(recipe: Recipe) -> Iterator[Finding]:
    """The problem of a recipe that names a format which cannot be written, or not in the way it says."""
    output = recipe.output
    if output is None or output.format is None:
        return
    name, writable = output.format, writable_formats()
    if name not in writable:
        guess = did_you_mean(name, writable)
        wrong = "can be read but not written" if name in readable_formats() else f"is not known{guess}"
        hint = f"Formats to write: {', '.join(writable)}."
        message = f"the format `{name}` {wrong}"
        yield Finding(("output", "format"), message, hint=hint, code=Code.WRONG_VALUE)
    elif output.structure_file and not _has_structure_file(name):
        message = f"{name} checkpoints have no structure file"
        yield Finding(("output", "structure_file"), message, hint="Leave it out.")


def _has_structure_file(format: str) -> bool:
    from ckpt_surgery.formats.registry import formats  # imports every format's detection

    return formats()[format].structure_file
