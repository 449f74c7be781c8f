"""Recipes that come with the package, and names of formats: choices that commands list, fast to import."""

from collections.abc import Iterable
from pathlib import Path

from ckpt_surgery.language import packaged


def recipes() -> Iterable[tuple[str, str]]:
    """Name (such as `@lora-merge`) and purpose of every packaged recipe."""
    files = packaged.packaged_recipes().items()
    return [(packaged.PREFIX + name, packaged.summary(path)) for name, path in files]


def recipe_text(name: str) -> str:
    """Text of a packaged recipe; `name` may lack the `@`. Raises UsageError for an unknown name."""
    path = packaged.recipe_path(packaged.PREFIX + name.removeprefix(packaged.PREFIX))
    return Path(path).read_text(encoding="utf-8")


def readable_formats() -> list[str]:
    """Names of the formats that can be read: all of them."""
    from ckpt_surgery.formats.known import formats  # imports every format's detection

    return list(formats())


def writable_formats() -> list[str]:
    """Names of the formats that can be written."""
    from ckpt_surgery.formats.known import writable

    return writable()
