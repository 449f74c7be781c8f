"""What the names in an expression stand for, and the error that points into an expression's text."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import regex

from ckpt_surgery.core.errors import FunctionError, Problem, SurgeryError
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.graph.nodes import Array

Scalar = str | int | float | bool
Constant = Scalar | tuple[Scalar, ...]
"""What a param or a table entry may be."""

HOOKS = "hooks"
"""The name that the user's own functions are called under."""
SOURCES = "sources"
"""The name of the list of all sources' names."""
CONFIG = "config"
"""The name of what lies beside the first source as JSON."""
CONFIGS = "configs"
"""The name of what lies beside each source: `configs['lora']`."""


class ExpressionError(SurgeryError):
    """An expression or a template is refused, or fails; points at characters of its text."""

    exit_code = 2

    def __init__(self, message: str, start: int, end: int, hint: str | None = None):
        super().__init__(Problem(message, hint=hint))
        self.message = message
        self.start = start
        """Character offset in the text of the expression or template."""
        self.end = end
        """Exclusive."""
        self.hint = hint

    def shifted(self, by: int) -> "ExpressionError":
        """The same error, told of a text in which this one starts `by` characters in."""
        return ExpressionError(self.message, self.start + by, self.end + by, self.hint)


class Flaw(NamedTuple):
    """What a static check finds, and where in the text."""

    message: str
    start: int
    end: int


@dataclass(frozen=True)
class NameUse:
    """A name that stands for a value."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class CallUse:
    """A call of a function of the language."""

    name: str
    positional: int
    keywords: tuple[str, ...]
    literal: str | None
    """The first argument, where it is a text written out: the pattern of `count('…')`."""
    start: int
    end: int
    name_end: int
    """The function's name is the characters `start` to `name_end`."""


@dataclass(frozen=True)
class GroupUse:
    """`g[1]` with the group written out."""

    group: int | str
    start: int
    end: int


@dataclass(frozen=True)
class Unavailable:
    """Bound to a name that means nothing here: using it is an error with this message."""

    message: str
    hint: str | None = None
    listed: "Leaves | None" = None
    """Leaves without values: whether they are there, their kinds, shapes and dtypes can be asked for."""


class Lookup(ABC):
    """Values by keys, which no checkpoint's leaves are: `matrix[m]`, `config['num_hidden_layers']`."""

    @property
    @abstractmethod
    def told(self) -> str:
        """What it is, in words."""

    @abstractmethod
    def entry(self, key: object) -> Any:
        """The value of this key. Raises FunctionError where there is none, SourceError where damaged."""

    @abstractmethod
    def has(self, key: str | int) -> bool:
        """Whether there is a value of this key."""


@dataclass(frozen=True)
class Table(Lookup):
    """A lookup table of the recipe: `matrix[m]`."""

    name: str
    entries: Mapping[str | int, Constant]

    DEFAULT = "_"

    @property
    def told(self) -> str:
        return f"the table `{self.name}`"

    def entry(self, key: object) -> Constant:
        """The entry of this key, or the default entry `_`. Raises FunctionError where there is neither."""
        if isinstance(key, str | int) and not isinstance(key, bool):
            if self.has(key):
                return self.entries[key]
            if self.DEFAULT in self.entries:
                return self.entries[self.DEFAULT]
        guess = did_you_mean(str(key), map(str, self.entries))
        raise FunctionError(
            f"table `{self.name}` has no entry {key!r}{guess}",
            hint="Add it to the table, or an entry `_` that stands for all others.",
        )

    def has(self, key: str | int) -> bool:
        """Whether there is an entry of this key; `_` stands for no other.

        Raises FunctionError where there is one of the same text: 0 and '0' are mistaken for each other.
        """
        if key in self.entries:
            return True
        other = self._by_text.get(str(key))
        if other is None:
            return False
        if isinstance(key, str):
            message = f"table `{self.name}` has the entry {other!r} as an integer, and {key!r} is text"
            raise FunctionError(message, hint="Ask for int(…), or write the table's keys in quotes.")
        message = f"table `{self.name}` has the entry {other!r} as text, and {key!r} is an integer"
        raise FunctionError(message, hint="Ask for str(…), or write the table's keys without quotes.")

    @cached_property
    def _by_text(self) -> Mapping[str, str | int]:
        return {str(key): key for key in self.entries}


@dataclass(frozen=True)
class Groups:
    """`g[1]`: the groups of a match by number, or by name. One that did not take part is `''`."""

    match: regex.Match[str]

    def text(self, key: object) -> str:
        """Raises FunctionError where the regular expression has no such group."""
        problem = f"the regular expression has no group {key!r}"
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise FunctionError(problem)
        try:
            return self.match[key] or ""
        except IndexError:
            raise FunctionError(problem) from None


class Leaves(ABC):
    """What the name of a source, or `target`, stands for: the leaves of a tree by the text of their key."""

    name: str
    """Name of the source in the recipe, or `target`."""

    @abstractmethod
    def lookup(self, text: str) -> Array | None:
        """The leaf's array, or None if there is no such leaf. Raises SurgeryError if it is not an array."""

    @abstractmethod
    def kind(self, text: str) -> str | None:
        """`array`, `scalar`, `string`, `prng_key` or `empty`; None if there is no such leaf."""

    @abstractmethod
    def keys(self) -> Collection[str]:
        """The texts of all keys."""


class Hooks(Protocol):
    """What `hooks` stands for where hooks are allowed."""

    sha256: str
    """Of the file: hexadecimal."""

    def call(self, name: str, arguments: Sequence[Any]) -> Any:
        """The lazy result of the user's function. Raises SurgeryError where there is none of that name."""
        ...


@dataclass(frozen=True)
class Scope:
    """All that one evaluation sees."""

    names: Mapping[str, Any]
    """str, int, float, bool, list, tuple, Array, Series, Lookup, Groups, Leaves, Hooks or Unavailable."""
    leaf_key: str = ""
    """The text of the key that is being made: what `init` draws its random numbers from."""
    count: Callable[[str], int] | None = None
    """How many keys a regular expression matches; None where there are no keys to count."""


def looked_up(name: str, leaves: Leaves, key: str) -> Array:
    """`name[key]`. Raises FunctionError, with a close match, where there is no such leaf."""
    found = leaves.lookup(key)
    if found is None:
        raise _no_leaf(name, leaves, key)
    return found


def kind_of(name: str, leaves: Leaves, key: str) -> str:
    """What `name[key]` is. Raises FunctionError, with a close match, where there is no such leaf."""
    found = leaves.kind(key)
    if found is None:
        raise _no_leaf(name, leaves, key)
    return found


def _no_leaf(name: str, leaves: Leaves, key: str) -> FunctionError:
    return FunctionError(f"`{name}` has no leaf {key!r}{did_you_mean(key, leaves.keys())}")
