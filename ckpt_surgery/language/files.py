"""Files that are given as a recipe: their text, and what takes those that are something else."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import Code, Problem, RecipeError, UsageError, access_error, name_beside
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.packaged import PREFIX, packaged_recipes
from ckpt_surgery.language.yaml.document import YamlDocument
from ckpt_surgery.language.yaml.parsing import MAX_BYTES, parse_document

ORDER = "the recipe comes first, then the checkpoints that are read, then the destination."

REPORT = "a report about a plan, not a recipe and not a saved plan"
SAVE = "Make the plan again with `out=FILE`, and apply FILE."


_OTHERS: list[tuple[Callable[[Mapping[str | int, Any]], bool], str, str]] = [
    (
        lambda value: "rules" not in value and bool({"merge_method", "models", "slices"} & value.keys()),
        "a configuration of mergekit, not a recipe",
        "Models are merged by `ckpt-surgery merge {path} DST`.",
    ),
    (lambda value: {"schema", "recipe", "summary", "leaves"} <= value.keys(), REPORT, SAVE),
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
    name = PREFIX + Path(path).stem.replace("_", "-").lower()
    packaged = [PREFIX + known for known in packaged_recipes()]
    guess = did_you_mean(name, packaged) if name in packaged or not Path(path).suffix else ""
    guess = guess if name in packaged else name_beside(path) or guess
    return UsageError(f"recipe not found: {shown(path)}{guess}", code=Code.UNREADABLE)


def read_text(path: str | Path, what: str = "recipe") -> str:
    """The text of a recipe, or of another YAML file, which messages call `what`.

    Raises UsageError if there is none, StorageError if the system does not let it be read, RecipeError if it
    is not UTF-8.
    """
    if urls.is_url(str(path)):
        message = f"{shown(str(path))}: a {what} has to be a file on this machine"
        raise UsageError(message, hint="Copy it here first.", code=Code.UNREADABLE)
    try:
        if Path(path).is_dir():
            message = f"{path} is a directory; a {what} is a YAML file, such as {path}/a.yaml"
            hint = "A recipe comes before the checkpoints; without one there is `convert`, in Python None."
            raise UsageError(message, hint=hint, code=Code.UNREADABLE)
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if what == "recipe":
            raise recipe_not_found(str(path)) from None
        raise UsageError(f"{what} not found: {path}{name_beside(str(path))}", code=Code.UNREADABLE) from None
    except (OSError, ValueError) as error:
        refused = access_error(str(path), error) if isinstance(error, OSError) else None
        message = f"the {what} {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise refused or UsageError(message, code=Code.UNREADABLE) from None
    try:
        if len(data) <= MAX_BYTES:
            return data.decode("utf-8")
        message = f"{path} is larger than {MAX_BYTES >> 20} MiB"
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}"
    order = f"If it is a checkpoint: {ORDER}" if what == "recipe" else None
    raise RecipeError(Problem(message, hint=order), code=Code.UNREADABLE)


def load_document(path: str | Path, what: str = "recipe") -> YamlDocument:
    """The document in a file, which messages call `what`.

    Raises RecipeError with all problems, UsageError if the file cannot be read.
    """
    document = parse_document(read_text(path, what), str(path))
    if document.problems:
        raise RecipeError(*document.problems)
    return document
