"""What checks of a recipe find, and what they look at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.language.models import Recipe
from ckpt_surgery.language.naming import EVERYWHERE
from ckpt_surgery.language.scope import HOOKS
from ckpt_surgery.language.yaml_document import DocumentPath


@dataclass(frozen=True)
class Finding:
    """A problem of the recipe, before its place is looked up."""

    path: DocumentPath
    message: str
    start: int | None = None
    """Offsets in the scalar's value, or in the key where `at_key`."""
    end: int | None = None
    at_key: bool = False
    """The key that leads to the value is meant."""
    hint: str | None = None


@dataclass(frozen=True)
class Subject:
    """What is being checked."""

    recipe: Recipe
    written: Mapping[str | int, Any]
    """The document's value."""
    broken: frozenset[DocumentPath]
    """Fields that do not parse; they are missing from `recipe`."""

    @property
    def constants(self) -> frozenset[str]:
        """Every name that all expressions of the recipe know."""
        names = {*self.recipe.params, *self.recipe.tables, *self.recipe.named_sources, *EVERYWHERE}
        names |= {str(path[1]) for path in self.broken if len(path) > 1 and path[0] in ("params", "tables")}
        return frozenset(names | ({HOOKS} if "hooks" in self.written else set()))

    def is_broken(self, path: DocumentPath) -> bool:
        """Whether something there, or below, does not parse."""
        return any(broken[: len(path)] == path for broken in self.broken)


def empty_fields(written: Mapping[str | int, Any], path: DocumentPath) -> Iterator[Finding]:
    for name, value in written.items():
        if value is None and name not in ("params", "tables"):
            yield Finding(
                (*path, name), f"`{name}` has no value; write one, or leave the field out", at_key=True
            )
