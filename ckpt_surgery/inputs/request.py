"""Requests for plans, normalized from arguments, and their recipes; readers of these are imported on use."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckpt_surgery.core import arguments, urls
from ckpt_surgery.core.arguments import Assignments, Function, LinkMode, PathLike, RecipeLike
from ckpt_surgery.core.errors import Code, PlanError, UsageError
from ckpt_surgery.core.file_states import FileState
from ckpt_surgery.core.history import IN_MEMORY
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.inputs.options import PlanOptions
from ckpt_surgery.language.written import data_document, is_text, text_of
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.storage.views import forget

if TYPE_CHECKING:
    from ckpt_surgery.core.protocols import Source
    from ckpt_surgery.language.checks.findings import Finding
    from ckpt_surgery.language.loading import LoadedRecipe
    from ckpt_surgery.language.schema.fields import Recipe
    from ckpt_surgery.language.yaml.document import DocumentPath
    from ckpt_surgery.planner.plan import Input, Plan


@dataclass(frozen=True, eq=False)
class InMemory:
    """A pytree that is given in place of a checkpoint."""

    tree: Any
    """The tree, or the `TreeSource` that a plan has made of it."""
    uint16: str = "keep"
    """Way to read arrays of uint16, `keep` or `bfloat16`."""


class OpenedPath(str):
    """Path of a checkpoint that the program has open, with its step, item and format.

    It is accepted wherever a path is. Opening it gives the same step and item, or an error.
    """

    step: int | None
    item: str | None
    src_format: str
    uint16: str
    """Way to read arrays of uint16, `keep` or `bfloat16`."""
    fingerprint: str
    files: Mapping[str, FileState]
    """Size and time of each file, by path; empty if they are not known."""


class OpenCheckpoint(ABC):
    """A checkpoint that the program has open; it is accepted wherever a path is."""

    @abstractmethod
    def _as_source(self) -> OpenedPath | InMemory:
        """Path with the choices of the program, or the tree. Raises UsageError for a subtree."""


Changes = Mapping[tuple[str, ...], Any]
"""New values of a config's entries, by their path in it."""


@dataclass(frozen=True, eq=False)
class Pinned:
    """Everything that a plan has decided or read, besides the sources' own files."""

    name: str
    """Name of the plan in messages: the path of its file, or `the plan`."""
    request: "Request"
    """The request as it was decided, with its recipe loaded. `memory` is what outputs are cut for."""
    inputs: "tuple[Input, ...]"
    """The inputs as they were when the plan was made, at the paths that are read now."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None]
    """Name and content of each config that planning read, by source; None where there was none."""
    listing: Mapping[str, Leaf] | None
    """Leaves of the target by key, where that is a listing."""
    linked: str
    """For each output, `1` where its files may be linked. All others are never linked."""
    digest: str
    """Digest of the plan: see `digest_of_plan`."""
    leaves: Callable[[], Sequence[Mapping[str, Any]]]
    """Gives the leaves of the plan's document, to name those that differ."""
    hooks: tuple[str, str] | None = None
    """Path and digest of the hooks file to load; None if there is none."""
    text: bytes | None = None
    """Text of the file of the plan; None where it has none."""

    @property
    def files(self) -> list[str]:
        """Paths of the files that are read besides the sources."""
        return [self.name, *(self.hooks or ())[:1]] if self.text is not None else []

    def may_link(self, number: int) -> bool:
        """True if the files of an output may be linked."""
        return self.linked[number : number + 1] == "1"


@dataclass(frozen=True)
class Request:
    """Request for a plan; `PlanOptions` describes the fields that have the names of options."""

    recipe: Any
    """Path of a recipe, its text, a mapping, or a recipe that is loaded already; None: keep every leaf."""
    sources: tuple[str | InMemory, ...] = ()
    """Paths of checkpoints, and trees."""
    dst: str | None = None
    step: int | None = None
    item: str | None = None
    src_format: str | None = None
    uint16: str | None = None
    config: str | None = None
    format: str | None = None
    dst_step: int | None = None
    dst_item: str | None = None
    shard_size: int | None = None
    unshard: bool = False
    memory: int | None = None
    workers: int | None = None
    link_mode: LinkMode | None = None
    target: str | InMemory | None = None
    set: tuple[str, ...] = ()
    """Texts `NAME=VALUE`."""
    last: int | None = None
    allow_hooks: bool = False
    made_from: str | None = None
    """Path of the file that the recipe was generated from; None for other recipes."""
    notes: tuple[str, ...] = ()
    """Warnings about that file."""
    changes: Changes | None = None
    """New values of the config's entries that the result describes differently."""
    shardings: Any = None
    """Shardings of the arrays of a running program, as they were given."""
    opened: "tuple[Source, ...]" = ()
    """Open sources, if a function has been traced with their listings."""
    pinned: Pinned | None = None
    """The plan that this request repeats: what it has decided is not decided again."""

    @property
    def recipe_path(self) -> str | None:
        """Path or `@name` of the recipe, loaded or not; None where it has no file."""
        path = self.recipe if isinstance(self.recipe, str) else getattr(self.recipe, "path", None)
        return path if isinstance(path, str) and not is_text(path) and path != IN_MEMORY else None

    @property
    def beside(self) -> list[str | None]:
        """Paths of the files besides the checkpoints that are read; None where there is none."""
        if self.pinned is not None:
            return [*self.pinned.files]
        return [self.recipe_path, self.made_from, self.config]

    @property
    def inputs(self) -> list[str]:
        """Paths of the sources and of the target; trees in memory have none."""
        return [given for given in (*self.sources, self.target) if isinstance(given, str)]

    @property
    def has_trees(self) -> bool:
        """True if a source or the target is a tree in memory."""
        return any(isinstance(given, InMemory) for given in (*self.sources, self.target))


def requested(
    recipe: "RecipeLike | Function | LoadedRecipe | MigratedRecipe | Plan | None",
    sources: tuple[Any, ...],
    dst: PathLike | None,
    options: Mapping[str, Any],
) -> "Request":
    """Make a request from all arguments but those of its execution. Raises UsageError for invalid values."""
    forget()
    given = {
        name: _PARSERS.get(name, lambda value: value)(value)
        for name, value in options.items()
        if value is not None and name in PlanOptions.__annotations__
    }
    if isinstance(recipe, OpenCheckpoint):
        hint = "The recipe comes before the checkpoints; without one, give None."
        raise UsageError(f"{recipe!r} is a checkpoint, and stands where a recipe is read", hint=hint)
    if isinstance(recipe, os.PathLike):
        recipe = os.fspath(recipe)
    if isinstance(recipe, str) and not is_text(recipe) and urls.is_url(recipe):
        hint = "Copy it here first. If it is a checkpoint, give a recipe before it."
        raise UsageError(f"{shown(recipe)}: recipes and plans are files of this machine", hint=hint)
    inputs, to = tuple(map(checkpoint_or_tree, sources)), None if dst is None else checked_path(dst)
    request = Request(recipe, inputs, to, **given)
    for source in inputs:
        if isinstance(source, str) and Path(source).suffix in (".yaml", ".yml") and Path(source).is_file():
            hint = "A recipe comes before the checkpoints. `convert` takes none, and rules take its place."
            raise UsageError(
                f"{shown(source)} is a YAML file, and stands where a checkpoint is read", hint=hint
            )
    ways = [uint16_at(source, request.uint16) for source in inputs]
    if len({*ways}) > 1:
        raise _opened_otherwise(inputs[ways.index("bfloat16")], "the others are read as they are")
    if "bfloat16" in ways:
        request = replace(request, uint16="bfloat16")
    if request.set and hasattr(recipe, "param_values"):
        problem = f"the recipe {shown(request.recipe.path)} has been read already, and its params have values"
        raise UsageError(problem, hint="Give `set` to `read_recipe`.")
    return request


def uint16_at(given: str | InMemory, uint16: str | None) -> str:
    """Way to read arrays of uint16, `keep` or `bfloat16`; those of an open checkpoint as it was opened.

    Raises UsageError for a value that the option cannot have, and if the checkpoint was opened with another.
    """
    opened = given.uint16 if isinstance(given, OpenedPath | InMemory) else "keep"
    if uint16 is None or arguments.one_of("uint16", uint16, UINT16) == opened:
        return opened
    if opened == "bfloat16":
        raise _opened_otherwise(given, f"`{uint16}` is given")
    return uint16


def _opened_otherwise(given: str | InMemory, otherwise: str) -> UsageError:
    """Error for a checkpoint that was opened as bfloat16, where something else asks for integers."""
    name = shown(str(given)) if isinstance(given, str) else "the tree"
    hint = 'Give `uint16="bfloat16"` for all checkpoints, or open it without.'
    return UsageError(f'{name} was opened with `uint16="bfloat16"`, and {otherwise}', hint=hint)


def checkpoint_or_tree(given: Any) -> str | InMemory:
    """The path or URL of a checkpoint; everything that is neither is a tree. Raises UsageError."""
    if isinstance(given, OpenCheckpoint):
        return given._as_source()
    return checked_path(given) if isinstance(given, str | os.PathLike) else InMemory(given)


def path_of_source(given: Any) -> str:
    """Path or URL of a checkpoint where no tree is taken. Raises UsageError."""
    path = given._as_source() if isinstance(given, OpenCheckpoint) else checked_path(given)
    if isinstance(path, InMemory):
        raise UsageError("a tree in memory is given where the path of a checkpoint is needed")
    return path


def checked_path(given: PathLike) -> str:
    """Text of a path or URL that a caller gave. Raises UsageError: see `urls.checked`."""
    # A text of another class, such as NumPy's, can have methods of other meanings.
    text = given if isinstance(given, OpenedPath) else str(os.fspath(given))
    if not isinstance(given, str) and _COLLAPSED.match(text):
        hint = "Give URLs as texts."
        raise UsageError(f"{shown(text)} is a URL that was made a path, which loses a slash", hint=hint)
    return urls.checked(text)


_COLLAPSED = re.compile(r"(s3|gs|file):/(?!/)")
"""A URL that `pathlib` has taken for a path."""


UINT16 = ("keep", "bfloat16")
"""Ways to read arrays of uint16."""
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "shard_size": partial(arguments.bytes_of, "shard_size"),
    "memory": partial(arguments.bytes_of, "memory"),
    "link_mode": partial(arguments.one_of, "link_mode", known=list(LinkMode)),
    "uint16": partial(arguments.one_of, "uint16", known=UINT16),
    "config": os.fspath,
    "target": checkpoint_or_tree,
    "set": arguments.assignments_of,
}
"""Parser of each option's value."""


def is_plan_file(recipe: Any) -> bool:
    """True if a path has the name of a saved plan. A recipe may be called so too: only reading it tells."""
    is_path = isinstance(recipe, os.PathLike) or (isinstance(recipe, str) and not is_text(recipe))
    return is_path and Path(recipe).suffix == ".json"


def read_recipe(recipe: RecipeLike | MigratedRecipe, set: Assignments = ()) -> "LoadedRecipe":
    """Read and check a recipe once, for any number of calls of `plan`, `apply` and `restore`.

    `recipe` is a path, or `@name` for one that comes with the package, or the text of a recipe, or its
    document as a mapping, or a `MigratedRecipe`; messages call the last three `(recipe)`, and name lines of
    a text alone. `set` gives values to its params. Raises RecipeError with all problems of the recipe,
    UsageError where it cannot be read or `set` does not fit.
    """
    from ckpt_surgery.language.loading import load_recipe, parse_recipe

    given = arguments.assignments_of(set)
    if isinstance(recipe, MigratedRecipe):
        from ckpt_surgery.language.hooks import HookFunctions

        hooks = HookFunctions(recipe.hooks) if recipe.hooks else None
        rules: dict[DocumentPath, str] = {("rules", n): name for n, name in recipe.rules.items()}
        function = recipe.function
        document = data_document(recipe.document, IN_MEMORY if function is None else function.place, rules)
        loaded = parse_recipe(document, IN_MEMORY, given, format_findings, hooks)
        return replace(loaded, function=function)
    if isinstance(recipe, Mapping):
        return parse_recipe(text_of(recipe), IN_MEMORY, given, format_findings, rules={})
    if isinstance(recipe, str) and is_text(recipe):
        return parse_recipe(recipe, IN_MEMORY, given, format_findings)
    if isinstance(recipe, str | os.PathLike):
        return load_recipe(os.fspath(recipe), given, format_findings)
    hint = "Give a path, `@name`, a text or a mapping."
    if callable(recipe):
        hint = "A function needs its sources: `ckpt_surgery.from_function(f, *sources)`."
    raise UsageError(f"a recipe cannot be of type {type(recipe).__name__}", hint=hint)


def format_findings(recipe: "Recipe") -> "Iterator[Finding]":
    """Report the recipe's `output` if its format cannot be written, or has no structure file as asked."""
    from ckpt_surgery.language.checks.findings import Finding

    output = recipe.output
    if output is None or output.format is None:
        return
    from ckpt_surgery.formats import known as formats  # imports every format's detection

    name, writable = output.format, formats.writable()
    if name not in writable:
        wrong = f"is not known{did_you_mean(name, writable)}"
        if name in formats.formats():
            wrong = "can be read but not written"
        hint = f"Formats to write: {', '.join(writable)}."
        yield Finding(("output", "format"), f"the format `{name}` {wrong}", hint=hint, code=Code.WRONG_VALUE)
    elif output.structure_file and "structure_file" not in formats.formats()[name].options:
        message = f"{name} checkpoints have no structure file"
        yield Finding(("output", "structure_file"), message, hint="Leave it out.")


def with_hooks(loaded: "LoadedRecipe") -> "LoadedRecipe":
    """Load the hooks of a recipe, if it has any. Runs their file."""
    from ckpt_surgery.language.hooks import HookFile

    if loaded.recipe.hooks is None or loaded.hooks is not None:
        return loaded
    try:
        return replace(loaded, hooks=HookFile(loaded.directory / loaded.recipe.hooks))
    except PlanError as error:
        place = loaded.place(("hooks",))
        raise PlanError(*(replace(p, place=place) for p in error.problems)) from error
