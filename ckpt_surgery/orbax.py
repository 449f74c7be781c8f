"""Recipes inside Orbax: a checkpoint manager that restores by a recipe.

Importing this module imports Orbax, and registers the handler with which `orbax.checkpoint.v1` loads a
`RecipeRestore`. Raises MissingLibraryError where Orbax is not installed. Where nothing else is needed,
`ckpt_surgery.restore(recipe, manager.directory, step=…)` does the same without it.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt_surgery.api.restoring import restore
from ckpt_surgery.core.arguments import CheckpointLike, Function, RecipeLike
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.migration.recipes import MigratedRecipe

with report_missing("orbax", "`ckpt_surgery.orbax` needs orbax-checkpoint"):
    import orbax.checkpoint as ocp
    from orbax.checkpoint import v1
    from orbax.checkpoint.handlers import DefaultCheckpointHandlerRegistry


class RecipeHandler(ocp.StandardCheckpointHandler):  # type: ignore[misc]
    """Restores by a recipe. Saving, finishing a save and metadata are those of Orbax's own handler."""

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Restore the item in `directory` by the recipe, or as Orbax does for its own arguments.

        Raises SurgeryError where the recipe or the checkpoint has a flaw.
        """
        if isinstance(args, RecipeRestore):
            return args.restored(directory)
        return super().restore(directory, item=item, args=args)


@ocp.args.register_with_handler(RecipeHandler, for_restore=True)
@dataclass
class RecipeRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Arguments of a restore by a recipe: `manager.restore(step, args=RecipeRestore(recipe, state))`."""

    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | None
    """A recipe in any form that `ckpt_surgery.restore` takes."""
    target: Any
    """Pytree whose structure the result has; None for nested dicts and lists."""
    sources: Sequence[CheckpointLike] = ()
    """Further sources of the recipe, after the item that is restored."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of `ckpt_surgery.restore`, such as `shardings`. Step and item are the manager's."""

    def restored(self, directory: Any) -> Any:
        """Restore the item in a directory by the recipe. Raises SurgeryError."""
        for name in {"step", "item", "src_format", "target"} & self.options.keys():
            said = "the manager and the other arguments say it"
            raise UsageError(f"`RecipeRestore`: `{name}` is not an option: {said}")
        return restore(self.recipe, str(directory), *self.sources, target=self.target, **self.options)


def handler_registry() -> DefaultCheckpointHandlerRegistry:
    """Handlers for `CheckpointManager(…, handler_registry=…)`, with which every item takes `RecipeRestore`.

    `StandardSave` and `StandardRestore` work as ever, before and after; other arguments have the handlers
    that Orbax has for them.
    """
    handler, registry = RecipeHandler(), DefaultCheckpointHandlerRegistry()
    for args in (RecipeRestore, ocp.args.StandardSave, ocp.args.StandardRestore):
        registry.add(None, args, handler)
    return registry


@v1.handlers.register_handler
class RecipeLoadable:
    """The handler of `orbax.checkpoint.v1` for loading by a recipe. It saves nothing."""

    async def save(self, directory: Any, checkpointable: Any) -> Awaitable[None]:
        """Raises UsageError: `is_handleable` accepts nothing, so Orbax does not come here."""
        raise UsageError("a `RecipeRestore` cannot be saved", hint="Save the tree itself.")

    async def load(self, directory: Any, abstract_checkpointable: Any = None) -> Awaitable[Any]:
        """Restore the item in `directory` by the recipe. Raises SurgeryError."""

        async def loaded() -> Any:
            return abstract_checkpointable.restored(directory)

        return loaded()

    async def metadata(self, directory: Any) -> Any:
        """The shapes and dtypes that Orbax's own handler tells of the item."""
        return await v1.handlers.PyTreeHandler().metadata(directory)

    def is_handleable(self, checkpointable: Any) -> bool:
        """False: it saves nothing."""
        return False

    def is_abstract_handleable(self, abstract_checkpointable: Any) -> bool:
        """True for a `RecipeRestore`, which says how something is loaded."""
        return isinstance(abstract_checkpointable, RecipeRestore)
