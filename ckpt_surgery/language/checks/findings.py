"""Input of the checks of a recipe, and their findings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.expressions.naming import EVERYWHERE
from ckpt_surgery.language.expressions.scope import HOOKS, ExpressionError
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath


@dataclass(frozen=True)
class Finding:
    """A problem of a recipe, by the path of its field; its line is looked up later."""

    path: DocumentPath
    message: str
    start: int | None = None
    """Offset of the first character in question, in the value, or in the key if `at_key`."""
    end: int | None = None
    at_key: bool = False
    """Whether the problem is with the key of the value."""
    hint: str | None = None
    code: Code = Code.FIELDS_DISAGREE

    @classmethod
    def of(cls, path: DocumentPath, error: ExpressionError, at_key: bool = False) -> "Finding":
        """An error of a text, as a problem of the field that has the text."""
        code = error.problems[0].code or error.code
        return cls(path, error.message, error.start, error.end, at_key, error.hint, code)


@dataclass(frozen=True)
class Subject:
    """The recipe that is checked."""

    recipe: Recipe
    written: Mapping[str | int, Any]
    """Value of the document, as it was written."""
    broken: frozenset[DocumentPath]
    """Paths of the fields that do not parse. They are missing from `recipe`."""
    with_hooks: bool = False
    """Whether expressions can call functions that the caller gives."""

    @property
    def constants(self) -> frozenset[str]:
        """The names that all expressions of the recipe can use."""
        names = {*self.recipe.params, *self.recipe.tables, *self.recipe.named_sources, *EVERYWHERE}
        names |= {str(path[1]) for path in self.broken if len(path) > 1 and path[0] in ("params", "tables")}
        return frozenset(names | ({HOOKS} if self.with_hooks or "hooks" in self.written else set()))

    def is_broken(self, path: DocumentPath) -> bool:
        """Whether the value at this path, or part of it, does not parse."""
        return any(broken[: len(path)] == path for broken in self.broken)


def empty_fields(written: Mapping[str | int, Any], path: DocumentPath) -> Iterator[Finding]:
    for name, value in written.items():
        if value is None and name not in ("params", "tables"):
            message = f"`{name}` has no value; write one, or leave the field out"
            yield Finding((*path, name), message, at_key=True, code=Code.MISSING_FIELD)
