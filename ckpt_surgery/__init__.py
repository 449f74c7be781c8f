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
__all__ = [
    "Checkpoint",
    "DataError",
    "DestinationError",
    "Explanation",
    "FunctionError",
    "Inferred",
    "Interrupted",
    "Inverse",
    "KeyNotFound",
    "LazyArray",
    "LogicalAxes",
    "MigratedRecipe",
    "MissingLibraryError",
    "OriginalMissingError",
    "OutOfMemoryError",
    "PackagedRecipe",
    "Plan",
    "PlanError",
    "Progress",
    "RecipeError",
    "Result",
    "SourceError",
    "SourcesChanged",
    "Statistics",
    "StorageError",
    "SurgeryError",
    "Transform",
    "TransformError",
    "Unread",
    "UsageError",
    "VerificationError",
    "WorkersLost",
    "apply",
    "apply_shard",
    "apply_transformations",
    "commit",
    "convert",
    "diff",
    "errors",
    "explain",
    "from_function",
    "from_orbax_transforms",
    "from_t5x_assignment_map",
    "from_t5x_translator",
    "infer",
    "inspect",
    "invert",
    "lint",
    "load_and_transform",
    "merge",
    "merge_recipe",
    "opaque",
    "open",
    "plan",
    "plan_merge",
    "plan_restore",
    "read_recipe",
    "recipe",
    "recipes",
    "restore",
    "schema",
    "t5x",
    "verify",
]

if TYPE_CHECKING:
    from ckpt_surgery import errors, t5x
    from ckpt_surgery.api.applying import apply, apply_shard, commit, convert, plan
    from ckpt_surgery.api.explaining import explain
    from ckpt_surgery.api.functions import (
        apply_transformations,
        from_function,
        from_orbax_transforms,
        from_t5x_translator,
        load_and_transform,
    )
    from ckpt_surgery.api.inferring import Inferred, infer
    from ckpt_surgery.api.inspecting import diff, inspect
    from ckpt_surgery.api.inverting import Inverse, invert
    from ckpt_surgery.api.linting import lint
    from ckpt_surgery.api.merging import merge, merge_recipe, plan_merge
    from ckpt_surgery.api.opening import open
    from ckpt_surgery.api.packaged_recipes import PackagedRecipe, recipe, recipes
    from ckpt_surgery.api.restoring import plan_restore, restore
    from ckpt_surgery.api.verifying import verify
    from ckpt_surgery.core.errors import (
        DataError,
        DestinationError,
        FunctionError,
        Interrupted,
        KeyNotFound,
        MissingLibraryError,
        OriginalMissingError,
        OutOfMemoryError,
        PlanError,
        RecipeError,
        SourceError,
        SourcesChanged,
        StorageError,
        SurgeryError,
        TransformError,
        UsageError,
        VerificationError,
        WorkersLost,
    )
    from ckpt_surgery.core.progress import Progress
    from ckpt_surgery.inputs.checkpoints import Checkpoint
    from ckpt_surgery.inputs.request import read_recipe
    from ckpt_surgery.language.schema.fields import schema
    from ckpt_surgery.live.lazy_arrays import LazyArray
    from ckpt_surgery.live.logical_axes import LogicalAxes
    from ckpt_surgery.migration.recipes import MigratedRecipe
    from ckpt_surgery.migration.stand_in_arrays import opaque
    from ckpt_surgery.migration.t5x import from_t5x_assignment_map
    from ckpt_surgery.migration.transforming import Transform
    from ckpt_surgery.planner.plan import Plan
    from ckpt_surgery.report.explanation import Explanation
    from ckpt_surgery.report.leaves import Statistics, Unread
    from ckpt_surgery.runs.run import Result

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
