"""The functions that expressions can call, and what more of them are made with, all by name.

`from ckpt_surgery.functions import Array, in_expressions, where` imports the module that has each. Functions
are Python functions of lazy arrays, marked by `base.in_expressions`; what they apply are primitives, one
frozen dataclass each, which `base.Function` describes.
"""

import importlib.util
from typing import Any


def __getattr__(name: str) -> Any:
    """A function by its name in expressions, or a name that functions are written with."""
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is None:
        from ckpt_surgery.functions.registry import WRITTEN_WITH, own_functions

        offered = {**own_functions(), **WRITTEN_WITH}
        if name in offered:
            return offered[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
