"""Version of the package. pyproject.toml reads it from here; a saved plan names the version that made it."""

VERSION = "0.1.0"
