"""Recognizes files that are given as a recipe but are something else, and says what takes them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckpt_surgery.core.access import name_beside
from ckpt_surgery.core.errors import Problem, RecipeError, UsageError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.packaged import PREFIX, packaged_recipes

ORDER = "the recipe comes first, then the checkpoints that are read, then the destination."

REPORT = "a report about a plan, not a recipe and not a saved plan"
SAVE = "Make the plan again with `out=FILE`, and apply FILE."

_Value = Mapping[str | int, Any]


def _is_merge(value: _Value) -> bool:
    return "rules" not in value and ("merge_method" in value or bool({"models", "slices"} & value.keys()))


def is_plan_report(value: _Value) -> bool:
    """Whether the value of a document is what `plan` reports as JSON."""
    return "schema" in value and {"recipe", "summary", "leaves"} <= value.keys()


_OTHERS: list[tuple[Callable[[_Value], bool], str, str]] = [
    (
        _is_merge,
        "a configuration of mergekit, not a recipe",
        "Models are merged by `ckpt-surgery merge {path} DST`.",
    ),
    (is_plan_report, REPORT, SAVE),
    (
        lambda value: "schema" in value,
        "a report of ckpt-surgery, not a recipe",
        "The leaves that `inspect` lists can be a target: `target={path}`.",
    ),
    (
        lambda value: isinstance(value.get("weight_map"), Mapping),
        "the index of a checkpoint, not a recipe",
        f"In the arguments {ORDER} Name the directory of the checkpoint.",
    ),
    (
        lambda value: bool({"model_type", "architectures", "peft_type"} & value.keys()),
        "the config of a model, not a recipe",
        f"In the arguments {ORDER} A checkpoint's own config is read with it; another one is `config=FILE`.",
    ),
]
"""Whether a document is of this kind, what it is, and the hint."""


def refuse_other_documents(value: Any, path: str) -> None:
    """Raise RecipeError for the document of a file that is another kind of document than a recipe."""
    if not isinstance(value, Mapping) or "version" in value:
        return
    for is_such, what, hint in _OTHERS:
        if is_such(value):
            problem = Problem(f"{path} is {what}", hint=hint.format(path=path))
            raise RecipeError(problem, code=Code.UNREADABLE)


def refuse_recipe(value: Any, path: str) -> None:
    """Raise RecipeError for a recipe that is given as a configuration of mergekit."""
    if isinstance(value, Mapping) and "version" in value and {"rules", "passes"} & value.keys():
        message = f"{path} is a recipe, not a configuration of mergekit"
        hint = f"A recipe is carried out by `ckpt-surgery apply {path} SRC... DST`."
        raise RecipeError(Problem(message, hint=hint), code=Code.UNREADABLE)


def recipe_not_found(path: str) -> UsageError:
    """The error for a recipe that is not there: a file of a similar name, or a packaged recipe."""
    stem = Path(path).stem.replace("_", "-").lower()
    packaged = [PREFIX + name for name in packaged_recipes()]
    if PREFIX + stem in packaged:
        guess = f"; did you mean `{PREFIX}{stem}`, which comes with the package?"
    else:
        guess = name_beside(path) or ("" if Path(path).suffix else did_you_mean(PREFIX + stem, packaged))
    return UsageError(f"recipe not found: {shown(path)}{guess}", code=Code.UNREADABLE)
