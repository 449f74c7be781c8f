"""Rename, reshape, merge and convert checkpoints by a recipe, without loading them.

The commands are functions too: `plan`, `apply`, `convert`, `inspect`, `diff`, `explain`, `infer`, `invert`,
`lint`, `merge`, `schema`, `verify`.
`apply_shard` and `commit` carry out a saved plan on several machines.
`open` gives a checkpoint as a mapping of arrays that are read when they are asked for.
`restore` carries out a recipe into arrays of a running program.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ckpt_surgery.core.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:  # the aliases tell type checkers that the names are public
    from ckpt_surgery import errors as errors
    from ckpt_surgery import t5x as t5x
    from ckpt_surgery.api.applying import apply as apply
    from ckpt_surgery.api.applying import apply_shard as apply_shard
    from ckpt_surgery.api.applying import commit as commit
    from ckpt_surgery.api.applying import convert as convert
    from ckpt_surgery.api.applying import plan as plan
    from ckpt_surgery.api.explaining import explain as explain
    from ckpt_surgery.api.functions import apply_transformations as apply_transformations
    from ckpt_surgery.api.functions import from_function as from_function
    from ckpt_surgery.api.functions import from_orbax_transforms as from_orbax_transforms
    from ckpt_surgery.api.functions import from_t5x_translator as from_t5x_translator
    from ckpt_surgery.api.functions import load_and_transform as load_and_transform
    from ckpt_surgery.api.inferring import Inferred as Inferred
    from ckpt_surgery.api.inferring import infer as infer
    from ckpt_surgery.api.inspecting import diff as diff
    from ckpt_surgery.api.inspecting import inspect as inspect
    from ckpt_surgery.api.inverting import Inverse as Inverse
    from ckpt_surgery.api.inverting import invert as invert
    from ckpt_surgery.api.linting import lint as lint
    from ckpt_surgery.api.merging import merge as merge
    from ckpt_surgery.api.merging import merge_recipe as merge_recipe
    from ckpt_surgery.api.merging import plan_merge as plan_merge
    from ckpt_surgery.api.opening import open as open
    from ckpt_surgery.api.packaged_recipes import PackagedRecipe as PackagedRecipe
    from ckpt_surgery.api.packaged_recipes import recipe as recipe
    from ckpt_surgery.api.packaged_recipes import recipes as recipes
    from ckpt_surgery.api.restoring import plan_restore as plan_restore
    from ckpt_surgery.api.restoring import restore as restore
    from ckpt_surgery.api.verifying import verify as verify
    from ckpt_surgery.core.errors import DataError as DataError
    from ckpt_surgery.core.errors import DestinationError as DestinationError
    from ckpt_surgery.core.errors import FunctionError as FunctionError
    from ckpt_surgery.core.errors import Interrupted as Interrupted
    from ckpt_surgery.core.errors import KeyNotFound as KeyNotFound
    from ckpt_surgery.core.errors import MissingLibraryError as MissingLibraryError
    from ckpt_surgery.core.errors import OriginalMissingError as OriginalMissingError
    from ckpt_surgery.core.errors import OutOfMemoryError as OutOfMemoryError
    from ckpt_surgery.core.errors import PlanError as PlanError
    from ckpt_surgery.core.errors import RecipeError as RecipeError
    from ckpt_surgery.core.errors import SourceError as SourceError
    from ckpt_surgery.core.errors import SourcesChanged as SourcesChanged
    from ckpt_surgery.core.errors import StorageError as StorageError
    from ckpt_surgery.core.errors import SurgeryError as SurgeryError
    from ckpt_surgery.core.errors import TransformError as TransformError
    from ckpt_surgery.core.errors import UsageError as UsageError
    from ckpt_surgery.core.errors import VerificationError as VerificationError
    from ckpt_surgery.core.errors import WorkersLost as WorkersLost
    from ckpt_surgery.core.progress import Progress as Progress
    from ckpt_surgery.inputs.checkpoints import Checkpoint as Checkpoint
    from ckpt_surgery.inputs.request import read_recipe as read_recipe
    from ckpt_surgery.language.schema.fields import schema as schema
    from ckpt_surgery.live.lazy_arrays import LazyArray as LazyArray
    from ckpt_surgery.live.logical_axes import LogicalAxes as LogicalAxes
    from ckpt_surgery.migration.recipes import MigratedRecipe as MigratedRecipe
    from ckpt_surgery.migration.stand_in_arrays import opaque as opaque
    from ckpt_surgery.migration.t5x import from_t5x_assignment_map as from_t5x_assignment_map
    from ckpt_surgery.migration.transforming import Transform as Transform
    from ckpt_surgery.planner.plan import Plan as Plan
    from ckpt_surgery.report.explanation import Explanation as Explanation
    from ckpt_surgery.report.leaves import Statistics as Statistics
    from ckpt_surgery.report.leaves import Unread as Unread
    from ckpt_surgery.runs.run import Result as Result

_MODULES = {
    name: module
    for module, names in {
        "api.applying": ("apply", "apply_shard", "commit", "convert", "plan"),
        "api.explaining": ("explain",),
        "api.functions": (
            *("apply_transformations", "from_function", "from_orbax_transforms", "from_t5x_translator"),
            "load_and_transform",
        ),
        "api.inferring": ("Inferred", "infer"),
        "api.inspecting": ("diff", "inspect"),
        "api.inverting": ("Inverse", "invert"),
        "api.linting": ("lint",),
        "api.merging": ("merge", "merge_recipe", "plan_merge"),
        "api.opening": ("open",),
        "api.packaged_recipes": ("PackagedRecipe", "recipe", "recipes"),
        "api.restoring": ("plan_restore", "restore"),
        "api.verifying": ("verify",),
        "core.errors": (
            *("DataError", "DestinationError", "FunctionError", "Interrupted", "KeyNotFound"),
            *("MissingLibraryError", "OriginalMissingError", "OutOfMemoryError", "PlanError"),
            *("RecipeError", "SourceError", "SourcesChanged", "StorageError", "SurgeryError"),
            *("TransformError", "UsageError", "VerificationError", "WorkersLost"),
        ),
        "core.progress": ("Progress",),
        "errors": ("errors",),
        "inputs.checkpoints": ("Checkpoint",),
        "inputs.request": ("read_recipe",),
        "language.schema.fields": ("schema",),
        "live.lazy_arrays": ("LazyArray",),
        "live.logical_axes": ("LogicalAxes",),
        "migration.stand_in_arrays": ("opaque",),
        "migration.recipes": ("MigratedRecipe",),
        "migration.t5x": ("from_t5x_assignment_map",),
        "migration.transforming": ("Transform",),
        "planner.plan": ("Plan",),
        "report.explanation": ("Explanation",),
        "report.leaves": ("Statistics", "Unread"),
        "runs.run": ("Result",),
        "t5x": ("t5x",),
    }.items()
    for name in names
}
"""The module that defines each public name; a public module is its own."""
__all__ = sorted(_MODULES)


if not TYPE_CHECKING:  # type checkers know the names from the imports above, and refuse all others

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: the command line starts without what the library needs."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
        return module if _MODULES[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)


_TEXT = __doc__


class _Face(ModuleType):
    """Module whose docstring, which `help` shows, lists the public names with their first sentences."""

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        import inspect
        import re

        lines = []
        for name in __all__:
            sentence = re.split(r"\.(?=\s|$)", inspect.getdoc(getattr(self, name)) or "", maxsplit=1)[0]
            lines.append(f"{name}: {' '.join(sentence.split())}.")
        return "\n\n".join([str(_TEXT).strip(), *lines])


sys.modules[__name__].__class__ = _Face
