"""Rename, reshape, merge and convert checkpoints by a recipe, without loading them.

The commands are functions too: `plan`, `apply`, `convert`, `inspect`, `diff`, `lint`, `schema`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ckpt_surgery.core.version import VERSION

__version__ = VERSION
__all__ = ["apply", "convert", "diff", "inspect", "lint", "plan", "schema"]

if TYPE_CHECKING:
    from ckpt_surgery.api import apply, convert, diff, inspect, lint, plan, schema

_MODULES = {"diff": "inspecting", "inspect": "inspecting", "lint": "checking", "schema": "language.loading"}
"""Where the functions are that need no plan; the others are in `api`."""


def __getattr__(name: str) -> Any:
    """Import a function with what it needs on first use: the command line starts without the library."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, 'api')}")
    return getattr(module, name)
