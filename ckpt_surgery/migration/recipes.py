"""A recipe that was made out of what another program takes, with the functions that no recipe can say."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.yaml_text import yaml_text

NO_HOOKS: Mapping[str, Callable[..., Any]] = MappingProxyType({})


class MigratedRecipe:
    """A recipe as data. It can be given wherever a recipe can, and written down with `to_yaml`."""

    def __init__(
        self, document: Mapping[str, Any], hooks: Mapping[str, Callable[..., Any]] = NO_HOOKS
    ) -> None:
        """`document`: the recipe in JSON's types, which is copied. `hooks`: functions that it calls."""
        self._text = json.dumps(document)
        self._hooks = MappingProxyType(dict(hooks))

    @property
    def document(self) -> dict[str, Any]:
        """The recipe as dicts, lists, text and numbers. It is a copy, which the caller can change."""
        document: dict[str, Any] = json.loads(self._text)
        return document

    @property
    def hooks(self) -> Mapping[str, Callable[..., Any]]:
        """Functions that no expression says: `hooks.NAME(x)` in the document. `infer_NAME` gives a shape."""
        return self._hooks

    def to_yaml(self) -> str:
        """The recipe as the text of a file. Raises UsageError where it calls functions, with their names."""
        if self._hooks:
            names = ", ".join(f"`{name}`" for name in self._hooks if not name.startswith("infer_"))
            raise UsageError(
                f"the recipe calls functions of this program, which YAML cannot say: {names}",
                hint="Write them as expressions or as a file of hooks, or give the recipe itself to "
                "`ckpt_surgery.restore` or `ckpt_surgery.apply`.",
            )
        return yaml_text(self.document)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MigratedRecipe):
            return NotImplemented
        return self._text == other._text and dict(self._hooks) == dict(other._hooks)

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        rules = len(self.document.get("rules", ()))
        return f"<MigratedRecipe: {rules} rules, {len(self._hooks)} functions>"
