"""Options of `plan`, `apply` and `convert`, and the request that these become.

An option is described here and nowhere else: signatures and docstrings of the functions list what
`ConvertOptions` and `PlanOptions` say, and the options of the command line have the same names.
"""

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypedDict,
    TypeVar,
    get_origin,
    get_type_hints,
)

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import Assignments, PathLike, RecipeLike, Size, assignments_of, bytes_of
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.written import IN_MEMORY, is_text
from ckpt_surgery.storage.views import forget

if TYPE_CHECKING:
    from ckpt_surgery.language.loading import LoadedRecipe
    from ckpt_surgery.migration.recipes import MigratedRecipe
    from ckpt_surgery.planner.document import PlanFile

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class InMemory:
    """A pytree that is given in place of a checkpoint."""

    tree: Any


class SourceOptions(TypedDict, total=False):
    """Choice of the checkpoint that is read at a path: see `ConvertOptions`."""

    step: int | None
    item: str | None
    src_format: str | None


class ConvertOptions(TypedDict, total=False):
    """Options of `convert`, which `plan` and `apply` take too. None stands for the default."""

    step: Annotated[int | None, "Step to read from a source that holds several; default: the latest."]
    item: Annotated[str | None, "Item to read from a composite source; default: the only one with arrays."]
    src_format: Annotated[str | None, "Format of the sources; default: what the content of each says."]
    uint16: Annotated[
        Literal["keep", "bfloat16"] | None,
        "How arrays of uint16 are read: `bfloat16` takes their bits as bfloat16, which old versions of T5X "
        "stored so; default: the recipe's `input`, else `keep`.",
    ]
    format: Annotated[
        str | None, "Format of the destination; default: the recipe's, else what its name says, else orbax."
    ]
    dst_step: Annotated[
        int | None, "Number of the step that the destination, a CheckpointManager directory, gets."
    ]
    dst_item: Annotated[
        str | None,
        "Name of the item inside that step. A step that exists keeps its other items. Default: that of the "
        "source's item, else `default`.",
    ]
    shard_size: Annotated[
        Size | None, "Bytes of arrays per file at most, or a text such as `5GB`; default: one file."
    ]
    unshard: Annotated[
        bool | None,
        "Whether no sharding of any array is recorded, so that Orbax restores the result on any devices; "
        "default: no.",
    ]
    memory: Annotated[
        Size | None,
        "Memory budget in bytes, or a text such as `2GiB`; default: 2 GiB, or a quarter of what is free.",
    ]
    workers: Annotated[int | None, "Number of threads; default: one per core, and one more."]
    link_mode: Annotated[
        LinkMode | str | None,
        "How stored bytes that need no change get into the destination. `auto`: reflinks where the file "
        "system can, else hard links to files that nothing rewrites in place (of formats whose writers "
        "replace files, in a Hugging Face cache, without write permission), else copies. `reflink`: reflinks "
        "or an error. `hardlink`: hard links to all files, if nothing will rewrite the sources. `copy`: no "
        "links. Default: `auto`.",
    ]


class PlanOptions(ConvertOptions, total=False):
    """Options of `plan` and `apply`: those of `convert`, and what only a recipe makes use of."""

    target: Annotated[
        PathLike | Any | None,
        "Checkpoint, listing or pytree whose structure the result must have; default: none.",
    ]
    set: Annotated[
        Assignments | None, "Values of the recipe's params: a mapping from names, or texts `NAME=VALUE`."
    ]
    config: Annotated[
        PathLike | None,
        "JSON file that describes the model of the first source; default: the config.json beside it, else "
        "what the conversion before recorded.",
    ]
    last: Annotated[
        int | None,
        "Number of the latest finished steps of the one source that are read, each as a source of its own, "
        "in ascending order; default: one step, as `step` says.",
    ]
    allow_hooks: Annotated[
        bool | None, "Whether the recipe's hooks, Python code of its author, may run; default: no."
    ]


ARGUMENTS = frozenset(
    {*PlanOptions.__annotations__, "overwrite", "resume", "verify", "values", "copy_config", "under", "out"}
)
"""Arguments that hints name, as in `step=10`; at the command line they are options."""


@dataclass(frozen=True)
class Request:
    """Request for a plan, in one form however the caller wrote it.

    `PlanOptions` describes the fields that have the names of options.
    """

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
    """Path of the file that the recipe was made from; None where it was not made."""
    notes: tuple[str, ...] = ()
    """Warnings about that file."""
    pinned: "PlanFile | None" = None
    """The saved plan that this is the request of: what it has fixed is not looked for again."""

    @property
    def recipe_path(self) -> str | None:
        """Path or `@name` of the recipe, loaded or not; None where it has no file."""
        path = self.recipe if isinstance(self.recipe, str) else getattr(self.recipe, "path", None)
        return path if isinstance(path, str) and not is_text(path) and path != IN_MEMORY else None

    @property
    def beside(self) -> list[str | None]:
        """Paths of the files besides the checkpoints that are read; None where there is none."""
        if self.pinned is not None:
            return [self.pinned.path, *(self.pinned.saved.hooks or ())[:1]]
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
    recipe: "RecipeLike | LoadedRecipe | MigratedRecipe | None",
    sources: tuple[Any, ...],
    dst: PathLike | None,
    options: PlanOptions | ConvertOptions,
) -> Request:
    """Make a request of arguments, without how it is run. Raises UsageError for invalid values."""
    forget()
    given: dict[str, Any] = {
        name: value
        for name, value in options.items()
        if value is not None and name in PlanOptions.__annotations__
    }
    if isinstance(recipe, os.PathLike):
        recipe = os.fspath(recipe)
    if isinstance(recipe, str) and not is_text(recipe) and urls.is_url(recipe):
        raise UsageError(
            f"{shown(recipe)}: recipes and plans are files of this machine",
            hint="Copy it here first. If it is a checkpoint, give a recipe before it.",
        )
    request = Request(
        recipe,
        tuple(map(checkpoint_or_tree, sources)),
        None if dst is None else checked_path(dst),
        **{name: _PARSERS[name](value) if name in _PARSERS else value for name, value in given.items()},
    )
    _check_no_recipe(request.sources)
    if request.set and hasattr(recipe, "param_values"):
        name = shown(request.recipe.path)
        raise UsageError(
            f"the recipe {name} has been read already, and its params have their values",
            hint="Give `set` to `read_recipe`.",
        )
    return request


def _check_no_recipe(sources: Iterable[str | InMemory]) -> None:
    """Refuse a recipe among the sources, before anything is said about the destination. Raises UsageError."""
    for source in sources:
        if isinstance(source, str) and Path(source).suffix in (".yaml", ".yml") and Path(source).is_file():
            raise UsageError(
                f"{shown(source)} is a YAML file, and stands where a checkpoint is read",
                hint="A recipe comes before the checkpoints. `convert` takes none, and rules take its place.",
            )


def checkpoint_or_tree(given: Any) -> str | InMemory:
    """The path or URL of a checkpoint; everything that is neither is a tree. Raises UsageError."""
    return checked_path(given) if isinstance(given, str | os.PathLike) else InMemory(given)


def checked_path(given: PathLike) -> str:
    """Text of a path or URL that a caller gave. Raises UsageError: see `urls.checked`."""
    text = os.fspath(given)
    if not isinstance(given, str) and _COLLAPSED.match(text):
        raise UsageError(
            f"{shown(text)} is a URL that was made a path, which loses a slash",
            hint="Give URLs as texts.",
        )
    return urls.checked(text)


_COLLAPSED = re.compile(r"(s3|gs|file):/(?!/)")
"""A URL after `pathlib` has taken it for a path."""


def _link_mode(mode: str) -> LinkMode:
    if mode not in list(LinkMode):
        raise UsageError(f"`link_mode`: {shown(repr(mode))} is not one of: {', '.join(LinkMode)}")
    return LinkMode(mode)


def _uint16(value: str) -> str:
    if value not in (known := ("keep", "bfloat16")):
        raise UsageError(f"`uint16`: {shown(repr(value))} is not one of: {', '.join(known)}")
    return value


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    "shard_size": functools.partial(bytes_of, "shard_size"),
    "memory": functools.partial(bytes_of, "memory"),
    "link_mode": _link_mode,
    "uint16": _uint16,
    "config": os.fspath,
    "target": checkpoint_or_tree,
    "set": assignments_of,
}
"""How the value of each option is parsed."""


def is_plan_file(recipe: Any) -> bool:
    """True if a path has the name of a saved plan. A recipe may be called so too: only reading it tells."""
    if isinstance(recipe, str) and is_text(recipe):
        return False
    return isinstance(recipe, str | os.PathLike) and Path(recipe).suffix == ".json"


def takes(options: type, runs: type = Request) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare that the keyword arguments of a function are the fields of `options`, a TypedDict.

    The signature then lists them, with the defaults of the fields of `Request` and `runs`, a dataclass; the
    docstring lists those that are described; and an argument of another name raises a TypeError that names
    it.
    """
    defaults = {field.name: field.default for field in (*fields(Request), *fields(runs))}
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in get_type_hints(options).items()
    ]
    texts = {
        name: hint.__metadata__[0]
        for name, hint in get_type_hints(options, include_extras=True).items()
        if get_origin(hint) is Annotated
    }
    described = "\n".join(f"    {name}: {text}" for name, text in texts.items())

    def declared(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        names = [parameter.name for parameter in (*own, *listed)]

        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            for name in given:
                if name not in names:
                    guess = did_you_mean(name, names)
                    raise TypeError(f"{function.__name__}() has no option `{shown(name)}`{guess}")
            return function(*args, **given)

        spelled_out = signature.replace(parameters=[*own, *listed])
        checked.__signature__ = spelled_out  # type: ignore[attr-defined]
        checked.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\nOptions:\n{described}\n"
        return checked

    return declared
