"""Recipes as files."""

from pathlib import Path


def write_recipe(directory: Path, text: str, name: str = "recipe.yaml") -> Path:
    """Write the text of a recipe into a directory; the file."""
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path
