"""Makes what a slim installation lacks impossible to import.

Python imports a module of this name at its start from a folder on PYTHONPATH, in every process.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MISSING = {
    *("jax", "jaxlib", "orbax"),
    *("absl", "aiofiles", "etils", "humanize", "nest_asyncio", "opt_einsum", "psutil", "scipy", "simplejson"),
    *("chex", "flax", "optax", "safetensors", "tensorflow", "torch", "transformers"),
}
"""jax and Orbax, what they install, and libraries of frameworks."""


class Missing(MetaPathFinder):
    """Finder that refuses the missing libraries before any other finder is asked."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the next finder is asked. Raises ModuleNotFoundError for a missing library."""
        if fullname.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


sys.meta_path.insert(0, Missing())
