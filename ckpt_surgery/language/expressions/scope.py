"""Values of expressions and their limits, and the error that points at characters of an expression."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import EllipsisType
from typing import Any, TypeGuard, TypeVar

import regex

from ckpt_surgery.core.errors import Code, FunctionError, Problem, SurgeryError
from ckpt_surgery.core.text import did_you_mean, number_of
from ckpt_surgery.functions.arrays import Array, Series

Scalar = str | int | float | bool
Constant = Scalar | tuple[Scalar, ...]  # Value of a param or of a table entry
Value = TypeVar("Value")

HOOKS = "hooks"  # Name under which expressions call the user's own functions
SOURCES = "sources"  # Name of the list of the names of all sources
CONFIG = "config"  # Name of the JSON beside the first source
CONFIGS = "configs"  # Name of the JSON beside each source: `configs['lora']`

MAX_BITS = 128  # Limit on the bits of an integer that an expression computes
MAX_STRING = 1 << 16  # Limit on the characters of a text that an expression computes
MAX_LIST = 1_000_000  # Limit on the values of a list, and on those of all lists in a list together
MOST_ENTRIES = 10  # Number of entries of a table that a message names


class ExpressionError(SurgeryError):
    """An expression or a template is refused, or fails. Points at characters of its text.

    Checks that need no values return such errors, all at once.
    """

    exit_code = 2
    code = Code.EXPRESSION

    def __init__(self, message: str, start: int, end: int, hint: str | None = None, code: Code | None = None):
        super().__init__(Problem(message, hint=hint), code=code)
        self.message = message
        self.start = start  # Offset of the first character in the text of the expression or template
        self.end = end  # Offset after the last character
        self.hint = hint

    def shifted(self, by: int) -> "ExpressionError":
        """The same error for a text in which the expression starts at offset `by`."""
        return self.at(self.start + by, self.end + by)

    def at(self, start: int, end: int) -> "ExpressionError":
        """The same error, pointing at other characters."""
        return ExpressionError(self.message, start, end, self.hint, self.problems[0].code)


class LetError(ExpressionError):
    """An entry of `let` fails. Points at characters of the entry, not of the expression that uses it."""

    def __init__(self, entry: str, error: ExpressionError):
        super().__init__(error.message, error.start, error.end, error.hint, error.problems[0].code)
        self.entry = entry  # Name of the entry


class PatternError(ExpressionError):
    """A regular expression is refused."""

    code = Code.PATTERN


class TemplateError(ExpressionError):
    """A template is refused, or gives no key."""

    code = Code.TEMPLATE


@dataclass(frozen=True)
class Use:
    """A place where a name stands for a value, or where a group's name or number is written out: `g[1]`."""

    name: int | str
    start: int
    end: int


@dataclass(frozen=True)
class Unavailable:
    """Stands for a name that has no value here. To use it is an error with this message."""

    message: str
    hint: str | None = None
    code: Code = Code.NO_TARGET


class Lookup(ABC):
    """Values by key that are not leaves of a checkpoint: `matrix[m]`, `config['num_hidden_layers']`."""

    name: str  # Name in expressions

    @property
    def description(self) -> str:
        """A description for messages."""
        return f"the entries of `{self.name}`"

    @abstractmethod
    def entry(self, key: object) -> Any:
        """The value of this key. Raises FunctionError if there is none, SourceError for a damaged file."""

    @abstractmethod
    def has(self, key: str | int) -> bool:
        """Whether there is a value of this key."""


@dataclass(frozen=True)
class Table(Lookup):
    """A lookup table of the recipe: `matrix[m]`."""

    name: str
    entries: Mapping[str | int, Constant]
    params: Mapping[str, Constant] = field(default_factory=dict)
    """The recipe's params, one of which may be the key."""

    DEFAULT = "_"

    @property
    def description(self) -> str:
        return f"the table `{self.name}`"

    def entry(self, key: object) -> Constant:
        """The entry of this key, or the default entry `_`. Raises FunctionError if there is neither."""
        if isinstance(key, str | int) and not isinstance(key, bool):
            if self.has(key):
                return self.entries[key]
            if self.DEFAULT in self.entries:
                return self.entries[self.DEFAULT]
        guess = did_you_mean(str(key), map(str, self.entries))
        known = [repr(entry) for entry in self.entries]
        listed = ", ".join(known[:MOST_ENTRIES]) + (", …" if len(known) > MOST_ENTRIES else "")
        hint = f"It has {listed or 'none'}. Add this one, or an entry `_` that stands for all others."
        for name, value in self.params.items() if known else ():
            if key == value and value:
                hint = f"The param `{name}` takes one of these: {listed}."
        raise FunctionError(f"table `{self.name}` has no entry {key!r}{guess}", hint=hint, code=Code.NO_ENTRY)

    def has(self, key: str | int) -> bool:
        """Whether there is an entry of this key. The default entry `_` does not count.

        Raises FunctionError if the only such entry has a key of the other type, as 0 and '0' are.
        """
        if key in self.entries:
            return True
        if str(key) not in self._texts:
            return False
        kinds = ("an integer", "text", "int") if isinstance(key, str) else ("text", "an integer", "str")
        written, given, function = kinds
        message = f"table `{self.name}` has the entry {key} as {written}, not as {given}"
        hint = f"Look up {function}(…), or write the keys of the table as those that are looked up."
        raise FunctionError(message, hint=hint, code=Code.NO_ENTRY)

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(map(str, self.entries))


@dataclass(frozen=True)
class Watched:
    """A constant whose use is noted when an expression asks for it: a default that no config has given."""

    value: Constant
    note_use: Callable[[], None]


@dataclass(frozen=True)
class Groups:
    """The groups of a match by number or name, `g[1]`. A group that did not take part is `''`."""

    match: regex.Match[str]

    def text(self, key: object) -> str:
        """The text of a group. Raises FunctionError if the regular expression has no such group."""
        if isinstance(key, str | int) and not isinstance(key, bool):
            with suppress(IndexError):
                return self.match[key] or ""
        raise FunctionError(f"the regular expression has no group {key!r}", code=Code.NO_GROUP)


class Leaves(ABC):
    """Value of a source's name, or of `target`: the leaves of a tree by the text of their key."""

    name: str  # Name of the source in the recipe, or `target`

    @abstractmethod
    def lookup(self, text: str) -> Array | None:
        """The leaf's array, or None if there is no such leaf. Raises SurgeryError if it is not an array."""

    @abstractmethod
    def kind(self, text: str) -> str | None:
        """`array`, `scalar`, `string`, `prng_key` or `empty`; None if there is no such leaf."""

    @abstractmethod
    def keys(self) -> Collection[str]:
        """The texts of all keys."""


@dataclass(frozen=True)
class Scope:
    """Everything that the evaluation of an expression can use."""

    names: Mapping[str, Any]
    """Value of each name: a constant, list, Array, Series, Lookup, Groups, Leaves, HookSet or Unavailable."""
    leaf_key: str = ""  # Text of the key of the output: the random numbers of `init` depend on it
    count: Callable[[str], int] | None = None
    """Counts the keys that a regular expression matches; None if there are no keys to count."""


def looked_up(leaves: Leaves, key: str, look: Callable[[str], Value | None]) -> Value:
    """Result of `look` for a leaf. Raises FunctionError, with a close match, if it gives None."""
    value = look(key)
    if value is None:
        message = f"`{leaves.name}` has no leaf {key!r}{did_you_mean(key, leaves.keys())}"
        raise FunctionError(message, code=Code.NO_ENTRY)
    return value


def described(value: object) -> str:
    """A description of a value, for messages: `the number 3`, `an array float32[4,6]`."""
    if isinstance(value, Array):
        return f"an array {value.spec}"
    if isinstance(value, Series):
        return f"a list of {number_of(len(value.items), 'array')}"
    if isinstance(value, Lookup):
        return value.description
    if isinstance(value, Groups):
        return "the groups of the match"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if is_list(value):
        return f"a list of {number_of(len(value), 'array' if are_arrays(value) else 'value')}"
    if isinstance(value, slice | EllipsisType):
        return "a slice"
    return "a source" if isinstance(value, Leaves) else "the hooks"  # no other kind of value exists


def bounded(value: Any) -> Any:
    """The value itself. Raises FunctionError if it is larger than a recipe may compute."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise FunctionError(f"the integer is too large: {value.bit_length()} bits, the limit is {MAX_BITS}")
    if isinstance(value, str) and len(value) > MAX_STRING:
        raise FunctionError(f"the text is too long: {len(value)} characters, the limit is {MAX_STRING}")
    if isinstance(value, list | tuple) and len(value) > MAX_LIST:
        raise FunctionError(f"the list is too long: {len(value)} values, the limit is {MAX_LIST}")
    return value


def listed(values: Iterable[Any]) -> list[Any]:
    """The values of a list or of the arguments of a call.

    They are taken one by one, so that many long lists are never in memory together. Raises FunctionError if
    they are too long together.
    """
    held: list[Any] = []
    size = 0
    for value in values:
        size = _checked_total(size + len(value) if isinstance(value, list | tuple) else size)
        held.append(value)
    return held


def bounded_together(value: Any) -> Any:
    """The value itself, which has a name. Raises FunctionError if it has too many values, nested ones too.

    Without the limit, names that each list the one before twice would make lists that double.
    """
    lists, size = [value], 0
    for part in lists:  # which grows by the lists in them
        if isinstance(part, list | tuple):
            size = _checked_total(size + len(part))
            lists += [item for item in part if isinstance(item, list | tuple)]
    return value


def _checked_total(size: int) -> int:
    if size > MAX_LIST:
        raise FunctionError(f"the lists are too long together; the limit is {MAX_LIST} values")
    return size


def is_list(value: object) -> TypeGuard[list[Any] | tuple[Any, ...] | range]:
    return isinstance(value, list | tuple | range)


def are_arrays(value: object) -> bool:
    return is_list(value) and len(value) > 0 and all(isinstance(item, Array) for item in value)


def series_hint(value: object) -> str | None:
    hint = "stack(xs), concat(xs), mean(xs) and sum(xs) make one array of it."
    return hint if isinstance(value, Series) else None
