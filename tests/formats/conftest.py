"""What formats import on first use is imported before any test: it is no part of what a test measures."""

import importlib
import pkgutil

from ckpt_surgery import formats

for module in pkgutil.walk_packages(formats.__path__, f"{formats.__name__}."):
    importlib.import_module(module.name)
