"""All modules of the formats are imported before any test, so that no test measures their imports."""

import importlib
import pkgutil

from ckpt_surgery import formats

for module in pkgutil.walk_packages(formats.__path__, f"{formats.__name__}."):
    importlib.import_module(module.name)
