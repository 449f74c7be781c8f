"""Rename, reshape, merge and convert checkpoints by a recipe, without loading them.

The commands are functions too: `plan`, `apply`, `convert`, `inspect`, `diff`, `lint`, `schema`.
"""

from typing import TYPE_CHECKING, Any

from ckpt_surgery.version import VERSION

__version__ = VERSION
__all__ = ["apply", "convert", "diff", "inspect", "lint", "plan", "schema"]

if TYPE_CHECKING:
    from ckpt_surgery.api import apply, convert, diff, inspect, lint, plan, schema


def __getattr__(name: str) -> Any:
    """Import the library on first use: the command line starts without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckpt_surgery import api

    return getattr(api, name)
