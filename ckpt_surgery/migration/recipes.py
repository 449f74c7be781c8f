"""A recipe translated from another program's transformations, with functions that no recipe can express."""

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.language.written import TracedFunction

MOST_NAMED = 20
"""Limit on the keys that a message lists."""


class MigratedRecipe:
    """A recipe as data. It can be given wherever a recipe can, and written down with `to_yaml`."""

    def __init__(
        self,
        document: Mapping[str, Any],
        hooks: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
        rules: Mapping[int, str] = MappingProxyType({}),
        function: TracedFunction | None = None,
    ) -> None:
        """`document`: the recipe in JSON's types, which is copied. The others become attributes."""
        self._text = json.dumps(document)
        self.hooks = MappingProxyType(dict(hooks))
        """Functions without an expression: `hooks.NAME(x)` in the document. `infer_NAME` returns a shape."""
        self.rules = MappingProxyType(dict(rules))
        """Origins of the document's rules, by index: "transform `a/(.*)`"."""
        self.function = function
        """The user's function that the recipe was traced from; None for other recipes."""

    @property
    def document(self) -> dict[str, Any]:
        """A copy of the recipe as dicts, lists, text and numbers, which the caller can change."""
        document: dict[str, Any] = json.loads(self._text)
        return document

    def to_yaml(self) -> str:
        """Format the recipe as the text of a YAML file.

        Raises UsageError if the recipe calls functions, with their names and the origins of the rules that
        call them, or with the leaves that they make; and if it makes dicts that its text would make lists.
        """
        if self.hooks:
            raise self._refusal()
        if self.function is not None:
            self.function.check_written()
        from ckpt_surgery.language.yaml.writing import yaml_text  # imports PyYAML

        return yaml_text(self.document)

    def _refusal(self) -> UsageError:
        """Error for a recipe that needs the program: names its functions, or the leaves that they make."""
        rules = self.document.get("rules", ())
        called = (re.findall(r"\bhooks\.(\w+)", json.dumps(rule)) for rule in rules)
        calls = [(n, name) for n, names in enumerate(called) for name in names]
        if self.function is None:
            listed = ", ".join(f"`{name}` ({self.rules.get(n, f'rules[{n}]')})" for n, name in calls)
        else:
            listed = few_keys(dict.fromkeys(rules[n]["add"] for n, _ in calls), MOST_NAMED)
        return UsageError(
            f"YAML cannot say what functions and values of this program make: {listed}",
            hint="Give the recipe itself to `ckpt_surgery.restore` or `ckpt_surgery.apply`, or write "
            "functions as a file of hooks and save arrays as a second source.",
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MigratedRecipe):
            return NotImplemented
        return self._text == other._text and dict(self.hooks) == dict(other.hooks)

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        rules = len(self.document.get("rules", ()))
        return f"<MigratedRecipe: {rules} rules, {len(self.hooks)} functions>"


class AddedHooks:
    """The hooks of a recipe by name, added on demand."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def added(self, hook: Any) -> str:
        """Add a hook; returns its name in expressions, which is that of its function if it has one."""
        wanted = re.sub(r"\W|^_+|^infer_", "", getattr(hook.made_of, "__name__", ""), flags=re.ASCII)
        reserved = wanted == "lambda" or re.fullmatch(r"(constant|leaf)_\d+", wanted)
        name = base = wanted if wanted[:1].isalpha() and not reserved else "function"
        number = 1
        while name in self.functions:
            number += 1
            name = f"{base}_{number}"
        self.functions[name] = hook
        self.functions[f"infer_{name}"] = hook.infer
        return name
