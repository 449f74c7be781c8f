"""Rename, reshape, merge and convert checkpoints by a recipe, without loading them.

The commands are functions too: `plan`, `apply`, `convert`, `inspect`, `diff`, `explain`, `infer`, `invert`,
`lint`, `merge`, `schema`, `verify`.
`apply_shard` and `commit` carry out a saved plan on several machines.
`restore` carries out a recipe into arrays of a running program.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ckpt_surgery.core.version import VERSION

__version__ = VERSION
__all__ = [
    "Explanation",
    "Inferred",
    "Inverse",
    "MigratedRecipe",
    "Plan",
    "Result",
    "SurgeryError",
    "apply",
    "apply_shard",
    "commit",
    "convert",
    "diff",
    "explain",
    "from_orbax_transforms",
    "from_t5x_assignment_map",
    "infer",
    "inspect",
    "invert",
    "lint",
    "merge",
    "merge_recipe",
    "plan",
    "plan_merge",
    "read_recipe",
    "restore",
    "schema",
    "verify",
]

if TYPE_CHECKING:
    from ckpt_surgery.api import apply, convert, plan
    from ckpt_surgery.backwards import Inverse, invert
    from ckpt_surgery.checking import read_recipe
    from ckpt_surgery.core.errors import SurgeryError
    from ckpt_surgery.explaining import explain
    from ckpt_surgery.inferring import Inferred, infer
    from ckpt_surgery.inspecting import diff, inspect
    from ckpt_surgery.language.recipe_schema import schema
    from ckpt_surgery.linting import lint
    from ckpt_surgery.merges import merge, merge_recipe, plan_merge
    from ckpt_surgery.migrating import from_orbax_transforms
    from ckpt_surgery.migration.recipes import MigratedRecipe
    from ckpt_surgery.migration.t5x_maps import from_t5x_assignment_map
    from ckpt_surgery.planner.plan import Plan
    from ckpt_surgery.report.explanation import Explanation
    from ckpt_surgery.restoring import restore
    from ckpt_surgery.run import Result
    from ckpt_surgery.sharded import apply_shard, commit
    from ckpt_surgery.verifying import verify

_MODULES = {
    "Explanation": "report.explanation",
    "Inferred": "inferring",
    "Inverse": "backwards",
    "MigratedRecipe": "migration.recipes",
    "Plan": "planner.plan",
    "Result": "run",
    "SurgeryError": "core.errors",
    "apply": "api",
    "apply_shard": "sharded",
    "commit": "sharded",
    "convert": "api",
    "diff": "inspecting",
    "explain": "explaining",
    "from_orbax_transforms": "migrating",
    "from_t5x_assignment_map": "migration.t5x_maps",
    "infer": "inferring",
    "inspect": "inspecting",
    "invert": "backwards",
    "lint": "linting",
    "merge": "merges",
    "merge_recipe": "merges",
    "plan": "api",
    "plan_merge": "merges",
    "read_recipe": "checking",
    "restore": "restoring",
    "schema": "language.recipe_schema",
    "verify": "verifying",
}
"""The module that defines each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name with what it needs on first use: the command line starts without the library."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
